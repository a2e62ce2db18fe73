"""Gradients of gamma and Dirichlet numbers by the parameters they were drawn with.

The reference is mpmath: torch's CPU takes approximations of four digits.
"""

from __future__ import annotations

import mpmath
import pytest
import torch

_TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-3, torch.float16: 2e-3}


def _by_parameter(distribution, density, a):
    """-(dF / da) / f, by a difference of many digits."""
    step = mpmath.mpf(a) * mpmath.mpf(10) ** -15
    slope = (distribution(a + step) - distribution(a - step)) / (2 * step)
    return float(-slope / density)


@mpmath.workdps(50)
def _gamma(a, x):
    a, x = mpmath.mpf(a), mpmath.mpf(x)
    density = mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))

    is_lower = x < a

    def distribution(a):  # but for a constant, so that no tail is lost beside 1
        if is_lower:
            return mpmath.gammainc(a, 0, x, regularized=True)
        return -mpmath.gammainc(a, x, mpmath.inf, regularized=True)

    return _by_parameter(distribution, density, a)


@mpmath.workdps(50)
def _beta(x, a, total):
    x, a, b = mpmath.mpf(x), mpmath.mpf(a), mpmath.mpf(total) - mpmath.mpf(a)
    density = x ** (a - 1) * (1 - x) ** (b - 1) / mpmath.beta(a, b)
    gradient = _by_parameter(
        lambda a: mpmath.betainc(a, b, 0, x, regularized=True), density, a
    )
    return gradient / float(1 - x)


def _assert_close(result, expected, dtype, slack=1):
    assert result.dtype == dtype
    error = ((result.cpu().double() - expected) / expected).abs()
    assert error.max() < slack * _TOLERANCE[dtype]


def _parameters(low, high, count=40):
    return 10 ** (torch.rand(count, dtype=torch.float64) * (high - low) + low)


@pytest.mark.gpu_class
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_gamma(device, dtype):
    a = torch.cat([_parameters(-2, 2), torch.tensor([3000.0, 20000.0])]).to(dtype)
    x = torch._standard_gamma(a.double()).clamp(1e-6, 6e4).to(dtype)
    x[:8] = a[:8] * torch.linspace(0.2, 4, 8)  # tails
    points = zip(a.tolist(), x.tolist(), strict=True)
    expected = torch.tensor([_gamma(*point) for point in points], dtype=torch.float64)
    result = torch._standard_gamma_grad(a.to(device), x.to(device))
    _assert_close(result, expected, dtype)


def test_gamma_of_large_shape(device):
    """Cornish and Fisher's expansion by the normal deviation, derived by the shape."""
    a = torch.tensor([0.9e6, 1.1e6, 1e8], dtype=torch.float64)
    for z in (-3.0, 0.5, 4.0):
        root = a.sqrt()
        x = a + root * z + (z**2 - 1) / 3 + (z**3 - 7 * z) / (36 * root)
        expected = 1 + z / (2 * root) - (z**3 - 7 * z) / (72 * root**3)
        result = torch._standard_gamma_grad(a.to(device), x.to(device)).cpu()
        assert (result - expected).abs().max() < 1e-9


@pytest.mark.gpu_class
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_beta(device, dtype):
    a, b = _parameters(-2, 3), _parameters(-2, 3)
    x = torch.distributions.Beta(a, b).sample().clamp(1e-12, 1 - 1e-4).to(dtype)
    total, a = (a + b).to(dtype), a.to(dtype)
    points = zip(x.tolist(), a.tolist(), total.tolist(), strict=True)
    expected = torch.tensor([_beta(*point) for point in points], dtype=torch.float64)
    result = torch._dirichlet_grad(x.to(device), a.to(device), total.to(device))
    # Near 1 a float32 has few digits of 1 - x; the CPU is 10 times as far off.
    _assert_close(result, expected, dtype, slack=4)


@pytest.mark.parametrize(
    "distribution", ["Gamma", "Beta", "Dirichlet", "StudentT", "Chi2"]
)
def test_distributions_learn_without_a_fallback(device, distribution):
    """The mean's gradient is that of the distribution's own mean."""
    torch.opencl.reset_fallback_stats()
    parameter = torch.full((20000, 2), 5.0, device=device, requires_grad=True)
    given = (parameter,) if distribution in ("Dirichlet", "Chi2") else (parameter, 4.0)
    if distribution == "StudentT":
        given = (parameter, 0.0, 1.0)
    made = getattr(torch.distributions, distribution)(*given)
    (gradient,) = torch.autograd.grad(
        made.rsample()[:, 0].sum(), parameter, retain_graph=True
    )
    expected = torch.zeros_like(parameter)
    if distribution != "StudentT":  # whose mean is 0
        (expected,) = torch.autograd.grad(made.mean[:, 0].sum(), parameter)
    torch.testing.assert_close(gradient.mean(0), expected.mean(0), rtol=0.03, atol=0.01)
    assert torch.opencl.fallback_stats() == {}


def test_edges(device):
    nan = float("nan")
    a = torch.tensor([-1.0, 0.0, nan, 2.0, 2.0, 2.0], device=device)
    x = torch.tensor([1.0, 1.0, 1.0, nan, -1.0, 0.0], device=device)
    result = torch._standard_gamma_grad(a, x)
    assert result[:5].isnan().all() and result[5] == 0
    x = torch.tensor([0.5, 0.5, 1.5, -0.1, 0.0], device=device)
    a = torch.tensor([0.0, 3.0, 1.0, 1.0, 1.0], device=device)
    result = torch._dirichlet_grad(x, a, torch.full_like(x, 3.0))
    assert result[:4].isnan().all() and result[4] == 0
    assert torch._standard_gamma_grad(a[:0], a[:0]).shape == (0,)
    with pytest.raises(RuntimeError, match="dtype"):
        torch._standard_gamma_grad(a, a.double())
