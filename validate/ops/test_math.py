"""The device math (backend/common/*.clh) against mpmath, and its edges.

torch's own float64 is no reference for all of these: its Bessel functions and
incomplete gamma functions are wrong from the seventh to tenth digit on.
"""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

_nan, _inf = math.nan, math.inf

# op -> (reference of Python floats, points)
_i, _j, _k, _y = mpmath.besseli, mpmath.besselj, mpmath.besselk, mpmath.bessely


def _points(low: float, high: float, count: int = 30) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    values = torch.rand(count, generator=generator, dtype=torch.float64)
    return (low + (high - low) * values).float().tolist()


def _log_points(low: float, high: float) -> list[float]:
    return [math.exp(p) for p in _points(math.log(low), math.log(high))]


def _scaled(function, sign: int):
    return lambda x: mpmath.exp(sign * abs(x)) * function(x)


def _log_normal_cdf(x):
    return mpmath.log(mpmath.ncdf(x))


@mpmath.workdps(60)
def _erfcx(x):
    return mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x)


@mpmath.workdps(60)
def _normal_quantile(p):
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


_SMALL = _points(-8.5, 8.5) + _points(-60, 60)
_POSITIVE = _log_points(1e-3, 8.5) + _points(8, 60)
_UNARY = {
    "special.erfcx": (_erfcx, _points(-5, 5) + _log_points(1, 1e9)),
    "special.erfinv": (mpmath.erfinv, [*_points(-1, 1), 1e-06, 0.99999, -0.999999]),
    "special.ndtri": (_normal_quantile, _points(0, 1) + _log_points(1e-30, 0.1)),
    "special.log_ndtr": (_log_normal_cdf, _SMALL),
    "special.digamma": (mpmath.digamma, _points(-8, 12) + _log_points(1, 1e20)),
    "special.gammaln": (lambda x: mpmath.log(abs(mpmath.gamma(x))), _points(-8, 40)),
    "special.i0": (lambda x: _i(0, x), _SMALL),
    "special.i1": (lambda x: _i(1, x), _SMALL),
    "special.i0e": (_scaled(lambda x: _i(0, x), -1), _SMALL),
    "special.i1e": (_scaled(lambda x: _i(1, x), -1), _SMALL),
    "special.modified_bessel_k0": (lambda x: _k(0, x), _POSITIVE),
    "special.modified_bessel_k1": (lambda x: _k(1, x), _POSITIVE),
    "special.scaled_modified_bessel_k0": (_scaled(lambda x: _k(0, x), 1), _POSITIVE),
    "special.scaled_modified_bessel_k1": (_scaled(lambda x: _k(1, x), 1), _POSITIVE),
    "special.bessel_j0": (lambda x: _j(0, x), _SMALL),
    "special.bessel_j1": (lambda x: _j(1, x), _SMALL),
    "special.bessel_y0": (lambda x: _y(0, x), _POSITIVE),
    "special.bessel_y1": (lambda x: _y(1, x), _POSITIVE),
    "special.airy_ai": (mpmath.airyai, _points(-30, 12)),
    "special.spherical_bessel_j0": (lambda x: mpmath.sinc(x), _SMALL),
    "special.sinc": (lambda x: mpmath.sincpi(x), _SMALL),
}


def _gamma_lower(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


def _gamma_upper(a, x):
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


_AROUND = _log_points(0.05, 300)
_BINARY = {
    "special.zeta": (mpmath.zeta, _points(1.1, 20), _points(0.1, 30)),
    "special.gammainc": (_gamma_lower, _AROUND, [x * 1.1 for x in _AROUND]),
    "special.gammaincc": (_gamma_upper, _AROUND, [x * 0.9 for x in _AROUND]),
    "hypot": (mpmath.hypot, _points(-3, 3), _points(-3e19, 3e19)),
}


def _function(name: str):
    module = torch
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _dtypes(device: torch.device) -> list[torch.dtype]:
    if device.type == "opencl":
        has_float64 = torch.opencl.get_device_properties(device).has_fp64
        return [torch.float32, torch.float64] if has_float64 else [torch.float32]
    return [torch.float32, torch.float64]


def _check(name, device, reference, *columns) -> None:
    """Relative to a reference of the rounded arguments, or absolute below 1:
    these functions have zeros.
    """
    for dtype in _dtypes(device):
        arguments = [torch.tensor(column, dtype=dtype) for column in columns]
        result = _function(name)(*(a.to(device) for a in arguments)).cpu()
        eps = torch.finfo(dtype).eps
        rows = zip(*(a.tolist() for a in arguments), result.tolist(), strict=True)
        for *point, value in rows:
            with mpmath.workdps(20):
                exact = float(reference(*point))
                # A rounding of the argument, which the result may magnify.
                nearby = float(reference(point[0] * (1 + eps), *point[1:]))
            allowed = 20 * eps * max(1.0, abs(exact)) + 4 * abs(nearby - exact)
            assert abs(value - exact) <= allowed, f"{name}{point}: {value}, is {exact}"


@pytest.mark.parametrize("name", _UNARY)
def test_unary_accuracy(device, name):
    reference, points = _UNARY[name]
    _check(name, device, reference, points)


@pytest.mark.parametrize("name", _BINARY)
def test_binary_accuracy(device, name):
    _check(name, device, *_BINARY[name])


def test_upper_gamma_of_small_orders(device):
    """Not as 1 less what is almost 1."""
    orders = (1e-30, 1e-12, 1e-6, 1e-3, 0.03, 0.3, 0.57, 1.0, 1.2)
    places = (1e-6, 0.01, 0.3, 0.5, 0.7, 1.0, 1.09, 1.11, 4.0)
    for dtype in _dtypes(device):
        a, x = torch.cartesian_prod(
            *(torch.tensor(v, dtype=dtype) for v in (orders, places))
        ).T
        result = torch.special.gammaincc(a.to(device), x.to(device)).cpu()
        pairs = zip(a.tolist(), x.tolist(), strict=True)
        with mpmath.workdps(60):
            exact = torch.tensor([float(_gamma_upper(*p)) for p in pairs], dtype=dtype)
        torch.testing.assert_close(
            result, exact, rtol=30 * torch.finfo(dtype).eps, atol=0
        )


def test_cosines_near_one_are_exact(device):
    """Else the gradient of sinc, which cancels there, is what their error leaves."""
    x = torch.logspace(-9, -1.7, 300)
    exact = x.double().cos()
    assert (x.to(device).cos().cpu() - exact).abs().max() <= 1.2 * 2**-25
    given = x.to(device).requires_grad_()
    torch.sinc(given).sum().backward()
    assert given.grad[given < 1e-5].abs().max() < 1e-4


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_k_about_two(device, order):
    points = torch.linspace(1.8, 2.2, 101)
    function = getattr(torch.special, f"modified_bessel_k{order}")
    exact = torch.tensor([float(_k(order, p)) for p in points.tolist()])
    result = function(points.to(device)).cpu()
    torch.testing.assert_close(result, exact, rtol=8e-7, atol=0)


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_polygamma_accuracy(device, order):
    points = torch.tensor(_log_points(0.1, 30))
    result = torch.polygamma(order, points.to(device)).cpu()
    exact = [float(mpmath.polygamma(order, p)) for p in points.tolist()]
    torch.testing.assert_close(result, torch.tensor(exact), rtol=4e-6, atol=0)


_EDGES = torch.tensor(
    [_nan, _inf, -_inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 7.0, 1e30, -1e-30]
)
_SIGNED_ZEROS = {"remainder", "fmod", "floor_divide", "atan2", "copysign"}
_PAIRS = torch.cartesian_prod(_EDGES, _EDGES).unbind(1)


@pytest.mark.parametrize(
    "name",
    [
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "remainder",
        "fmod",
        "floor_divide",
        "atan2",
        "copysign",
        "heaviside",
        "logaddexp",
        "logaddexp2",
        "xlogy",
        "special.xlog1py",
        "nextafter",
        "lt",
        "ge",
        "eq",
        "ne",
        "hypot",
        "logical_xor",
        "pow",
    ],
)
def test_binary_edges(device, name):
    function = _function(name)
    expected = function(*_PAIRS)
    result = function(*(p.to(device) for p in _PAIRS)).cpu()
    torch.testing.assert_close(result, expected, equal_nan=True)
    if name in _SIGNED_ZEROS:
        defined = ~expected.isnan()
        signs = [t.signbit()[defined] for t in (result, expected)]
        assert torch.equal(*signs), "signs of zeros"


@pytest.mark.parametrize(
    "name",
    [
        "sign",
        "sgn",
        "signbit",
        "round",
        "trunc",
        "frac",
        "floor",
        "isposinf",
        "isneginf",
        "angle",
        "abs",
        "neg",
        "sqrt",
        "rsqrt",
        "log",
        "exp",
        "relu",
        "nn.functional.softshrink",
        "nn.functional.hardshrink",
        "nn.functional.elu",
        "nn.functional.softplus",
        "logit",
        "nan_to_num",
        "digamma",
    ],
)
def test_unary_edges(device, name):
    function = _function(name)
    torch.testing.assert_close(
        function(_EDGES.to(device)).cpu(), function(_EDGES), equal_nan=True
    )


@pytest.mark.parametrize("eps", [0.0, 0.3, 0.5, 0.6, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_logit_of_bounds_in_either_order(device, dtype, eps):
    x = torch.cat((torch.rand(97), _EDGES)).to(dtype)
    moved = x.to(device).requires_grad_()
    exact = x.double().requires_grad_()
    expected, result = torch.logit(exact, eps), torch.logit(moved, eps)
    torch.testing.assert_close(result.cpu(), expected.to(dtype), equal_nan=True)
    expected.sum().backward()
    result.sum().backward()
    # The CPU's gradient of NaN is 0 or NaN, as the number of elements has it; and so is
    # the sign of that of -0.
    known = ~x.isnan() & (x != 0)
    torch.testing.assert_close(moved.grad.cpu()[known], exact.grad.to(dtype)[known])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint8])
def test_integer_edges(device, dtype):
    limits = torch.iinfo(dtype)
    values = sorted({limits.min, limits.max, 0, 1, 2, 7, max(limits.min, -1), 100})
    a, b = torch.cartesian_prod(*[torch.tensor(values, dtype=dtype)] * 2).unbind(1)
    x, y = a.to(device), b.to(device)
    for name in [
        "add",
        "sub",
        "mul",
        "bitwise_left_shift",
        "bitwise_right_shift",
        "pow",
        "lt",
    ]:
        assert torch.equal(_function(name)(x, y).cpu(), _function(name)(a, b)), name
    # A zero raises (test_index_errors.py); the CPU traps on the smallest by -1.
    a, b = a[b != 0], b[b != 0]
    safe = (a != limits.min) | (b.long() != -1)
    for name in ("floor_divide", "remainder", "fmod"):
        result = _function(name)(a.to(device), b.to(device)).cpu()
        assert torch.equal(result[safe], _function(name)(a[safe], b[safe])), name


@pytest.mark.parametrize("order", [2, 4, 10, 33, 40, 100])
def test_polygamma_of_large_arguments(device, order):
    """Neither the powers' underflow nor the factorial's overflow is the result's."""
    points = torch.tensor(_log_points(1, 1e9))
    exact = torch.tensor([float(mpmath.polygamma(order, p)) for p in points.tolist()])
    is_normal = exact.isfinite() & (exact.abs() > 1.2e-38)
    assert is_normal.any()
    result = torch.polygamma(order, points.to(device)).cpu()
    torch.testing.assert_close(
        result[is_normal], exact[is_normal], rtol=order * 5e-7, atol=0
    )


def test_zeta_of_large_arguments(device):
    q = torch.tensor(_log_points(1, 1e30))
    for s in (1.5, 2.0, 5.0, 12.5):
        exact = torch.tensor([float(mpmath.zeta(s, p)) for p in q.tolist()])
        is_normal = exact > 1.2e-38
        result = torch.special.zeta(torch.tensor(s, device=device), q.to(device)).cpu()
        torch.testing.assert_close(
            result[is_normal], exact[is_normal], rtol=2e-6, atol=0
        )


def test_zeta_of_orders_without_limit(device):
    order = torch.tensor([1e30, 1e30, 1e20, 3e38, 1e30])
    q = torch.tensor([-0.5, 0.5, 1.0, 0.25, -3.0])
    result = torch.special.zeta(order.to(device), q.to(device)).cpu()
    assert torch.equal(result, torch.special.zeta(order, q))


@pytest.mark.parametrize("kind", ["t", "u", "v", "w"])
def test_chebyshev_of_low_degree_is_exact(device, kind):
    function = getattr(torch.special, f"chebyshev_polynomial_{kind}")
    degree = torch.arange(7 if kind == "t" else 9)
    for x in (0.0, 0.5, -0.25):
        points = torch.full(degree.shape, x)
        result = function(points.to(device), degree.to(device)).cpu()
        assert torch.equal(result, function(points, degree))


_CHEBYSHEV = [
    f"{shifted}chebyshev_polynomial_{kind}"
    for shifted in ("", "shifted_")
    for kind in "tuvw"
]
_HERMITE = ["hermite_polynomial_h", "hermite_polynomial_he"]


@pytest.mark.parametrize("name", [*_CHEBYSHEV, *_HERMITE, "legendre_polynomial_p"])
def test_polynomials_of_degrees_beyond_int32(device, name):
    """At the ends, where they overflow, and of degrees that no int64 holds."""
    function = getattr(torch.special, name)
    points = [0.0, 1.0, -1.0, 2.5, -3.0]
    if "shifted" not in name and name not in _HERMITE:
        points = points[1:]  # of 0 the phase has no digit, and Legendre's counts
    x = torch.tensor(points)[:, None]
    n = torch.tensor([2.0**31, 2.0**40, 2.0**61, _inf, -_inf, 1e30, -1e30, _nan])
    torch.testing.assert_close(
        function(x.to(device), n.to(device)).cpu(), function(x, n), equal_nan=True
    )


@pytest.mark.parametrize("name", _CHEBYSHEV)
def test_chebyshev_of_large_degree(device, name):
    """float64 leaves eight digits to the phase of the closed form."""
    function = getattr(torch.special, name)
    x = torch.tensor([0.25, 0.3, 0.849], dtype=torch.float64)
    n = torch.tensor([2.0**30, 2.0**31, 2.0**32 + 1], dtype=torch.float64)[:, None]
    result = function(x.to(device), n.to(device)).cpu()
    torch.testing.assert_close(result, function(x, n), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8])
def test_lcm_of_narrow_integers(device, dtype):
    """Beyond the dtype: the magnitude is that of an int, which is then cut."""
    limits = torch.iinfo(dtype)
    a, b = torch.randint(limits.min + 1, limits.max, (2, 500), dtype=dtype)
    assert torch.equal(torch.lcm(a.to(device), b.to(device)).cpu(), torch.lcm(a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_airy_ai_stays_within_its_envelope(device, dtype):
    x = -torch.logspace(3, 20, 200, dtype=dtype)
    bound = x.abs() ** -0.25 / math.sqrt(math.pi)
    assert (torch.special.airy_ai(x.to(device)).cpu().abs() <= 1.001 * bound).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("exponents", [torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32],
)
def test_ldexp_where_the_power_is_beyond_the_dtype(device, dtype, exponents):
    x = torch.tensor([0, 2.0**-100, 1e-5, 1, -3, 2.0**100, _inf, _nan])
    x = x.nan_to_num(7).clamp(-9, 9).to(dtype) if dtype == torch.int32 else x.to(dtype)
    e = torch.tensor([127, 100, 20, 9, 0, -1, -20, -100, -128, 1000, -1000, 5000])
    e = e[: 9 if exponents == torch.int8 else 12].to(exponents)[:, None]
    expected = torch.ldexp(x, e)
    result = torch.ldexp(x.to(device), e.to(device))
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0, equal_nan=True)
    for power in e[:, 0]:
        if dtype.is_floating_point:
            there = x.to(device).ldexp_(power.to(device))
            torch.testing.assert_close(
                there.cpu(), torch.ldexp(x, power), rtol=0, atol=0, equal_nan=True
            )


def test_ldexp_of_bfloat16_by_exponents_that_it_does_not_hold(device):
    x = torch.tensor([2.0**-130, 2.0**127, 1], dtype=torch.bfloat16)
    e = torch.tensor([257, -257, 129])[:, None]
    for exponents in (e, e.int(), e[0, 0], e[1, 0]):
        expected = torch.ldexp(x, exponents)
        assert torch.equal(
            torch.ldexp(x.to(device), exponents.to(device)).cpu(), expected
        )
    assert torch.equal(
        torch.ldexp(x.to(device), e[0, 0]).cpu(), torch.ldexp(x, e[0, 0])
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 3, 64, 1003])
def test_saturated_tanh_has_no_gradient(device, dtype, count):
    x = torch.tensor([20.0, -24, 877, -1e30, math.inf], dtype=dtype).repeat(201)
    there = x[:count].to(device).requires_grad_()
    y = there.tanh()
    assert torch.equal(y.cpu(), x[:count].sign())
    (grad,) = torch.autograd.grad(y.sum(), there)
    assert not grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_addcdiv_multiplies_before_it_divides(device, dtype):
    """As the CPU: what overflows or vanishes on the way is the same."""
    large, small = torch.finfo(dtype).max ** 0.8, torch.finfo(dtype).max ** -0.8
    a = torch.tensor([large, small, large, small, 3], dtype=dtype)
    b = torch.tensor([large, small, small, large, 7], dtype=dtype)
    for value in (large, small, 0.1):
        expected = torch.addcdiv(torch.ones_like(a), a, b, value=value)
        there = [x.to(device) for x in (torch.ones_like(a), a, b)]
        result = torch.addcdiv(*there, value=value).cpu()
        torch.testing.assert_close(result, expected, equal_nan=True)
