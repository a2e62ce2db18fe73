"""Gamma, Dirichlet, Poisson and binomial numbers: distributions and edges."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

COUNT = 20_011
_FLOATS = (torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def _seeded_generators(without_fallbacks):
    torch.opencl.manual_seed_all(5)


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 60.0])
def test_gamma(device, shape, dtype):
    x = torch._standard_gamma(torch.full((COUNT,), shape, device=device, dtype=dtype))
    numbers = x.cpu().double().numpy()
    assert stats.kstest(numbers, stats.gamma(shape).cdf).pvalue > 1e-4


def _matches(numbers, distribution):
    """Frequencies by a chi-square test, in cells of at least 20 expected numbers."""
    values = torch.arange(int(numbers.max()) + 2)
    expected = COUNT * torch.tensor(distribution.pmf(values.numpy()))
    found = torch.bincount(numbers.long(), minlength=len(values)).double()
    often = expected >= 20
    cells = torch.cat([found[often], found[~often].sum()[None]])
    wanted = torch.cat([expected[often], COUNT - expected[often].sum()[None]])
    if wanted[-1] < 5:
        assert cells[-1] < 60
        cells, wanted = cells[:-1], wanted[:-1] * cells[:-1].sum() / wanted[:-1].sum()
    assert stats.chisquare(cells.numpy(), wanted.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("rate", [0.2, 4.0, 9.9, 10.0, 55.0])
def test_poisson(device, rate, dtype):
    x = torch.poisson(torch.full((COUNT,), rate, device=device, dtype=dtype))
    assert torch.equal(x, x.floor())
    _matches(x.cpu(), stats.poisson(rate))


@pytest.mark.parametrize("dtype", _FLOATS)
@pytest.mark.parametrize("count, p", [(1, 0.5), (9, 0.2), (40, 0.4), (200, 0.9)])
def test_binomial(device, count, p, dtype):
    n = torch.full((COUNT,), float(count), device=device, dtype=dtype)
    x = torch.binomial(n, torch.full_like(n, p))
    _matches(x.cpu(), stats.binom(count, p))


def test_dirichlet(device):
    shapes = torch.tensor([0.5, 2.0, 4.0], device=device)
    x = torch._sample_dirichlet(shapes.expand(COUNT, 3)).cpu().double()
    torch.testing.assert_close(x.sum(1), torch.ones(COUNT, dtype=torch.float64))
    for column, shape in zip(x.t(), (0.5, 2.0, 4.0), strict=True):
        marginal = stats.beta(shape, 6.5 - shape)
        assert stats.kstest(column.numpy(), marginal.cdf).pvalue > 1e-4


def _has_moments(numbers: torch.Tensor, mean: float, variance: float) -> None:
    """Within five standard errors."""
    numbers, count = numbers.cpu().double(), numbers.numel()
    assert abs(numbers.mean() - mean) < 5 * (variance / count) ** 0.5
    assert abs(numbers.var() / variance - 1) < 5 * (2 / count) ** 0.5


@pytest.mark.parametrize("rate", [1e6, 1e7, 1e8])
def test_large_rates(device, rate):
    """Their probabilities are small differences of large terms."""
    _has_moments(torch.poisson(torch.full((1 << 17,), rate, device=device)), rate, rate)


@pytest.mark.parametrize("p", [0.5, 0.01, 0.99])
def test_large_counts(device, p):
    n = torch.full((1 << 17,), 1e8, device=device)
    numbers = torch.binomial(n, torch.full_like(n, p))
    p = torch.tensor(p).double().item()  # as a float32
    _has_moments(numbers, 1e8 * p, 1e8 * p * (1 - p))


@pytest.mark.parametrize("concentration", [0.005, 0.01, 0.1])
def test_small_concentrations(device, concentration):
    """Most gamma numbers of them are 0 in float32."""
    shapes = torch.full((1 << 17, 2), concentration, device=device)
    x = torch._sample_dirichlet(shapes).cpu().double()
    assert (x[:, 0] == 0.5).double().mean() < 2e-3
    variance = 1 / (4 * (2 * concentration + 1))
    assert abs(x[:, 0].var() / variance - 1) < 0.01
    assert abs(x[:, 0].mean() - 0.5) < 5 * (variance / len(x)) ** 0.5


def test_parameters_at_edges(device):
    rates = torch.tensor([0.0], device=device)
    assert torch.poisson(rates).item() == 0
    assert torch._standard_gamma(rates).item() > 0
    n = torch.tensor([5.0, 5.0, 0.0, 5.0], device=device)
    p = torch.tensor([0.0, 1.0, 0.5, float("nan")], device=device)
    assert torch.binomial(n, p).cpu().nan_to_num(9.0).tolist() == [0, 5, 0, 9]
    assert torch.poisson(rates[:0]).shape == (0,)


@pytest.mark.parametrize("rate", [-1.0, float("nan")])
def test_bad_rates_are_raised_by_the_next_wait(device, rate):
    with pytest.raises(RuntimeError) as expected:
        torch.poisson(torch.tensor([1.0, rate]))
    x = torch.poisson(torch.tensor([1.0, rate], device=device))
    with pytest.raises(RuntimeError) as raised:
        x.cpu()
    assert str(raised.value).split("\n")[0] == str(expected.value).split("\n")[0]
    assert torch.poisson(torch.tensor([0.0], device=device)).item() == 0


def test_infinite_parameters_end(device):
    infinite = torch.tensor([torch.inf], device=device)
    assert torch._standard_gamma(infinite).item() == torch.inf
    assert torch.poisson(infinite).item() == torch.inf
    half = torch.full_like(infinite, 0.5)
    assert torch.binomial(infinite, half).item() == torch.inf


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(device, dtype):
    x = torch.poisson(torch.full((COUNT,), 4.0, device=device, dtype=dtype))
    assert x.dtype == dtype
    assert abs(x.float().mean().item() - 4) < 0.1


def test_seeds_repeat(device):
    rates = torch.rand(7, 9).mul(20).to(device)
    draws = []
    for _ in range(2):
        generator = torch.Generator(device).manual_seed(3)
        draws.append(torch.poisson(rates.t(), generator=generator))
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], torch.poisson(rates.t(), generator=generator))


def test_errors_are_torchs(device):
    for call in (torch.poisson, torch._standard_gamma):
        with pytest.raises(NotImplementedError) as expected:
            call(torch.ones(3, dtype=torch.int64))
        with pytest.raises(NotImplementedError) as raised:
            call(torch.ones(3, dtype=torch.int64, device=device))
        assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_stay_between_zero_and_one(device, dtype):
    shapes = torch.full((20_000,), 0.05, dtype=dtype, device=device)
    assert torch._standard_gamma(shapes).min() > 0
    shares = torch._sample_dirichlet(shapes.view(-1, 2)).cpu()
    assert shares.min() > 0
    assert shares.max() < 1
