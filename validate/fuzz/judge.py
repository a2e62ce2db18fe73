"""Compares what a device did with what the CPU did."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from fuzz import known
from fuzz.execute import CPU, Result, run
from fuzz.program import Program
from tolerance import (
    MULTIPLE,
    assert_same_strides,
    compare,
    relative_distance,
    same_non_finite,
    to_host,
)
from torch._subclasses.fake_tensor import FakeTensorMode

_NEARBY_RUNS = 6
_MANY_NEARBY_RUNS = 40  # where each element has to be met
# In units of the square root of epsilon: a result that cancellation leaves less of
# shows nothing.
_MOST_ROUNDING = 4
# Between two doubles, of which the CPU's is the reference, whatever its own error.
_ROUNDINGS_OF_DOUBLE = 32


@dataclass
class Verdict:
    """``status`` is pass, wrong or skip; ``message`` says what differs, or why the
    CPU cannot tell."""

    status: str
    message: str = ""


def judge(program: Program, device: torch.device) -> Verdict:
    expected = run(program, CPU)
    result = run(program, device)
    if expected.error is not None or result.error is not None:
        return _judge_errors(program, result, expected)
    if result.tensors.keys() != expected.tensors.keys():
        names = result.tensors.keys() ^ expected.tensors.keys()
        return Verdict("wrong", f"one side only has {sorted(names)}")
    judged, strides = _Values(program, expected), _Strides(program, expected, device)
    for name, value in result.tensors.items():
        reason = _differs_in_kind(value, expected.tensors[name], device)
        if not reason:
            reason = strides.differs(name, value)
        if not reason and program.judged == "values":
            reason = judged.differs(name, value)
        if reason:
            known_reason = known.value(program, name, reason, value.shape)
            if known_reason:
                return Verdict("skip", known_reason)
            return Verdict("wrong", f"{name}: {reason}")
    return Verdict("pass")


def _differs_in_kind(
    value: torch.Tensor, expected: torch.Tensor, device: torch.device
) -> str:
    if value.device.type not in (device.type, expected.device.type):
        return f"device {value.device}"
    if value.shape != expected.shape:
        return f"shape {list(value.shape)}, expected {list(expected.shape)}"
    if value.dtype != expected.dtype:
        return f"dtype {value.dtype}, expected {expected.dtype}"
    if value.layout != expected.layout:
        return f"layout {value.layout}, expected {expected.layout}"
    return ""


def _differs_in_strides(value: torch.Tensor, expected: torch.Tensor) -> str:
    if value.layout == torch.strided:
        try:
            assert_same_strides(value, expected)
        except AssertionError as error:
            return str(error)
    return ""


class _Strides:
    """The CPU's; of what known.own_strides names, FakeTensorMode's will do as well."""

    def __init__(
        self, program: Program, expected: Result, device: torch.device
    ) -> None:
        self._program, self._device = program, device
        self._expected = expected.tensors
        self._said: dict | None = None

    def differs(self, name: str, value: torch.Tensor) -> str:
        if known.free_strides(self._program):
            return ""
        reason = _differs_in_strides(value, self._expected[name])
        if not reason or not known.own_strides(self._program):
            return reason
        said = self._fake().get(name)
        # Where the fake kernels cannot know, or take another way, nothing is said.
        if said is None or said.shape != value.shape:
            return ""
        reason = _differs_in_strides(value, said)
        return f"{reason}, as FakeTensorMode says" if reason else ""

    def _fake(self) -> dict:
        if self._said is None:
            with FakeTensorMode(allow_non_fake_inputs=True):
                self._said = run(self._program, self._device).tensors
        return self._said


class _Values:
    """The CPU's values, its float64 ones and those for inputs a rounding away."""

    def __init__(self, program: Program, expected: Result) -> None:
        self._program, self._expected = program, expected.tensors
        self._reference: dict | None = None
        self._perturbed: list[dict] = []
        self._noise = torch.Generator().manual_seed(0)

    def differs(self, name: str, value: torch.Tensor) -> str:
        mine, cpu = to_host(value), to_host(self._expected[name])
        if mine.layout != torch.strided:
            mine, cpu = mine.to_dense(), cpu.to_dense()
        shown = _parts if cpu.dtype == torch.complex32 else _whole_nans
        mine, cpu = shown(mine), shown(cpu)
        if torch.equal(mine, cpu) or _same_bits(mine, cpu):
            return ""
        if not (cpu.is_floating_point() or cpu.is_complex()):
            off = known.integers_apart(self._program)
            if off and bool(((mine.long() - cpu.long()).abs() <= off).all()):
                return ""
            reason = compare(mine, cpu, cpu).reason
            if reason and self._is_nearby(name, mine, cpu):
                raise ShowsNothing(f"{name}: {reason}")
            return reason
        reference = self._in_double().get(name)
        if reference is not None:
            reference = shown(reference)
        if reference is None or reference.shape != cpu.shape:
            # A program whose float64 run goes another way, as view(dtype) does.
            reference = cpu
        mine = _as_the_cpus_where_it_overflows(mine, reference, cpu)
        reason = _too_far(mine, reference, cpu)
        if not reason:
            return ""
        nearby = self._nearby(name, shown)
        if any(not _too_far(mine, reference, other) for other in nearby):
            return ""
        distances = [relative_distance(other, reference) for other in nearby]
        most = _MOST_ROUNDING * torch.finfo(cpu.dtype).eps ** 0.5
        # From zeros any distance is infinite.
        if reference.any() and any(not distance < most for distance in distances):
            raise ShowsNothing(f"{name}: {reason}")
        if "differ in NaN" in reason:
            # Of a cancelled part the sign decides which.
            agrees = same_non_finite(_parts(mine), _parts(cpu))
            for other in self._nearby(name, shown, _MANY_NEARBY_RUNS):
                if other.shape == mine.shape:
                    agrees |= same_non_finite(_parts(mine), _parts(other))
            if bool(agrees.all()):
                raise ShowsNothing(f"{name}: {reason}")
        return reason

    def _is_nearby(self, name: str, mine: torch.Tensor, cpu: torch.Tensor) -> bool:
        """Whether each integer lies among those of runs a rounding away. Graphs alone:
        elsewhere a rounding would hide which of equal elements was taken."""
        if self._program.subject != "torch.compile":
            return False
        least, most = cpu.long(), cpu.long()
        for other in self._nearby(name, _whole_nans, _MANY_NEARBY_RUNS):
            if other.shape == mine.shape:
                least = least.minimum(other.long())
                most = most.maximum(other.long())
        return bool(((mine.long() >= least) & (mine.long() <= most)).all())

    def _in_double(self) -> dict:
        if self._reference is None:
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)  # of functions of integers
            try:
                self._reference = run(self._program, CPU, double=True).tensors
            finally:
                torch.set_default_dtype(before)
        return self._reference

    def _nearby(self, name: str, shown: Callable, runs: int = _NEARBY_RUNS) -> list:
        """What the CPU has for it in runs a rounding away, as ``shown`` makes it."""
        while len(self._perturbed) < runs:
            found = run(self._program, CPU, noise=self._noise)
            self._perturbed.append(found.tensors)
        with_it = [found for found in self._perturbed[:runs] if name in found]
        return [shown(to_host(found[name])) for found in with_it]


class ShowsNothing(Exception):
    """The CPU's own result for inputs a rounding away is another one."""


def _whole_nans(values: torch.Tensor) -> torch.Tensor:
    """A complex number is NaN when a part is: the CPU, which adds b as b times 1 + 0i,
    loses the other one."""
    if not values.is_complex():
        return values
    return values.masked_fill(values.isnan(), complex("nan+nanj"))


def _parts(values: torch.Tensor) -> torch.Tensor:
    """Real and imaginary ones: torch's CPU compares no complex32."""
    return torch.view_as_real(values) if values.is_complex() else values


def _same_bits(mine: torch.Tensor, cpu: torch.Tensor) -> bool:
    if not (cpu.is_floating_point() or cpu.is_complex()):
        return False
    return torch.equal(mine.isnan(), cpu.isnan()) and torch.equal(
        mine.nan_to_num(), cpu.nan_to_num()
    )


def _is_near_double(
    mine: torch.Tensor, reference: torch.Tensor, cpu: torch.Tensor
) -> bool:
    """Of a double the reference is the CPU's result, whose own error is unknown."""
    if cpu.dtype not in (torch.float64, torch.complex128):
        return False
    same = torch.equal(mine.isfinite(), reference.isfinite())
    eps = torch.finfo(cpu.dtype).eps
    return same and relative_distance(mine, reference) <= _ROUNDINGS_OF_DOUBLE * eps


def _as_the_cpus_where_it_overflows(
    mine: torch.Tensor, reference: torch.Tensor, cpu: torch.Tensor
) -> torch.Tensor:
    """Numbers on the way to a float16 overflow, and whether their infinities cancel to
    NaN is a matter of their order. Where the CPU's do, float64's result rounded is
    right, and so is another overflow where that is finite."""
    if cpu.dtype != torch.float16:
        return mine
    overflows = ~cpu.isfinite() & reference.isfinite()
    rounded = reference.to(cpu.dtype)
    as_good = (mine == rounded) | (rounded.isfinite() & ~mine.isfinite())
    return torch.where(overflows & as_good, cpu, mine)


def _too_far(mine: torch.Tensor, reference: torch.Tensor, cpu: torch.Tensor) -> str:
    comparison = compare(mine, reference, cpu)
    if not comparison.passed and not _is_near_double(mine, reference, cpu):
        return str(comparison)
    # A relative L2 distance does not see a small wrong element among large ones.
    finite = reference.isfinite() & cpu.isfinite() & mine.isfinite()
    wide = reference.dtype
    scale = reference[finite].abs()
    if not scale.numel():
        return ""
    own = (cpu.to(wide) - reference)[finite].abs()
    error = (mine.to(wide) - reference)[finite].abs()
    eps = torch.finfo(cpu.dtype).eps
    tiny = torch.finfo(cpu.dtype).smallest_normal
    usual, roundings = scale.median(), 8
    if cpu.dtype == wide:  # the reference is the CPU's result, as if it were exact
        usual, roundings = scale.square().mean().sqrt(), _ROUNDINGS_OF_DOUBLE
    allowed = MULTIPLE * own.max() + roundings * eps * (scale + usual) + tiny
    off = error > allowed
    if bool(off.any()):
        worst = int((error - allowed).argmax())
        return (
            f"{int(off.sum())} elements too far, the worst {mine[finite][worst]}, "
            f"float64 {reference[finite][worst]}"
        )
    return ""


_DEVICE = re.compile(r"\b(opencl:\d+|opencl|cpu|CPU|PrivateUse1)\b")
_TYPE = re.compile(r"\b(opencl|torch\.|CPU)(?=[A-Z]\w*T(ype|ensor)\b)")
# The CPU names its kernels so, the device its op.
_KERNEL = re.compile(r'"[\w.]+" not implemented')
# Kernels' errors name their op.
_REPORTED = re.compile(r"^\w+\(\): (?=ZeroDivisionError|offsets\[)")
_KIND = re.compile(r"\b([A-Z]\w*?)(?:Type|Tensor)\b")


def _text(error: Exception) -> str:
    text = str(error).split("\n\nException raised from")[0].strip()
    text = _REPORTED.sub("", _KERNEL.sub("not implemented", text))
    text = _KIND.sub(r"\1", _TYPE.sub("", _DEVICE.sub("<device>", text)))
    return text.replace(", device='<device>'", "")


def _judge_errors(program: Program, result: Result, expected: Result) -> Verdict:
    reason = known.error(program, result.error, expected.error)
    if reason:
        return Verdict("skip", reason)
    if expected.error is None:
        return Verdict("wrong", f"{_at(program, result)}, the CPU has no error")
    if result.error is None:
        return Verdict("wrong", f"no error, the CPU has {_at(program, expected)}")
    same_type = type(result.error) is type(expected.error)
    if not same_type or _text(result.error) != _text(expected.error):
        wanted = _at(program, expected)
        return Verdict("wrong", f"{_at(program, result)}, the CPU has {wanted}")
    return Verdict("pass", f"raises {type(result.error).__name__}")


def _at(program: Program, result: Result) -> str:
    where = "backward"
    if result.step < len(program.steps):
        where = f"step {result.step}"
    return f"{type(result.error).__name__} at {where}: {_text(result.error)[:600]}"
