"""What CPUs compute in vectors of 16: ends of vectors, chunks and rows."""

from __future__ import annotations

import math

import pytest
import torch
from against_cpu import FLOATS, check
from torch.nn import functional as F

SIZES = (1, 15, 16, 17, 1000, 16385, 40003)
OPS = {
    "gelu": F.gelu,
    "elu": F.elu,
    "log_sigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "silu": F.silu,
    "pow": lambda x: x.abs().pow(2.5),
    "remainder": lambda x: torch.remainder(x, 0.75),
    "floor_divide": lambda x: torch.floor_divide(x, 0.75),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["gelu", "elu", "log_sigmoid"])
def test_sizes(device, name, dtype):
    # OpenCL lets erfc of a double be 16 units off, the CPU's is exact: a few
    # elements may all be.
    least = 15 if dtype == torch.float64 else 0
    for size in SIZES:
        if size >= least:
            check(OPS[name], [torch.randn(size)], device, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bytes_of_bools(device, dtype):
    """A view of bytes as bool may hold others than 0 and 1."""
    bits = torch.randint(0, 4, (5, 40), dtype=torch.uint8) * 85
    x = torch.randn(5, 40).to(dtype)
    for function in (torch.mul, torch.add, lambda x, m: torch.where(m, x, 2)):
        expected = function(x, bits.bool())
        result = function(x.to(device), bits.to(device).view(torch.bool))
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("name", OPS)
def test_ends_of_rows(device, name):
    """Nothing beyond a row's end is read or written."""
    whole = torch.full((7, 53), float("nan"))
    values = torch.randn(7, 35)
    whole[:, 3:38] = values
    there = whole.to(device)
    result = torch.full((7, 53), 8.0, device=device)
    result[:, 3:38].copy_(OPS[name](there[:, 3:38]))
    torch.testing.assert_close(result[:, 3:38].cpu(), OPS[name](values))
    assert (result[:, :3] == 8).all() and (result[:, 38:] == 8).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("rows", "size"), [(1, 49), (5, 15), (1200, 16), (33, 17), (333, 49), (9, 1023)]
)
def test_numbers_and_repeated_rows(device, rows, size, dtype):
    """A vector holds the end of a row and the beginning of the next."""
    whole = (rows, 4, size)
    x, y = (torch.randn(whole).to(dtype) for _ in range(2))
    shapes = [(rows, 4, 1), (rows, 1, 1), (1, 4, 1), (1, 1, 1)]
    shapes += [(rows, 1, size), (1, 4, size), (1, 1, size)]
    for shape in shapes:
        number = torch.randn(shape).to(dtype)
        check(torch.mul, [x, number], device, dtype)
        check(lambda y, x: y - x, [x, number], device, dtype)
        check(torch.lerp, [x, number, y], device, dtype)
        check(lambda x, y: torch.where(y > 0, x, y), [number, y], device, dtype)
        expanded = number.to(device).expand(whole).clone()
        assert torch.equal(expanded.cpu(), number.expand(whole))
        there = x.to(device).mul_(number.to(device))
        torch.testing.assert_close(there.cpu(), x * number)
        chosen = torch.where((number > 0).to(device), x.to(device), 8.0)
        torch.testing.assert_close(chosen.cpu(), torch.where(number > 0, x, 8.0))


def test_numbers_and_repeated_rows_past_the_caches(device):
    x = torch.randn(2999, 57, 49)
    for shape in ((2999, 57, 1), (2999, 1, 49), (49,)):
        other = torch.randn(shape)
        assert torch.equal((x.to(device) * other.to(device)).cpu(), x * other)


def test_results_larger_than_caches(device):
    """Written past them, from 2**23 elements on; ends and starts at any element."""
    whole = torch.randn(2, (1 << 23) + 21)
    there = whole.to(device)
    for start in (0, 5):
        x, y = whole[:, start:]
        a, b = there[:, start:]
        for operation in (
            lambda x, y: x.add(y, alpha=0.5),
            lambda x, y: torch.where(x > y, x, y),
            lambda x, y: torch.ops.aten.threshold_backward(x, y, 0.25),
            lambda x, y: x.masked_fill(y > 0, 3.0),
            lambda x, y: x.clone(),
            lambda x, y: y.half().float(),
        ):
            torch.testing.assert_close(operation(a, b).cpu(), operation(x, y))
        guarded = torch.full((x.numel() + 40,), 8.0, device=device)
        guarded[17:-23].copy_(a)
        assert torch.equal(guarded[17:-23].cpu(), x)
        assert (guarded[:17] == 8).all() and (guarded[-23:] == 8).all()


def test_rows_larger_than_caches(device):
    whole = torch.randn(2999, 2903)
    there = whole.to(device)
    column = torch.randn(2999, 1)
    result = there[:, 3:].sub(column.to(device))
    assert torch.equal(result.cpu(), whole[:, 3:] - column)
    there[:, 3:] = result
    whole[:, 3:] -= column
    assert torch.equal(there.cpu(), whole)


def test_repeated_rows(device):
    exponents = torch.rand(1, 35)
    check(lambda x, e: x.abs().pow(e), [torch.randn(9, 35), exponents], device)
    check(lambda x, e: x.abs().pow(e), [torch.randn(9, 35), exponents.mT[:9]], device)


def test_gelu_of_every_size_of_number(device):
    """Three epsilons of the result, also where it is nearly zero."""
    x = torch.cat([torch.linspace(-12, 12, 100001), torch.tensor([1e-30, -1e-30])])
    exact = x.double() * torch.special.erfc(x.double() / -math.sqrt(2)) / 2
    error = (F.gelu(x.to(device)).cpu().double() - exact).abs() / exact.abs()
    assert error[exact != 0].max() <= 3 * torch.finfo(torch.float32).eps
    ends = F.gelu(torch.tensor([math.inf, 0.0, -30.0, math.nan], device=device))
    assert ends.tolist()[:3] == [math.inf, 0, 0] and ends[3].isnan()


_TAILS = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("name", _TAILS)
def test_activations_in_their_tails(device, name):
    x = torch.cat([torch.linspace(-200, 200, 40_001), torch.tensor([3e38, -3e38])])
    exact = x.double().requires_grad_()
    expected = _TAILS[name](exact)
    (slopes,) = torch.autograd.grad(expected.sum(), exact)
    there = x.to(device).requires_grad_()
    result = _TAILS[name](there)
    (grads,) = torch.autograd.grad(result.sum(), there)
    # 1 - s is rounded in gradients; float64's own gelu ends at erf = -1.
    for mine, wanted, least in (
        (result.detach(), expected.detach(), 1e-14),
        (grads, slopes, 2e-7),
    ):
        finite = wanted.isfinite()
        if mine is grads:  # x * x overflows, on the CPU as well
            finite &= exact.abs() < 1e18
        torch.testing.assert_close(
            mine.cpu().double()[finite], wanted[finite], rtol=2e-5, atol=least
        )


def test_activations_of_infinity(device):
    x = torch.tensor([float("inf"), float("-inf"), float("nan")])
    for name in ("gelu tanh", "silu", "sigmoid"):
        torch.testing.assert_close(
            _TAILS[name](x.to(device)).cpu(), _TAILS[name](x), equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("draw", ["uniform_", "normal_", "exponential_", "bernoulli_"])
def test_draws_do_not_depend_on_the_size(device, draw, dtype):
    def drawn(size: int) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(3)
        guarded = torch.full((size + 2,), 8.0, device=device, dtype=dtype)
        getattr(guarded[1:-1], draw)(generator=generator)
        assert (guarded[0] == 8).item() and (guarded[-1] == 8).item()
        return guarded[1:-1]

    longest = drawn(10007)
    for size in (1, 3, 63, 64, 65, 4095, 4097):
        assert torch.equal(drawn(size), longest[:size])


def test_masks_of_nothing(device):
    x = torch.randn(5003).to(device)
    assert not torch.isnan(x).any() and not torch.logical_not(x + 99).any()
    mask = torch.empty(5003, dtype=torch.bool, device=device).bernoulli_(0.25)
    assert set(mask.view(torch.uint8).unique().tolist()) == {0, 1}
    assert 0.2 < mask.float().mean().item() < 0.3


def test_silu_backward_is_one_kernel(device):
    x = torch.randn(33, device=device, requires_grad=True)
    y = F.silu(x)
    with torch.profiler.profile() as profile:
        y.sum().backward()
    assert "aten::sigmoid" not in {event.name for event in profile.events()}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32])
def test_large_inputs_in_another_order(device, dtype):
    """Copied into the output's order, where a kernel for that takes them."""
    x = torch.randn(301, 307).to(dtype)
    y = torch.randn(307, 301).to(dtype)
    image = torch.randn(2, 33, 35, 37).to(dtype)
    last = image.clone(memory_format=torch.channels_last)
    one_row = torch.randn(37, 1).to(dtype)

    def run(x, y, image, last, one_row):
        updated = x.clone()
        updated += y.t()
        return (
            x + y.t(),
            updated,
            torch.where(y.t() > 0, x, y.t()),
            image - last * 2,
            last - image * 2,
            torch.add(image, last.transpose(2, 3).transpose(2, 3)),
            x[1:, 3:] * y.t()[1:, 3:],
            image + one_row.t(),
            torch.add(x, y.t(), out=torch.empty_like(y).t()),
        )

    inputs = (x, y, image, last, one_row)
    results = run(*(value.to(device) for value in inputs))
    for result, expected in zip(results, run(*inputs), strict=True):
        torch.testing.assert_close(result.cpu(), expected)
        assert result.stride() == expected.stride()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.5])
def test_powers(device, exponent):
    x = torch.tensor([0.0, -0.0, 1.5, -2.0, float("inf"), -float("inf"), float("nan")])
    x = torch.cat([x, torch.randn(41)])
    check(lambda x: x**exponent, [x], device)


_FAR = (1e10, -1e10, 3e38, 2.0**22, 2.0**31, math.inf, -math.inf, math.nan)
_NEAR = (-0.001, 0.5, 1e-40, -1e-38, 3.0, 0.0, -0.0, 30.0, 1.0, -2.0)
_UNARY = [
    "sin",
    "cos",
    "tan",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "lgamma",
    "sigmoid",
    "digamma",
    "floor",
    "ceil",
    "trunc",
    "round",
]
_BINARY = ("pow", "atan2", "hypot", "fmod", "remainder", "xlogy", "logaddexp")


def _beside(values: torch.Tensor) -> torch.Tensor:
    """Each in vectors with those of _FAR, at every place."""
    size = 16 * values.numel()
    result = torch.tensor(_FAR).repeat(size // len(_FAR) + 1)[:size].clone()
    result[:: 16 + 1] = values[: len(result[:: 16 + 1])]
    return torch.cat([result, values.repeat(3), result.roll(5)])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*_UNARY, *_BINARY])
def test_neighbours_do_not_matter(device, name):
    """A lane beside huge, infinite or undefined ones is what it is alone."""
    generator = torch.Generator().manual_seed(1)
    values = torch.cat(
        [
            torch.tensor(_NEAR),
            torch.randn(70, generator=generator) * 8,
            torch.tensor(_FAR),
        ]
    )
    mixed = _beside(values)
    function = getattr(torch, name)
    others = [mixed.flip(0)] if name in _BINARY else []
    together = function(mixed.to(device), *(y.to(device) for y in others)).cpu()
    # Sixteen equal lanes a number.
    spread = [t.to(device).repeat_interleave(16) for t in (mixed, *others)]
    alone = function(*spread)[::16].cpu()
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry(device, name):
    """Of arguments of every size, to the two or so ulp that OpenCL's functions have."""
    bits = torch.randint(-(2**31), 2**31, (1 << 18,)).to(torch.int32)
    turns = torch.arange(1 << 16, dtype=torch.float64) * (math.pi / 2)
    x = torch.cat([bits.view(torch.float32), turns.float(), torch.randn(1 << 16) * 20])
    x = x[torch.randperm(x.numel())]
    result = getattr(torch, name)(x.to(device)).cpu()
    exact = getattr(torch, name)(x.double())
    assert torch.equal(result.isnan(), exact.isnan())
    kept = ~exact.isnan()
    result, exact = result[kept], exact[kept]
    assert torch.equal(result.signbit(), exact.signbit())
    ulp = torch.ldexp(torch.tensor(1.0, dtype=torch.float64), exact.frexp()[1] - 24)
    off = (result - exact).abs() / ulp.clamp(min=2.0**-149)
    assert off.max() < 4, f"{off.max()} at {x[kept][off.argmax()]}"
