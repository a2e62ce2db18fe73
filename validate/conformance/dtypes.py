"""Every op over every dtype: what the CPU refuses is refused in the CPU's words before
any kernel is built, or a rule of conformance/refusals.py has the reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import torch
import torch_opencl
from conformance import opinfo, refusals
from conformance.cases import op_name
from conformance.judge import Draws
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode

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
        if not torch.is_tensor(value) or value.dtype != old:
            return value
        # C leaves undefined which unsigned number a negative float becomes.
        is_signed = old.is_floating_point or old == torch.int64
        return (value.abs() if is_signed and new in _FEW_ON_CPU else value).to(new)

    return opinfo.map_sample(sample, convert)


def check(op: OpInfo, dtype: torch.dtype, device: torch.device, seed: int) -> set:
    """
    Returns:
        The rules that were needed, each with ``dtype``.

    Raises:
        AssertionError: what the CPU refuses is not refused with the CPU's type and
            text, or took work of the device, and no rule has a reason. Of what
            the CPU takes, an error that speaks of a build.
    """
    torch.manual_seed(seed)
    needed = set()
    for sample in samples(op, dtype):
        _, refused = _call(op, opinfo.to_device(sample, torch.device("cpu")))
        if refused is None and dtype in _ASKED_ELSEWHERE:
            continue
        on_device = opinfo.to_device(sample, device)
        torch.opencl.synchronize(device)
        before = _work(device)
        result, error = _call(op, on_device, device)
        what = opinfo.describe(sample)
        if error is not None:
            text = str(error).split("\n\nException raised from")[0]
            what = f"{what}: {type(error).__name__}: {text[:300]}"
            assert not any(word in text for word in _BUILD_ERRORS), what
        if refused is None:
            assert error is None or isinstance(error, NotImplementedError), what
            continue
        what = f"{what}\n  CPU: {type(refused).__name__}: {refused}"
        if error is None:
            is_empty = not any(t.numel() for t in opinfo.tensors(result))
            is_empty |= not any(t.numel() for t in opinfo.tensors(sample.input))
            rules = [x for x in refusals.TAKEN if is_empty or not x.only_empty]
            rule = _rule(rules, op, dtype, refused, None)
            assert rule, f"no error: {what}"
            if rule.has_values:
                _assert_values(op, sample, dtype, result)
            needed.add((rule, dtype))
            continue
        wanted = type(refused)
        if dtype in _FEW_ON_CPU and wanted is NotImplementedError:
            wanted = RuntimeError
        assert isinstance(error, wanted), what
        if _work(device) != before and not _is_composed(op, sample):
            rule = _rule(refusals.COMPOSED, op, dtype, refused, error)
            assert rule, f"{what}\n  after work of the device"
            needed.add((rule, dtype))
        if _words(error) != _words(refused):
            rule = _rule(refusals.WORDS, op, dtype, refused, error)
            assert rule, what
            needed.add((rule, dtype))
    return needed


class _Parts(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.count += not function.is_view
        return result


def _is_composed(op: OpInfo, sample: SampleInput) -> bool:
    """Whether the CPU, too, computes other parts before one is refused."""
    on_cpu = opinfo.to_device(sample, torch.device("cpu"))
    with _Parts() as parts:
        _call(op, on_cpu)
    return parts.count > 0


def _call(op: OpInfo, sample: SampleInput, device: torch.device | None = None):
    """The result, and the error."""
    try:
        result = opinfo.call(op, sample)
        if device is not None:
            torch.opencl.synchronize(device)
    except Exception as error:
        return None, error
    return result, None


def _work(device: torch.device) -> tuple[dict, int]:
    module = torch_opencl._C
    return module._program_cache_stats(device.index), module._launch_count(device.index)


def _words(error: Exception) -> str:
    """The first line of the text, of whichever device."""
    line = str(error).split("\n")[0]
    line = re.sub(r"(?:opencl|CPU)(\w+)Type", r"torch.\1Tensor", line)
    return line.replace("opencl:", "cpu:")


def _rule(rules: Sequence[refusals.Rule], op, dtype, refused, error):
    words = None if error is None else _words(error)
    for rule in rules:
        if rule.is_of(op_name(op), dtype) and rule.allows(_words(refused), words):
            return rule
    return None


def _assert_values(op: OpInfo, sample: SampleInput, dtype, result) -> None:
    """Those of the same numbers in the widest dtype of the kind, or as floats."""
    with Draws() as draws:
        expected, refused = _call(op, _converted(sample, dtype, _widest(dtype)))
        if refused is not None:
            expected = opinfo.call(op, _converted(sample, dtype, torch.float64))
    if draws.seen:
        return
    pairs = zip(opinfo.tensors(result), opinfo.tensors(expected), strict=True)
    for mine, wide in pairs:
        kind = _widest(mine.dtype)
        relative = 0 if kind == torch.int64 else 4 * torch.finfo(mine.dtype).eps
        absolute = relative
        if kind == torch.int64 and wide.is_floating_point():
            wide, absolute = wide.round(), 1
        torch.testing.assert_close(
            mine.cpu().to(kind),
            wide.to(mine.dtype).to(kind),
            rtol=relative,
            atol=absolute,
            equal_nan=True,
        )


def _widest(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64
