"""Complex numbers: computed on the device, as the CPU does in complex128."""

from __future__ import annotations

import math

import pytest
import torch
from against_cpu import check

_DTYPES = (torch.float32, torch.float64)

pytestmark = pytest.mark.usefixtures("without_fallbacks")


def _complex(x):
    return torch.view_as_complex(x)


def _real(z):
    return torch.view_as_real(z.resolve_conj()) if z.is_complex() else z


def _check(function, inputs, device, dtype=torch.float32, **options):
    """`function` of complex numbers; those of real inputs end with two parts."""

    def of_parts(*parts):
        result = function(*(_complex(x) for x in parts))
        results = result if isinstance(result, tuple) else (result,)
        return tuple(_real(z) for z in results)

    check(of_parts, inputs, device, dtype, **options)


_UNARY = (
    *("abs", "neg", "reciprocal", "sgn", "sqrt", "rsqrt", "exp", "exp2", "expm1"),
    *("log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "angle", "conj_physical"),
    *("sigmoid", "sinc", "square"),
)
_NO_GRADIENT = ("exp2",)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _UNARY)
def test_functions_of_one(device, name, dtype):
    function = getattr(torch, name)
    backward = name not in _NO_GRADIENT
    _check(function, [torch.randn(5, 7, 2)], device, dtype, backward=backward)
    rows = torch.randn(7, 5, 2).transpose(0, 1)
    _check(function, [rows], device, dtype, backward=False)
    width = 2 if name == "sinc" else 20  # whose sine would overflow
    _check(function, [torch.randn(33, 2) * width], device, dtype, backward=False)


_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, float("inf"), -float("inf"))
_AT_EDGES = (
    *("abs", "neg", "exp", "log", "sqrt", "sinh", "cosh", "tanh", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh", "angle", "sgn"),
)


@pytest.mark.parametrize("name", _AT_EDGES)
def test_values_at_edges(device, name):
    """Infinities and zeros; a sign of zero counts where C99 says which."""
    edges = torch.tensor(_EDGES, dtype=torch.float64)
    parts = torch.cartesian_prod(edges, edges)
    z = _complex(parts)
    if name == "sgn":
        z = z[z.isfinite()]
    if name in ("sin", "sinh"):  # a sign of infinity that C99 leaves open
        z = z[~(z.real.isinf() & z.imag.isinf())]
    wide = getattr(torch, name)(z)
    result = getattr(torch, name)(z.to(device)).cpu()
    torch.testing.assert_close(_real(result), _real(wide), equal_nan=True)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", ["exp", "sinh", "cosh", "sin", "cos"])
def test_parts_below_an_overflow(device, name, dtype):
    """exp(x) is infinite, its products with a sine and a cosine are not."""
    limit = math.log(torch.finfo(dtype).max)
    real = (torch.linspace(-1.9, 4.1, 13, dtype=torch.float64) + limit).repeat(2)
    real[13:] *= -1
    angles = torch.linspace(-3, 3, 17, dtype=torch.float64)
    z = _complex(torch.cartesian_prod(real, angles).to(dtype))
    z = z * 1j if name in ("sin", "cos") else z
    expected = getattr(torch, name)(z)
    finite = _real(expected).isfinite()
    assert (finite[:, 0] != finite[:, 1]).any()
    result = getattr(torch, name)(z.to(device)).cpu()
    torch.testing.assert_close(_real(result), _real(expected), atol=0, rtol=3e-5)


def _least(dtype):
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


_INVERSE = ("asin", "acos", "atan", "asinh", "acosh", "atanh", "log")


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _INVERSE)
def test_inverse_functions_of_large_numbers(device, name, dtype):
    """Their parts are no greater than a logarithm, the size of z may be infinite."""
    largest = torch.finfo(dtype).max
    sizes = [largest, largest / 3, largest**0.5, largest**0.25, 1e10]
    sizes += [-size for size in sizes] + [0.0, -0.0, 2.0]
    sizes = torch.tensor(sizes, dtype=dtype)
    z = _complex(torch.cartesian_prod(sizes, sizes))
    z = z[z.abs() > 1e9]
    expected = getattr(torch, name)(z)
    result = getattr(torch, name)(z.to(device)).cpu()
    # The CPU subtracts an arcsine from pi / 2.
    atol = torch.finfo(dtype).eps if name == "acos" else 4 * _least(dtype)
    torch.testing.assert_close(_real(result), _real(expected), atol=atol, rtol=2e-6)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_roots_of_the_smallest_numbers(device, dtype):
    parts = torch.tensor([0.0, -0.0, 1, 2, 3, -1, 100, 2.0**30], dtype=dtype)
    parts *= _least(dtype)
    z = _complex(torch.cartesian_prod(parts, parts))
    expected = z.sqrt()
    torch.testing.assert_close(
        _real(z.to(device).sqrt().cpu()), _real(expected), atol=0, rtol=2e-6
    )


_BINARY = {
    "add": lambda x, y: x + y,
    "add with alpha": lambda x, y: torch.add(x, y, alpha=2 - 1j),
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "number first": lambda x, y: (2 - x) * (1j / y),
    "conjugate": lambda x, y: x.conj() * y,
    "real number": lambda x, y: x * 3 + y / 2,
    "real tensor": lambda x, y: x * y.real + y.imag,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=2j),
    "where": lambda x, y: torch.where(x.real > 0, x, y),
    "masked_fill": lambda x, y: x.masked_fill(y.imag > 0, 2 - 1j) * y,
    "powers": lambda x, y: (x**2, y**3, x**-1, y**0.5, x ** (1 + 1j)),
    "complex": lambda x, y: torch.complex(x.real, y.imag),
    "polar": lambda x, y: torch.polar(x.abs(), y.real),
    "real and imag": lambda x, y: (x.real, y.imag, x.conj().imag),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _BINARY)
def test_functions_of_two(device, name, dtype):
    function = _BINARY[name]
    _check(function, [torch.randn(5, 7, 2), torch.randn(5, 7, 2)], device, dtype)
    _check(function, [torch.randn(5, 1, 2), torch.randn(7, 2)], device, dtype)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_where_of_numbers(device, dtype):
    x = torch.randn(7).to(dtype)
    for call in (
        lambda c, x: torch.where(c, x, 1j),
        lambda c, x: torch.where(c, 2 - 1j, x),
        lambda c, x: torch.where(c, 1j, 2.0),
        lambda c, x: torch.where(c, x, x.to(torch.complex128)),
    ):
        expected = call(x.real > 0, x)
        result = call((x.real > 0).to(device), x.to(device))
        assert result.dtype == expected.dtype
        assert torch.equal(result.cpu(), expected)


_REDUCTIONS = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(1),
    "sum of columns": lambda x: x.sum((0, 2), keepdim=True),
    "mean": lambda x: x.mean(0),
    "prod": lambda x: x.prod(1),
    "prod of rows": lambda x: x.prod(-1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "norm": lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, dim=1)),
    "var": lambda x: x.var(1),
    "trace": lambda x: x[0].trace(),
}


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _REDUCTIONS)
def test_reductions(device, name, dtype):
    _check(_REDUCTIONS[name], [torch.randn(3, 5, 7, 2)], device, dtype)
    # Rows and columns of full vectors.
    _check(_REDUCTIONS[name], [torch.randn(2, 19, 37, 2)], device, dtype)
    x = torch.randn(7, 5, 3, 2).permute(2, 1, 0, 3)
    _check(_REDUCTIONS[name], [x], device, dtype)


_PRODUCTS = {
    "mm": ((3, 5), (5, 4), lambda x, y: x @ y),
    "mm of conjugates": ((3, 5), (4, 5), lambda x, y: x @ y.mH),
    "mm of a conjugate on the left": ((5, 3), (5, 4), lambda x, y: x.mH @ y),
    "bmm": ((2, 3, 5), (2, 5, 4), lambda x, y: x @ y),
    "nothing": ((3, 0), (0, 4), lambda x, y: x @ y),
    "mv": ((3, 5), (5,), lambda x, y: x @ y),
    "dot": ((5,), (5,), lambda x, y: (x @ y, torch.vdot(x, y))),
    "einsum": ((2, 3, 5), (3, 5, 4), lambda x, y: torch.einsum("bix,ixo->box", x, y)),
    "linear": ((6, 5), (4, 5), lambda x, y: torch.nn.functional.linear(x, y, y[:, 0])),
    "addmm": (
        (3, 5),
        (5, 3),
        lambda x, y: torch.addmm(x[:, :3], x, y, beta=2j, alpha=1 - 1j),
    ),
    "baddbmm": (
        (2, 3, 3),
        (2, 3, 3),
        lambda x, y: torch.baddbmm(y, x, y, beta=0.5),
    ),
    "outer": ((3,), (4,), lambda x, y: torch.outer(x, y)),
    "conv1d": ((2, 4, 9), (3, 4, 3), torch.nn.functional.conv1d),
    "conv2d": (
        (2, 4, 7, 6),
        (6, 2, 3, 3),
        lambda x, y: torch.nn.functional.conv2d(x, y, padding=1, groups=2),
    ),
    "conv_transpose1d": ((2, 4, 9), (4, 3, 3), torch.nn.functional.conv_transpose1d),
}


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _PRODUCTS)
def test_products(device, name, dtype):
    left, right, function = _PRODUCTS[name]
    _check(function, [torch.randn(*left, 2), torch.randn(*right, 2)], device, dtype)


_MOVES = {
    "cat": lambda x, i: torch.cat([x, x.conj(), x.real]),
    "index": lambda x, i: x[i],
    "index of two": lambda x, i: x[i, i],
    "index_select": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(1, i.expand(4, 3)),
    "index_put": lambda x, i: x.clone().index_put_((i,), x[:3] * 2),
    "accumulate": lambda x, i: x.index_put((i * 0,), x[:3], accumulate=True),
    "scatter": lambda x, i: x.scatter(1, i.expand(4, 3), x[:, :3]),
    "scatter_add": lambda x, i: x.scatter_add(1, (i * 0).expand(4, 3), x[:, :3]),
    "scatter_reduce": lambda x, i: x.detach().scatter_reduce(
        1, (i * 0).expand(4, 3), x.detach()[:, :3], "prod"
    ),
    "index_add": lambda x, i: x.index_add(0, i, x[:3], alpha=2),
    "index_fill": lambda x, i: x.index_fill(0, i, 2),
    "mask": lambda x, i: x[x.real > 0],
    "tril": lambda x, i: (x.tril(), x.triu(1), x.t().tril()),
    "flip": lambda x, i: (x.flip(0), x.flip(0, 1), x.roll(1, 0)),
    "copies": lambda x, i: (x.t().contiguous(), x[:, ::2].clone(), x.expand(2, 4, 5)),
    "pad": lambda x, i: torch.nn.functional.pad(x, (1, 2)),
    "stack": lambda x, i: torch.stack([x, x], 1).flatten(0, 1),
}


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", _MOVES)
def test_moves(device, name, dtype):
    i = torch.tensor([2, 0, 3])
    _check(
        lambda x: _MOVES[name](x, i.to(x.device)), [torch.randn(4, 5, 2)], device, dtype
    )


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conversions_and_conditions(device, dtype):
    z = torch.randn(6, 5, dtype=dtype)
    z[0] = 0
    z[1] = 2j
    on = z.to(device)
    others = (torch.complex64, torch.complex128, torch.float32, torch.float64)
    for other in (*others, torch.int32, torch.float16, torch.bool):
        assert torch.equal(on.to(other).cpu(), z.to(other)), other
        assert torch.equal(on.t().to(other).cpu(), z.t().to(other)), other
    for source in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
        x = (torch.randn(4, 3) * 2).to(source)
        assert torch.equal(x.to(device).to(dtype).cpu(), x.to(dtype)), source
    for function in (
        lambda x: x == x.t().reshape(x.shape),
        lambda x: x != 0,
        lambda x: x.logical_not(),
        lambda x: x.logical_and(x.conj()),
        lambda x: x.nonzero(),
        lambda x: x.any(1),
        lambda x: x.all(1),
        lambda x: x.isnan(),
        lambda x: x.isfinite(),
        lambda x: x.isreal(),
    ):
        assert torch.equal(function(on).cpu(), function(z))
    assert torch.equal(on, on.clone()) and torch.allclose(on, on)
    assert torch.equal(
        torch.eye(3, dtype=dtype, device=device).cpu(), torch.eye(3) + 0j
    )
    out = torch.empty(6, 5, dtype=dtype, device=device)
    torch.add(on.real, on.imag, out=out)
    assert torch.equal(out.cpu(), z.real + z.imag + 0j)


@pytest.mark.parametrize("operation", [torch.lt, torch.maximum, torch.floor_divide])
def test_errors_are_torchs(device, operation):
    z = torch.randn(3, dtype=torch.complex64)
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        operation(z, z)
    with pytest.raises(expected.type):
        operation(z.to(device), z.to(device))


def test_zero_to_the_power_of_zero(device):
    """NaN of two tensors, as on the CPU and on CUDA; 1 with a number."""
    zero = torch.zeros(3, dtype=torch.complex64, device=device)
    assert torch.pow(zero, zero).isnan().all()
    assert torch.equal((zero**0).cpu(), torch.ones(3, dtype=torch.complex64))
    assert torch.equal(torch.pow(zero, zero + 2).cpu(), zero.cpu())
