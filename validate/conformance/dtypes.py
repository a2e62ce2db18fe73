"""Every op over every dtype: what the CPU refuses is refused with the CPU's type of
error, before any kernel is built."""

from __future__ import annotations

import itertools

import torch
from conformance import opinfo
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

# Those of conformance/cases.py, and the ones that few ops take.
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
# Of those another question asks what the CPU takes: conformance/cases.py.
_ASKED_ELSEWHERE = (*DTYPES[:6], *DTYPES[9:13], *DTYPES[14:16])
# The device has kernels of these that the CPU lacks: a composed op gets further, and
# is refused by a later part of it.
_FEW_ON_CPU = DTYPES[6:9]
_SAMPLES = 2
# What a driver's compiler, or the program cache, says of a kernel it cannot build.
_BUILD_ERRORS = ("clBuildProgram", "build log", "error:", "BUILD_PROGRAM_FAILURE")


def samples(op: OpInfo, dtype: torch.dtype) -> list[SampleInput]:
    """A few samples on the CPU whose floats, or where there are none whose first
    tensor, are of ``dtype``, whether the op takes it or not."""
    supported = op.supported_dtypes("cpu")
    made = torch.float32 if torch.float32 in supported else torch.int64
    if made not in supported:
        made = min(supported, key=str)
    drawn = op.sample_inputs("cpu", made)
    return [
        _converted(sample, made, dtype) for sample in itertools.islice(drawn, _SAMPLES)
    ]


def _converted(sample: SampleInput, old: torch.dtype, new: torch.dtype) -> SampleInput:
    def convert(value):
        if torch.is_tensor(value) and value.dtype == old:
            return value.to(new)
        return value

    return opinfo.map_sample(sample, convert)


def check(op: OpInfo, dtype: torch.dtype, device: torch.device, seed: int) -> None:
    """
    Raises:
        AssertionError: what the CPU refuses does not end in the CPU's type of error.
            Of what it takes, an error that speaks of a build.
    """
    torch.manual_seed(seed)
    for sample in samples(op, dtype):
        refused = None
        try:
            opinfo.call(op, opinfo.to_device(sample, torch.device("cpu")))
        except Exception as error:
            refused = error
        if refused is None and dtype in _ASKED_ELSEWHERE:
            continue
        try:
            opinfo.call(op, opinfo.to_device(sample, device))
            torch.opencl.synchronize(device)
        except Exception as error:
            text = str(error).split("\n\nException raised from")[0]
            what = f"{opinfo.describe(sample)}: {type(error).__name__}: {text[:300]}"
            assert not any(word in text for word in _BUILD_ERRORS), what
            if refused is not None:
                wanted = type(refused)
                if dtype in _FEW_ON_CPU and wanted is NotImplementedError:
                    wanted = RuntimeError
                same = isinstance(error, wanted)
                assert same, f"{what}\n  CPU: {type(refused).__name__}: {refused}"
            else:
                assert isinstance(error, NotImplementedError), what
