"""histc of integers, which the CPU refuses and CUDA takes: mixtures of experts count
tokens by it."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def by_hand(values: list[int], bins: int, low: int, high: int) -> list[int]:
    counts = [0] * bins
    for value in values:
        if low <= value <= high:
            counts[min((value - low) * bins // (high - low), bins - 1)] += 1
    return counts


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "bins, low, high", [(8, 0, 7), (8, 0, 8), (3, 2, 100), (100, 0, 9), (1, 5, 6)]
)
def test_integers(device, dtype, bins, low, high):
    values = torch.randint(0, 100, (1000,)).clamp_max(17 if bins < 50 else 99)
    expected = torch.tensor(by_hand(values.tolist(), bins, low, high)).to(dtype)
    result = torch.histc(values.to(device, dtype), bins, low, high)
    assert result.dtype == dtype
    assert torch.equal(result.cpu(), expected)


def test_range_of_the_integers_themselves(device):
    values = torch.tensor([-3, 4, 4, 0, 11], dtype=torch.int32)
    result = torch.histc(values.to(device), 7)
    assert result.tolist() == by_hand(values.tolist(), 7, -3, 11)
    equal = torch.full((5,), 4, dtype=torch.int64, device=device)
    assert torch.histc(equal, 4).tolist() == by_hand([4] * 5, 4, 3, 5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(device, dtype):
    values = (torch.rand(200) * 8).to(dtype)
    for bins, low, high in ((10, 0, 0), (7, 1, 6), (4, 0, 8)):
        expected = torch.histc(values, bins, low, high)
        result = torch.histc(values.to(device), bins, low, high)
        assert result.dtype == expected.dtype
        # Elements at an edge, a rounding this way or that, move to the next bin.
        ends = (low, high) if low < high else (values.min().item(), values.max().item())
        edges = torch.linspace(*ends, bins + 1, dtype=torch.float64)
        distances = (values.double()[:, None] - edges).abs().amin(1)
        near = (distances <= 2 * torch.finfo(dtype).eps * max(map(abs, ends))).sum()
        assert (result.cpu() - expected).abs().sum() <= 2 * near


def test_out_of_another_dtype(device):
    with pytest.raises(RuntimeError, match="got input int and hist float"):
        torch.histc(
            torch.ones(3, dtype=torch.int32, device=device),
            out=torch.empty(0, device=device),
        )


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(device, weighted, density):
    x = torch.randn(3, 40)
    x[0, 0] = float("nan")
    weight = torch.rand(3, 40) if weighted else None
    moved = weight.to(device) if weighted else None
    edges = torch.tensor([-1.5, -0.5, 0.0, 0.25, 2.0])
    torch.opencl.reset_fallback_stats()
    for bins, own in ((edges, edges.to(device)), (7, 7)):
        options = {} if bins is edges else {"range": (-1.0, 2.5)}
        expected = torch.histogram(x, bins, weight=weight, density=density, **options)
        result = torch.histogram(
            x.to(device), own, weight=moved, density=density, **options
        )
        torch.testing.assert_close(result.hist.cpu(), expected.hist)
        torch.testing.assert_close(result.bin_edges.cpu(), expected.bin_edges)
    y = x[1:].contiguous()
    torch.testing.assert_close(
        torch.histogram(y.to(device), 5).hist.cpu(), torch.histogram(y, 5).hist
    )
    assert torch.opencl.fallback_stats() == {}


@pytest.mark.parametrize("weight", [float("inf"), float("nan")])
@pytest.mark.parametrize("outside", [5.0, -5.0, float("nan")])
def test_weights_of_points_outside(device, outside, weight):
    x = torch.tensor([0.1, 0.9, outside])
    options = {"range": (0.0, 1.0), "weight": torch.tensor([1.0, 2.0, weight])}
    expected = torch.histogram(x, 2, **options)
    options["weight"] = options["weight"].to(device)
    assert torch.equal(
        torch.histogram(x.to(device), 2, **options).hist.cpu(), expected.hist
    )
