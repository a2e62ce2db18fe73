"""What a device and its driver do without this project: runs in a process of its
own, through pyopencl, on the driver of an opencl device.

`measured` starts the process; the functions below it run there.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_COPY_BYTES = 256 << 20
_ROUNDS = 7
_FLOATS = 4
_LAUNCHES = 256

# Vector type, its width, independent chains, work-group size: drivers for CPUs
# want explicit vectors, GPUs scalars, and some pack work-items by themselves.
_SHAPES = (
    ("float16", 16, 10, 1),
    ("float16", 16, 20, 1),
    ("float8", 8, 12, 1),
    ("float", 1, 12, 64),
    ("float", 1, 16, 256),
    ("float4", 4, 8, 64),
)
_SOURCE = """
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void peak(global float *out, const float a, const float b, const int steps) {
  VECTOR chains[CHAINS];
  #pragma unroll
  for (int i = 0; i < CHAINS; ++i) {
    chains[i] = (VECTOR)(float)(get_global_id(0) + i);
  }
  const VECTOR factor = (VECTOR)a, term = (VECTOR)b;
  for (int step = 0; step < steps; ++step) {
    #pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
      chains[i] = fma(chains[i], factor, term);
    }
  }
  VECTOR sum = (VECTOR)0.0f;
  #pragma unroll
  for (int i = 0; i < CHAINS; ++i) {
    sum += chains[i];
  }
  out[get_global_id(0)] = LANES_SUM(sum);
}
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void copy(global float4 *out, global const float4 *in) {
  out[get_global_id(0)] = in[get_global_id(0)];
}
"""
_ADD_SOURCE = """
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void add(global float *out, const ulong out_offset,
         global const float *self, const ulong self_offset,
         global const float *other, const ulong other_offset,
         const float alpha, const uint count, const uint chunk) {
  const size_t i = get_global_id(0);
  if (i < count) {
    out[out_offset + i] =
        self[self_offset + i] + alpha * other[other_offset + i];
  }
}
"""


def measured(device: str, what: str, quick: bool = False) -> dict[str, float]:
    """What one of `_MEASUREMENTS` says about an opencl device."""
    import torch

    properties = torch.opencl.get_device_properties(device)
    wanted = {
        "what": what,
        "platform_version": properties.platform_version,
        "name": properties.name,
        "quick": quick,
    }
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as directory:
        if properties.library:
            # A driver of the virtual environment, which no loader finds.
            Path(directory, "driver.icd").write_text(f"{properties.library}\n")
            environment["OCL_ICD_VENDORS"] = directory
            libraries = (
                str(Path(properties.library).parent),
                environment.get("LD_LIBRARY_PATH", ""),
            )
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
        process = subprocess.run(
            [sys.executable, __file__, json.dumps(wanted)],
            env=environment,
            capture_output=True,
            text=True,
        )
    if process.returncode != 0:
        raise RuntimeError(f"{what} of {device} by pyopencl:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])


def best(rounds: int, run: Callable[[], object]) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def options_of(vector: str, width: int, chains: int, work_group: int) -> list[str]:
    lanes = "(" + "+".join(f"(v).s{lane:x}" for lane in range(width)) + ")"
    return [
        f"-D VECTOR={vector}",
        f"-D CHAINS={chains}",
        f"-D WG_SIZE={work_group}",
        # All lanes, or compilers leave out those that nobody reads.
        f"-D LANES_SUM(v)={lanes if width > 1 else '(v)'}",
    ]


def peak_of(context, queue, device, shape, quick: bool) -> float:
    import numpy
    import pyopencl as cl

    _, width, chains, work_group = shape
    program = cl.Program(context, _SOURCE).build(options_of(*shape))
    is_gpu = bool(device.type & cl.device_type.GPU)
    items = device.max_compute_units * (64 if is_gpu else 16) * max(work_group, 16)
    items = items // work_group * work_group
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, _FLOATS * items)
    kernel = cl.Kernel(program, "peak")
    steps = 256

    def run() -> None:
        numbers = (numpy.float32(0.999), numpy.float32(0.001), numpy.int32(steps))
        kernel(queue, (items,), (work_group,), out, *numbers)
        queue.finish()

    run()
    wanted = 0.01 if quick else 0.05
    while (seconds := best(2, run)) < wanted and steps < 1 << 24:
        steps = int(steps * min(16, max(2, 1.2 * wanted / seconds)))
    seconds = best(2 if quick else _ROUNDS, run)
    return 2.0 * items * width * chains * steps / seconds


def bandwidth_of(context, queue, quick: bool) -> float:
    import pyopencl as cl

    size = _COPY_BYTES >> (4 if quick else 0)
    source = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
    program = cl.Program(context, _SOURCE).build(options_of(*_SHAPES[3]))
    kernel = cl.Kernel(program, "copy")

    def by_kernel() -> None:
        kernel(queue, (size // 16,), (64,), target, source)
        queue.finish()

    def by_command() -> None:
        cl.enqueue_copy(queue, target, source, byte_count=size)
        queue.finish()

    # Pages that were never written are all the same one, and in the caches.
    for buffer in (source, target):
        cl.enqueue_fill_buffer(queue, buffer, b"\1", 0, size)
    by_command()
    by_kernel()
    return 2.0 * size / min(best(_ROUNDS, by_kernel), best(_ROUNDS, by_command))


def roofline(context, queue, device, quick: bool) -> dict[str, float]:
    return {
        "flops": max(peak_of(context, queue, device, s, quick) for s in _SHAPES),
        "bandwidth": bandwidth_of(context, queue, quick),
    }


def enqueue(context, queue, device, quick: bool) -> dict[str, float]:
    """Seconds of clEnqueueNDRangeKernel, called through ctypes.

    "busy" is of calls without a pause, so that the device has always more to do.
    "idle" is of calls with pauses in which it runs out of work, and the driver
    has to wake a thread. The time of the same call with an argument that the
    driver refuses at once is taken off. The kernel has the arguments of one that
    adds two tensors.
    """
    import ctypes
    import ctypes.util

    import numpy
    import pyopencl as cl

    library = ctypes.CDLL(ctypes.util.find_library("OpenCL") or "libOpenCL.so.1")
    program = cl.Program(context, _ADD_SOURCE).build()
    kernel = cl.Kernel(program, "add")
    arguments: list[object] = []
    for _ in range(3):
        arguments.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, 1024))
        arguments.append(numpy.uint64(0))
    kernel.set_args(*arguments, numpy.float32(1), numpy.uint32(64), numpy.uint32(64))
    profiled = cl.CommandQueue(
        context, properties=cl.command_queue_properties.PROFILING_ENABLE
    )
    handles = ctypes.c_void_p(profiled.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    size = ctypes.c_size_t(64)
    sizes = ctypes.byref(size), ctypes.byref(size)

    def launch(dimensions: int) -> int:
        return library.clEnqueueNDRangeKernel(
            *handles, dimensions, None, *sizes, 0, None, None
        )

    def seconds_of(dimensions: int, pause: float) -> float:
        times = []
        for _ in range(3 if quick else 30):
            for _ in range(_LAUNCHES):
                start = time.perf_counter()
                launch(dimensions)
                end = time.perf_counter()
                times.append(end - start)
                while time.perf_counter() < end + pause:
                    pass
            profiled.finish()
        return statistics.median(times)

    assert launch(1) == 0 and launch(9) != 0
    return {
        name: seconds_of(1, pause) - seconds_of(9, pause)
        for name, pause in (("busy", 0.0), ("idle", 20e-6))
    }


_MEASUREMENTS = {"roofline": roofline, "enqueue": enqueue}


def main() -> None:
    import pyopencl as cl

    wanted = json.loads(sys.argv[1])
    for platform in cl.get_platforms():
        for device in platform.get_devices():
            found = (platform.version, device.name)
            if found == (wanted["platform_version"], wanted["name"]):
                context = cl.Context([device])
                queue = cl.CommandQueue(context)
                measurement = _MEASUREMENTS[wanted["what"]]
                print(json.dumps(measurement(context, queue, device, wanted["quick"])))
                return
    raise RuntimeError(f"pyopencl finds no device {wanted}")


if __name__ == "__main__":
    main()
