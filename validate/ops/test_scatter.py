"""Reductions by index, and the moves that are made of other indexing."""

from __future__ import annotations

import pytest
import torch
from against_cpu import check, strided, transposed

_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("reduce", _REDUCTIONS)
def test_scatter_reduce(device, reduce, include_self):
    for dim in (0, 1, -1):
        for layout in (torch.Tensor.contiguous, transposed, strided):
            x, source = layout(torch.randn(6, 5, 4)), layout(torch.randn(4, 5, 3))
            index = torch.randint(4, (4, 5, 3))
            check(
                lambda x, s: x.scatter_reduce(
                    dim,  # noqa: B023
                    index.to(x.device),  # noqa: B023
                    s,
                    reduce,
                    include_self=include_self,
                ),
                [x, source],
                device,
            )


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(device, reduce):
    index = torch.tensor([0, 2, 2, 5])
    check(
        lambda x, s: x.index_reduce(1, index.to(x.device), s, reduce),
        [torch.randn(3, 6, 2), torch.randn(3, 4, 2)],
        device,
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_integers(device, dtype):
    x, s = torch.randint(9, (7, 3)).to(dtype), torch.randint(9, (5, 3)).to(dtype)
    index = torch.randint(7, (5, 3))
    for reduce in _REDUCTIONS:
        result = x.to(device).scatter_reduce(0, index.to(device), s.to(device), reduce)
        assert torch.equal(result.cpu(), x.scatter_reduce(0, index, s, reduce))


# The second size has lines long enough for GPUs to sort what goes where.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean"])
@pytest.mark.parametrize("size,sources", [((6, 5, 4), (9, 5, 3)), ((131, 3), (300, 2))])
def test_complex(device, size, sources, reduce, include_self, dtype):
    index = torch.randint(size[0], sources)

    def function(x, source):
        x, source = torch.view_as_complex(x), torch.view_as_complex(source)
        y = x.scatter_reduce(
            0, index.to(x.device), source, reduce, include_self=include_self
        )
        return torch.view_as_real(y)

    inputs = [torch.randn(*size, 2), torch.randn(*sources, 2)]
    check(function, inputs, device, dtype, backward=False, multiple=16.0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_complex_in_the_older_form(device, reduce, dtype):
    x, source = torch.randn(7, 3, dtype=dtype), torch.randn(11, 3, dtype=dtype)
    index = torch.randint(7, (11, 3))
    for given in (source, 2 - 0.5j):
        moved = given.to(device) if torch.is_tensor(given) else given
        result = x.to(device).scatter(0, index.to(device), moved, reduce=reduce)
        expected = x.scatter(0, index, given, reduce=reduce)
        torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_index_reduce(device, dtype):
    x, source = torch.randn(4, 7, 3, dtype=dtype), torch.randn(4, 11, 3, dtype=dtype)
    index = torch.randint(7, (11,))
    for reduce in ("prod", "mean"):
        result = x.to(device).index_reduce(
            1, index.to(device), source.to(device), reduce
        )
        expected = x.index_reduce(1, index, source, reduce)
        torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_complex_numbers_have_no_order(device, reduce):
    x, index = torch.ones(3, dtype=torch.complex64), torch.tensor([0, 2])
    for device_or_cpu in ("cpu", device):
        y, at = x.to(device_or_cpu), index.to(device_or_cpu)
        with pytest.raises(NotImplementedError, match="not implemented for 'ComplexF"):
            y.scatter_reduce(0, at, y, reduce)
        with pytest.raises(NotImplementedError, match="not implemented for 'ComplexF"):
            y.index_reduce(0, at, y[:2], reduce)


def test_take_and_put(device):
    x = torch.arange(24.0).view(4, 6)
    index = torch.tensor([[0, -1, 5], [5, 17, 3]])
    for y in (x, x.t(), x[:, ::2]):
        here = index % y.numel()
        result = y.to(device).take(here.to(device))
        assert torch.equal(result.cpu(), y.take(here))
        for accumulate in (False, True):
            places = here[:1] if not accumulate else here
            values = torch.rand(places.shape)
            result = y.to(device).put(places.to(device), values.to(device), accumulate)
            assert torch.equal(result.cpu(), y.put(places, values, accumulate))
    with pytest.raises(RuntimeError, match="Expected a long tensor for index"):
        x.to(device).take(index.int().to(device))


def test_repeat_interleave(device):
    x, repeats = torch.randn(4, 3), torch.tensor([2, 0, 3, 1])
    for dim, count in ((0, repeats), (1, repeats[:3]), (None, 2)):
        moved = count.to(device) if torch.is_tensor(count) else count
        result = x.to(device).repeat_interleave(moved, dim)
        assert torch.equal(result.cpu(), x.repeat_interleave(count, dim))
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        torch.repeat_interleave(-repeats.to(device))


def test_unfold_and_trace(device):
    x = torch.randn(3, 11, 2)
    for size, step in ((3, 1), (2, 4), (11, 1)):
        check(lambda x: x.unfold(1, size, step), [x], device)  # noqa: B023
    check(torch.trace, [torch.randn(4, 7)], device)


# Lines long enough for GPUs to sort what goes where, and runs over many chunks.
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("reduce", _REDUCTIONS)
@pytest.mark.parametrize(
    "size,length,places", [((7,), 65, 7), ((900,), 1000, 900), ((3, 5), 640, 2)]
)
def test_scatter_of_long_lines(device, reduce, include_self, size, length, places):
    x = torch.rand(size) + 0.5
    source = torch.rand(length, *size[1:]) + (0.5 if reduce == "prod" else 0)
    if reduce == "prod":
        source = 1 + (source - 1) / 16
    index = torch.randint(places, source.shape)
    index[length // 3 : length // 2] = 1
    check(
        lambda x, s: x.scatter_reduce(
            0, index.to(x.device), s, reduce, include_self=include_self
        ),
        [x, source],
        device,
        multiple=16.0,
    )


def test_one_target(device):
    x, source = torch.zeros(3), torch.arange(5000.0)
    index = torch.full((5000,), 2)
    for reduce in ("sum", "amax"):
        result = x.to(device).scatter_reduce(
            0, index.to(device), source.to(device), reduce
        )
        torch.testing.assert_close(
            result.cpu(), x.scatter_reduce(0, index, source, reduce)
        )


def _kernels(function, device) -> set[str]:
    with torch.opencl.profile() as profile:
        function()
        torch.opencl.synchronize(device)
    return {entry.name.split(":")[-1] for entry in profile.kernels}


_SUMS = {
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s),
    "index_add": lambda x, i, s: x.index_add(0, i[:, 0], s, alpha=3),
    "index_put": lambda x, i, s: x.index_put((i[:, 0],), s, accumulate=True),
    "embedding": lambda x, i, s: torch.ops.aten.embedding_dense_backward(
        s, i[:, 0], x.size(0), 2, False
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("name", _SUMS)
def test_sums_of_long_lines(device, request, name, dtype):
    """Of few lines: GPUs sort what goes where instead of walking a line each."""
    x = torch.randint(-3, 4, (50, 3)).to(dtype)
    source = torch.randint(-3, 4, (1000, 3)).to(dtype)
    index = torch.randint(50, (1000, 3))
    index[300:600] = 2
    x, source, index = transposed(x), transposed(source), strided(index)
    function = _SUMS[name]
    moved = [t.to(device) for t in (x, index, source)]
    assert torch.equal(function(*moved).cpu(), function(x, index, source))
    if request.config.getoption("gpu_class"):
        assert "scatter_chunks" in _kernels(lambda: function(*moved), device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("size,dim", [((40, 300), 0), ((3, 40, 7), 1), ((2, 5, 40), 2)])
def test_sums_of_rows(device, request, size, dim, dtype):
    """Where the index is one for all columns, GPUs sort it once for all of them."""
    x = torch.randint(-3, 4, size).to(dtype)
    source = torch.randint(-3, 4, (*size[:dim], 131, *size[dim + 1 :])).to(dtype)
    index = torch.randint(40, (131,))
    index[20:100] = 7
    spread = index.view(-1, *[1] * (len(size) - dim - 1)).expand(source.shape)
    functions = [
        lambda x, i, s: x.index_add(dim, i[0], s),
        lambda x, i, s: x.index_add(dim, i[0], transposed(s), alpha=2),
        lambda x, i, s: x.scatter_add(dim, i[1], s),
        lambda x, i, s: x.index_reduce(dim, i[0], s, "amax", include_self=False),
        lambda x, i, s: x.transpose(0, dim).index_put(
            (i[0],), s.transpose(0, dim), accumulate=True
        ),
    ]
    moved = [x.to(device), (index.to(device), spread.to(device)), source.to(device)]
    for function in functions:
        result, expected = function(*moved), function(x, (index, spread), source)
        assert torch.equal(result.cpu(), expected)
    if request.config.getoption("gpu_class"):
        used = _kernels(lambda: functions[0](*moved), device)
        assert {"scatter_chunks", "scatter_join"} <= used


def test_rows_of_a_smaller_index(device):
    """The index names rows, but not all columns of them."""
    x, source = torch.zeros(9, 5), torch.randn(100, 3)
    index = torch.randint(9, (100, 1)).expand(100, 3)
    result = x.to(device).scatter_add(0, index.to(device), source.to(device))
    torch.testing.assert_close(result.cpu(), x.scatter_add(0, index, source))


@pytest.mark.parametrize("name", _SUMS)
def test_a_bad_index_of_long_lines(device, name):
    source, index = torch.ones(100, 3), torch.zeros(100, 3, dtype=torch.int64)
    index[70] = 50
    with pytest.raises(IndexError, match="index 50 is out of"):
        _SUMS[name](*(t.to(device) for t in (torch.ones(50, 3), index, source)))
        torch.opencl.synchronize(device)
