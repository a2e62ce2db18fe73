"""Moves bytes by plain kernels, some streams read and some written: what memory
gives to an op with such a mix of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from case import Case
from torch_opencl import RawKernel

# Streams read and written; shares between two of these are close to both.
_MIXES = ((0, 1), (1, 2), (1, 1), (3, 2), (2, 1), (4, 1), (1, 0))
# Past the last caches, and divisible by all numbers of streams.
_BYTES = 480 << 20
_STEPS = 256

# Vectors a work-item for drivers for CPUs, that store non-temporally; neighbours
# in turns for GPUs.
_SOURCE = """
#if IS_GPU
typedef float4 vector_t;
#define GROUP 256
#define STORE(value, p) *(p) = value
#else
typedef float16 vector_t;
#define GROUP 1
#define STORE(value, p) __builtin_nontemporal_store(value, p)
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void move_bytes(global vector_t *out, global const vector_t *in, const ulong length) {
  const ulong begin = get_group_id(0) * (ulong)(GROUP * STEPS) + get_local_id(0);
  vector_t total = (vector_t)(0.0f);
  for (ulong at = begin; at < begin + GROUP * STEPS; at += GROUP) {
    vector_t sum = (vector_t)(1.0f);
    #pragma unroll
    for (int i = 0; i < READS; ++i) {
      sum += in[i * length + at];
    }
    #pragma unroll
    for (int i = 0; i < WRITES; ++i) {
      STORE(sum, out + i * length + at);
    }
    total += sum;
  }
  if (WRITES == 0) {
    out[get_global_id(0)] = total;
  }
}
"""


@cache
def _operands(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.ones(_BYTES // 4, device=device)
    return torch.empty_like(source), source


@cache
def _moving(device: str, reads: int, writes: int) -> Callable[[], object]:
    is_gpu = torch.opencl.get_device_properties(device).is_gpu
    group, width = (256, 4) if is_gpu else (1, 16)
    definitions = {"IS_GPU": int(is_gpu), "READS": reads, "WRITES": writes}
    definitions["STEPS"] = _STEPS
    options = [f"-D {name}={value}" for name, value in definitions.items()]
    kernel = RawKernel(_SOURCE, "move_bytes", options)
    length = _BYTES // (reads + writes) // (4 * width)
    out, source = _operands(device)
    groups = length // (group * _STEPS)
    return lambda: kernel((groups,), (group,), (out, source, length))


def moving(device: str, case: Case) -> tuple[Callable[[], object], int]:
    """Moves bytes with about the mix of the case's, on an opencl device: a
    function, and how many bytes it moves."""
    share = case.read / case.moved
    mix = min(_MIXES, key=lambda mix: abs(mix[0] / sum(mix) - share))
    return _moving(device, *mix), _BYTES
