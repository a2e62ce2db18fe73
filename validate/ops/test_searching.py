"""Searching, counting and uniqueness against the CPU, exactly."""

from __future__ import annotations

import pytest
import torch
from against_cpu import check_error


def _both(device, function, *tensors):
    result = function(*(tensor.to(device) for tensor in tensors))
    expected = function(*tensors)
    if isinstance(expected, torch.Tensor):
        result, expected = [result], [expected]
    for mine, cpu in zip(result, expected, strict=True):
        assert mine.dtype == cpu.dtype
        assert torch.equal(mine.cpu(), cpu), (mine.cpu(), cpu)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_searchsorted(device, dtype, right):
    boundaries = (torch.randn(3, 40) * 9).to(dtype).sort(1)[0]
    values = (torch.randn(3, 17) * 9).to(dtype)
    values[:, :5] = boundaries[:, 7:12]

    def search(boundaries, values):
        return (
            torch.searchsorted(boundaries, values, right=right),
            torch.searchsorted(boundaries[0], values.t(), right=right, out_int32=True),
            torch.bucketize(values, boundaries[1], right=right),
            torch.searchsorted(boundaries[0], 3, right=right),
            torch.searchsorted(boundaries[0, :0], values),
        )

    _both(device, search, boundaries, values)


def test_searchsorted_with_a_sorter(device):
    boundaries, values = torch.randn(2, 30), torch.randn(2, 9)
    order = boundaries.argsort(1)
    _both(
        device,
        lambda b, v, o: torch.searchsorted(b, v, sorter=o),
        boundaries,
        values,
        order,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("place", [30, -1, 2**40])
def test_a_sorter_out_of_range(device, place):
    boundaries, values = torch.randn(30), torch.randn(4)
    order = boundaries.argsort()
    order[3] = place
    for there in ("cpu", device):
        given = [t.to(there) for t in (boundaries, values, order)]
        with pytest.raises(RuntimeError, match="sorter index out of range"):
            torch.searchsorted(given[0], given[1], sorter=given[2])


def test_isin(device):
    x, y = torch.randint(30, (5, 7)), torch.randint(30, (11,))
    _both(device, lambda x, y: torch.isin(x, y), x, y)
    _both(device, lambda x, y: torch.isin(x, y, invert=True), x.float(), y)
    _both(device, lambda x, y: torch.isin(x, y[:0]), x, y)
    _both(device, lambda x: (torch.isin(x, 3), torch.isin(3, x)), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_isin_beside_nan(device, dtype):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([1, 2, 3, inf, -inf, nan], dtype=dtype)
    for others in ([3, nan], [1, nan, nan, nan], [nan], [inf, nan, 2], [-inf, nan]):
        y = torch.tensor(others, dtype=dtype)
        for invert in (False, True):
            _both(device, lambda x, y, i=invert: torch.isin(x, y, invert=i), x, y)
        _both(device, torch.isin, torch.tensor([3, 1, 7]), y)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_unique(device, dtype, dim):
    x = torch.randint(3, (9, 4)).to(dtype)
    for y in (x, x.t(), x[:1], x[::2]):
        _both(device, lambda t: torch.unique(t, True, True, True, dim), y)
        _both(device, lambda t: torch.unique_consecutive(t, True, True, dim), y)
    _both(device, lambda t: torch.unique(t), x[:0])


def test_counts(device):
    x = torch.randint(20, (300,))
    weights = torch.rand(300)
    _both(device, lambda x: torch.bincount(x, minlength=25), x)
    _both(device, lambda x: torch.bincount(x[:0], minlength=3), x)
    result = torch.bincount(x.to(device), weights.to(device))
    torch.testing.assert_close(result.cpu(), torch.bincount(x, weights))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        narrow = x.to(dtype)
        result = torch.bincount(narrow.to(device), weights.to(device))
        torch.testing.assert_close(result.cpu(), torch.bincount(narrow, weights))
    y = torch.randn(7, 50)
    _both(device, lambda y: torch.histc(y, 13, -1, 2), y)
    _both(device, lambda y: torch.histc(y, 5), torch.arange(50.0))
    z = torch.randint(2, (4, 5, 6)).float()
    _both(device, lambda z: (z.count_nonzero(), z.count_nonzero((0, 2))), z)
    with pytest.raises(RuntimeError, match="1-d non-negative integral"):
        torch.bincount(-x.to(device) - 1)


def test_bincount_of_the_greatest(device):
    check_error(torch.bincount, device, torch.tensor([3, 2**63 - 1]))
