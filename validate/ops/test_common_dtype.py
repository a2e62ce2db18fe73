"""Operands of other dtypes beside float16 and bfloat16: converted to that dtype
before anything is computed of them, as TensorIterator does on the CPU."""

from __future__ import annotations

import operator
from functools import partial

import pytest
import torch
from torch.nn import functional as F

HALVES = (torch.float16, torch.bfloat16)


def _where(x, y):
    condition = (y if not isinstance(x, torch.Tensor) or x.dim() == 0 else x) > 1
    return torch.where(condition, x, y)


# What float16 (2049), bfloat16 (257) and no half at all (2**62) hold.
INTEGERS = (2048, 2049, -2049, 257, 256, 2**62, 7, 3, 0)
EXACT = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "where": _where,
    "iadd": lambda x, y: operator.iadd(x.clone(), y),
    "imul": lambda x, y: operator.imul(x.clone(), y),
    "clamp_min": lambda x, y: torch.clamp(x, min=y),
    "clamp_max": lambda x, y: torch.clamp(x, max=y),
    "clamp": lambda x, y: torch.clamp(x, min=-y, max=y),
}
# Of which drivers round the last bit otherwise, or the CPU rounds twice.
ROUNDED = {
    "add_alpha": partial(torch.add, alpha=3),
    "pow": torch.pow,
    "hypot": torch.hypot,
    "atan2": torch.atan2,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
    "mse_loss": partial(F.mse_loss, reduction="none"),
    "smooth_l1_loss": partial(F.smooth_l1_loss, reduction="none"),
    "huber_loss": partial(F.huber_loss, reduction="none"),
}
# Whose other operands are no numbers here, and stand on the right.
_OF_TENSORS = ("clamp_min", "clamp_max", "clamp", *(n for n in ROUNDED if "loss" in n))


def _values(dtype: torch.dtype) -> torch.Tensor:
    numbers = [2048, 2050, 256, 258, float("nan"), float("inf"), 3, -2048, 0.001, 0.1]
    return torch.tensor(numbers, dtype=dtype)


def _others(value: float) -> dict[str, torch.Tensor | float]:
    integer = isinstance(value, int)
    whole = {"tensor": torch.full((10,), value)} if integer else {}
    return {**whole, "0-dim": torch.tensor(value), "number": value}


def _there(value, device):
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _check(function, x, y, device, steps: int, name: str) -> None:
    try:
        expected = function(x, y)
    except (TypeError, RuntimeError) as error:  # a number where none is taken
        with pytest.raises(type(error)):
            function(_there(x, device), _there(y, device))
        return
    result = function(_there(x, device), _there(y, device)).cpu()
    assert result.dtype == expected.dtype
    same = (result == expected) | (result.isnan() & expected.isnan())
    if steps and result.dtype in HALVES:
        bits = [t.view(torch.int16).int() for t in (result, expected)]
        same |= (bits[0] - bits[1]).abs() <= steps
    assert same.all(), f"{name}: {result[~same]}, expected {expected[~same]}"


# Each case compiles five kernels. A loss warns of targets that are broadcast.
@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_binary(device, name, dtype):
    function = (EXACT | ROUNDED)[name]
    takes_numbers = name not in _OF_TENSORS
    for value in (*INTEGERS, 2049.3, 257.3):
        for kind, other in _others(value).items():
            if kind == "number" and not takes_numbers:
                continue
            text = f"{name} of {kind} {value}"
            _check(function, _values(dtype), other, device, name in ROUNDED, text)
            if kind == "number" or name in ("iadd", "imul", *_OF_TENSORS):
                continue
            _check(function, other, _values(dtype), device, name in ROUNDED, text)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", HALVES)
def test_whole_quotients(device, dtype, mode):
    """float64 is the judge: the CPU's vectors round a quotient before its fraction is
    cut, and 2048 / 3 is 684 in bfloat16. As there, a divisor that is a number or has no
    dimension is not rounded to the common dtype."""
    divide = partial(torch.div, rounding_mode=mode)
    x = _values(dtype)
    for value in (*INTEGERS, 2049.3, 257.3):
        rounded = torch.tensor(value).to(dtype).double()
        for kind, other in _others(value).items():
            divisor = rounded if kind == "tensor" else torch.tensor(value).double()
            pairs = [((x, other), divide(x.double(), divisor))]
            if kind != "number":
                pairs.append(((other, x), divide(rounded, x.double())))
            for operands, expected in pairs:
                expected = expected.to(dtype)
                result = divide(*(_there(it, device) for it in operands)).cpu()
                same = (result == expected) | (result.isnan() & expected.isnan())
                assert same.all(), f"{kind} {value}: {result}, expected {expected}"


def test_cases_of_users(device):
    half = torch.tensor([2048], dtype=torch.float16, device=device)
    assert torch.eq(half, torch.tensor([2049], device=device)).item()
    assert not torch.lt(half, 2049).item()
    assert torch.sub(half, torch.tensor([2049], device=device)).item() == 0
    other = torch.tensor([256], dtype=torch.bfloat16, device=device)
    assert torch.eq(other, torch.tensor([257], device=device)).item()
    nan = torch.tensor([float("nan")], dtype=torch.float16, device=device)
    # 2**62 is infinite in float16, and so is the result beside a NaN.
    assert torch.hypot(nan, torch.tensor([2**62], device=device)).isinf().item()


@pytest.mark.parametrize("dtype", HALVES)
def test_other_output(device, dtype):
    """What is computed is a half, whatever takes it."""
    x = _values(dtype)
    for function in (torch.add, torch.mul):
        out = torch.empty(0, device=device)
        function(x.to(device), x.to(device), out=out)
        expected = function(x, x, out=torch.empty(0))
        torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(33, 5, 40), (1, 5, 40), (33, 1, 40), (1, 1, 1)])
@pytest.mark.parametrize("dtype", HALVES)
def test_layouts(device, dtype, shape):
    integers = torch.randint(-(1 << 12), 1 << 12, shape)
    x = (torch.randn(33, 5, 40) * 3000).to(dtype)
    for y in (integers, integers.transpose(1, 2).contiguous().transpose(1, 2)):
        for function in (torch.sub, torch.eq):
            expected = function(x, y)
            assert torch.equal(function(x.to(device), y.to(device)).cpu(), expected)
            assert torch.equal(
                function(x.to(device), y.int().to(device)).cpu(), expected
            )


@pytest.mark.parametrize("dtype", HALVES)
def test_foreach(device, dtype):
    values = [torch.tensor([2048.0, 256.0]).to(dtype) for _ in range(3)]
    for number in (2049, 257):
        for name in ("add", "sub", "mul", "div", "maximum", "clamp_min"):
            function = getattr(torch, f"_foreach_{name}")
            result = function([v.to(device) for v in values], number)
            for found, expected in zip(result, function(values, number), strict=True):
                assert torch.equal(found.cpu(), expected), name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_that_join_a_product(device, dtype):
    x = torch.full((3, 1), 256.0).to(dtype)
    ones = torch.ones(1, 5).to(dtype)
    for number in (257, 2049, torch.tensor(257), torch.tensor(2049)):
        for function in (torch.sub, torch.eq, torch.maximum):
            if function is torch.maximum and not torch.is_tensor(number):
                continue
            result = function(x.to(device) @ ones.to(device), number)
            assert torch.equal(result.cpu(), function(x @ ones, number)), number


def test_numbers_that_a_dtype_does_not_hold(device):
    for dtype, value in ((torch.float16, 2**62), (torch.int8, 300)):
        x = torch.zeros(3, dtype=dtype, device=device)
        for call in (
            lambda: x.fill_(value),  # noqa: B023
            lambda: x.masked_fill(x == 0, value),  # noqa: B023
        ):
            with pytest.raises(RuntimeError, match="without overflow"):
                call()
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.zeros(3, dtype=torch.float16, device=device).pow(2**62)
    # One element of a half type takes it as infinity, as on the CPU.
    one = torch.zeros(1, dtype=torch.float16, device=device)
    assert one.fill_(2**62).isinf().item()
    assert torch.scalar_tensor(1e30, dtype=torch.bfloat16, device=device).item() > 0


def test_complex_numbers_of_the_cpu(device):
    condition = torch.tensor([True, False])
    moved = condition.to(device)
    result = torch.where(moved, torch.tensor(1 + 2j), 2.0)
    assert torch.equal(result.cpu(), torch.where(condition, torch.tensor(1 + 2j), 2.0))
