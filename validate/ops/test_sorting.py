"""Sorting and ranks: order, stability, NaN and layouts, against the CPU."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, INTEGERS, strided, transposed

_DTYPES = (*FLOATS, *INTEGERS)
# around the lengths of runs and of chunks
_SHAPES = [(), (1,), (0,), (3, 0), (5, 16), (7, 17), (2, 33), (3, 257), (2, 1500)]


def _values(shape, dtype):
    if dtype == torch.int64:
        return torch.randint(-(2**62), 2**62, shape) // 2**60
    return (torch.randn(shape) * 20).to(dtype)


def _same(result, expected):
    for ours, cpu in zip(result, expected, strict=True):
        assert ours.dtype == cpu.dtype and ours.shape == cpu.shape
        torch.testing.assert_close(ours.cpu(), cpu, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", _DTYPES)
def test_sort(device, dtype, descending):
    for shape in _SHAPES:
        x = _values(shape, dtype)
        _same(
            x.to(device).sort(descending=descending),
            x.sort(stable=True, descending=descending),
        )


# Around what work-items and groups sort, and pairs of these.
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
@pytest.mark.parametrize(
    "size", [4, 5, 8, 9, 511, 512, 513, 1024, 1025, 2047, 2049, 3073, 20011]
)
def test_sort_around_blocks(device, dtype, size):
    for rows in (1, 3, 131):
        if rows * size > 200_000:
            continue
        x = _values((rows, size), dtype)
        _same(x.to(device).sort(stable=True), x.sort(stable=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("k", [1, 3, 127, 128, 129, 255, 256, 257, 600, 5000])
def test_topk_around_blocks(device, dtype, k):
    x = torch.randperm(2 * 9001).view(2, 9001).to(dtype)
    _same(x.to(device).topk(k), x.topk(k))
    _same(x.to(device).topk(k, largest=False), x.topk(k, largest=False))


def test_a_long_row(device):
    x = torch.randint(0, 1000, (1_000_003,))
    values, places = x.to(device).sort(stable=True)
    expected = x.sort(stable=True)
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(places.cpu(), expected.indices)


@pytest.mark.parametrize("layout", [transposed, strided])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sort_dimensions_and_layouts(device, dim, layout):
    x = layout(torch.randn(19, 5, 23))
    _same(layout(x.to(device)).sort(dim), x.sort(dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_special_values(device, dtype):
    x = torch.tensor([0.0, -0.0, 1, float("nan"), -1, float("inf"), -0.0, 0.0] * 9)
    x[20] = float("-inf")
    x = x.to(dtype)
    for descending in (False, True):
        values, indices = x.to(device).sort(descending=descending)
        expected = x.sort(stable=True, descending=descending)
        _same((values, indices), expected)
        assert torch.equal(values.cpu().signbit(), expected[0].signbit())


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [0, 1, 5, 15, 16, 17, 100])
def test_topk(device, k, largest):
    for columns in (100, 1000, 5000):
        x = torch.randperm(3 * columns).view(3, columns).float()
        _same(
            x.to(device).topk(k, largest=largest),
            x.topk(k, largest=largest, sorted=True),
        )
    x = torch.randperm(2 * columns).view(columns, 2).double()
    _same(x.to(device).topk(k, 0, largest), x.topk(k, 0, largest))


def test_topk_of_equal_elements_takes_the_first(device):
    x = torch.zeros(3, 2000, dtype=torch.int32, device=device)
    for k in (3, 40):
        assert torch.equal(x.topk(k)[1].cpu(), torch.arange(k).expand(3, k))


def test_kthvalue_median_mode(device):
    x = torch.randperm(7 * 31).view(7, 31).float()
    for dim in (0, 1):
        _same(x.to(device).kthvalue(5, dim), x.kthvalue(5, dim))
        _same(x.to(device).median(dim, True), x.median(dim, True))
    gaps = torch.where(torch.rand(7, 31) < 0.4, float("nan"), x)
    gaps[3] = float("nan")
    for y in (x, gaps):
        (values, at), (expected, place) = y.to(device).nanmedian(1), y.nanmedian(1)
        # any element of a row of NaN will do
        at = torch.where(expected.isnan(), place, at.cpu())
        _same((values, at), (expected, place))
        _same(y.to(device).median(1), y.median(1))
        _same([y.to(device).nanmedian()], [y.nanmedian()])
        _same([y.to(device).median()], [y.median()])
    coarse = torch.randint(4, (9, 50))
    values, indices = coarse.to(device).mode()
    assert torch.equal(values.cpu(), coarse.mode().values)
    assert torch.equal(coarse.gather(1, indices.cpu()[:, None])[:, 0], values.cpu())


# a row of a work-item; few rows of several; columns of no and of many vectors
@pytest.mark.parametrize(
    "size", [(1, 1), (7, 15), (3, 16), (300, 33), (1, 32768), (3, 70001)]
)
@pytest.mark.parametrize("dtype", [t for t in _DTYPES if t != torch.bool])
def test_ranks(device, dtype, size):
    x = _values(size, dtype)
    there = torch.cat([x[:1], x]).to(device)[1:]
    values, order = x.sort(dim=1, stable=True)
    for k in {1, (size[1] + 1) // 2, size[1]}:
        _same(there.kthvalue(k, 1), (values[:, k - 1], order[:, k - 1]))
    if x.is_floating_point():
        x[torch.rand(size) < 0.3] = float("nan")
        x[0, ::5] = 0.0
        x[0, 1::5] = -0.0
        there.copy_(x)
    for op in (torch.median, torch.nanmedian):
        _same(op(there, 1)[:1], op(x, 1)[:1])
        _same([op(there)], [op(x)])


def test_gradients(device):
    x = torch.randn(5, 40)
    weights = torch.randn(5, 40)
    for function in (
        lambda t: t.sort(descending=True)[0] * weights.to(t.device),
        lambda t: t.topk(7, 0)[0] if t.size(0) >= 7 else t.topk(7)[0],
        lambda t: t.kthvalue(3)[0],
    ):
        gradients = []
        for place in ("cpu", device):
            leaf = x.to(place, copy=True).requires_grad_()
            function(leaf).sum().backward()
            gradients.append(leaf.grad.cpu())
        assert torch.equal(*gradients)


def test_errors(device):
    x = torch.randn(3, 4, device=device)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        x.topk(5)
    with pytest.raises(RuntimeError, match="selected number k out of range"):
        x.kthvalue(5)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sort(2)
