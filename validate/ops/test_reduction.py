"""Reductions at the sizes where their kernels take vectors, blocks and splits."""

from __future__ import annotations

import pytest
import torch
from against_cpu import (
    FLOATS,
    INTEGERS,
    channels_last,
    check,
    contiguous,
    offset,
    strided,
)

# (size, reduced dimensions)
CASES = [
    ((7, 40000), (1,)),  # longer than a block, split
    ((2, 3, 65), (2,)),
    ((5, 17, 49), (2,)),
    ((3, 4, 5, 31), (0, 2, 3)),
    ((30, 2083), (0,)),  # columns of more than one work-item
    ((40, 3, 33), (0,)),
    ((6, 5, 70), (0, 1)),
    ((700, 16), (0,)),
    ((2, 21, 9, 11), (0, 2, 3)),
    ((1, 1), (0, 1)),
    ((3, 15), (1,)),
    ((50, 15), (1,)),  # few neighbours, by neighbouring results
    ((3, 17, 2), (2,)),
    ((5, 19, 4, 3), (0, 3)),
]

OPS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "nansum": torch.nansum,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, 2, dim),
    "norm 0.5": lambda x, dim: torch.linalg.vector_norm(x, 0.5, dim),
    "norm inf": lambda x, dim: torch.linalg.vector_norm(x, float("inf"), dim),
    "norm 0": lambda x, dim: torch.linalg.vector_norm(x, 0, dim),
}


@pytest.mark.parametrize("layout", [contiguous, offset, strided])
@pytest.mark.parametrize("size,dim", CASES)
def test_sum(device, size, dim, layout):
    check(lambda x: x.sum(dim), [layout(torch.randn(size))], device)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "size,dim", [((3, 20, 70), (0, 2)), ((9, 70), (0,)), ((4, 17, 3), (2,))]
)
def test_ops(device, op, size, dim):
    x = torch.randn(size)
    check(lambda x: OPS[op](x, dim), [x], device, backward=op != "norm 0")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_dtypes(device, dtype, layout):
    x = layout(torch.randn(2, 35, 7, 9))
    check(lambda x: (x.sum((0, 2, 3)), x.mean((2, 3))), [x], device, dtype)


@pytest.mark.parametrize("size,dim", [((4, 100), 1), ((100, 40), 0)])
def test_nan(device, size, dim):
    x = torch.randn(size)
    x[2, 17] = float("nan")
    x[3, 3] = float("inf")

    def reduce(x):
        return x.amax(dim), x.amin(dim), x.nansum(dim), x.sum(dim)

    check(reduce, [x], device, backward=False)


@pytest.mark.parametrize("rows", [5, 63, 1000, 4099])
@pytest.mark.parametrize("columns", [2, 3, 7, 16, 17, 31, 48, 64, 200, 264])
def test_rows_that_count_as_one(device, rows, columns):
    """Rows of a matrix that follow each other in memory."""
    x = torch.randn(rows, columns)
    whole = torch.full((rows * columns + 7,), float("nan"), device=device)
    there = whole[5:-2].view(rows, columns).copy_(x)
    total = x.double().sum(0)
    bound = 1e-6 * x.double().abs().sum(0)
    assert ((there.sum(0).cpu() - total).abs() <= bound).all()
    assert torch.equal(there.amax(0).cpu(), x.amax(0))
    half = x.to(torch.bfloat16)
    torch.testing.assert_close(
        half.to(device).mean(0).cpu(), half.double().mean(0).to(half)
    )
    x[-1, 1] = float("nan")
    x[rows // 2, 0] = float("inf")
    for op in (torch.amin, torch.sum):
        result, expected = op(x.to(device), 0).cpu(), op(x, 0)
        torch.testing.assert_close(result[:2], expected[:2], equal_nan=True)


def test_prod(device):
    x = torch.rand(6, 50) + 0.6
    check(lambda x: (x.prod(0), x.prod(1)), [x], device, backward=False)


def _values(kind: str, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(size)
    if kind == "ties":
        x = x.mul(2).round()
    elif kind == "rising":  # every run has a new extreme
        x = x.sort(-1)[0]
    elif kind == "nan":
        x[torch.rand(size) < 0.02] = float("nan")
    elif kind == "infinite":
        x.fill_(float("-inf"))
    elif kind == "zeros":  # of either sign: equal
        x = torch.where(x < 0, -0.0, 0.0)
    return x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["ties", "rising", "nan", "infinite", "zeros"])
@pytest.mark.parametrize(
    "size,dim",
    [
        ((3, 15), 1),
        ((3, 17), 1),
        ((4, 3, 50), 2),
        ((4, 30, 50), 1),  # places along a stride
        ((2, 8192), 1),  # a block
        ((3, 8211), 1),
        ((1, 100003), 1),  # split
    ],
)
def test_places_of_extremes(device, size, dim, kind, dtype):
    x = _values(kind, size, dtype)
    y = x.to(device)
    for op in (torch.max, torch.min):
        for on_cpu, on_device in zip(op(x, dim), op(y, dim), strict=True):
            torch.testing.assert_close(
                on_device.cpu(), on_cpu, rtol=0, atol=0, equal_nan=True
            )
    for op in (torch.argmax, torch.argmin):
        assert torch.equal(op(y, dim).cpu(), op(x, dim))
        assert torch.equal(op(y).cpu(), op(x))


@pytest.mark.parametrize("size", [(3, 8191), (5, 20001), (2, 7, 33), (4, 16), (2, 9)])
@pytest.mark.parametrize("mean", [0.0, 1000.0, -1e5])
def test_variance_against_float64(device, size, mean):
    """As exact beside a large mean."""
    x = torch.randn(size) + mean
    for dim in (-1, 0, len(size) // 2, tuple(range(len(size)))):
        for correction in (0, 1):
            exact = torch.var_mean(x.double(), dim, correction=correction)
            result = torch.var_mean(x.to(device), dim, correction=correction)
            for wanted, got in zip(exact, result, strict=True):
                torch.testing.assert_close(
                    got.cpu().double(), wanted, rtol=2e-6, atol=1e-6
                )


@pytest.mark.parametrize("shape", [(125, 9), (1000, 40), (300, 1)])
def test_means_near_zero(device, shape):
    """As exact as their elements' roundings, few or many."""
    for x in (torch.randn(shape), torch.randn(shape[::-1]).t()):
        mean = torch.var_mean(x.to(device), 0)[1].cpu()
        off = (mean.double() - x.double().mean(0)).abs().max()
        assert off < 8 * torch.finfo(x.dtype).eps / shape[0] ** 0.5


@pytest.mark.parametrize("place", [0, 1, 37, 39])
def test_variance_of_infinities(device, place):
    x = torch.randn(40, 40)
    x[place, :], x[:, place] = torch.inf, -torch.inf
    for dim in (0, 1):
        variance, mean = torch.var_mean(x.to(device), dim)
        assert variance.isnan().all() and not mean.isfinite().any()
    x = torch.tensor([[torch.inf], [-torch.inf], [2.0]])
    mean = torch.var_mean(x.to(device), 1, correction=0)[1]
    assert torch.equal(mean.cpu(), x[:, 0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [(1000, 2), (99_991, 2), (3, 40_009), (50_021, 48)])
def test_rounding_errors_do_not_grow(device, shape):
    """What the rounding of folds loses is kept, in sums and in moments."""
    x, dim = torch.randn(shape) * 2 + 1, shape.index(max(shape))
    exact = [*torch.var_mean(x.double(), dim), x.double().sum(dim)]
    found = [*torch.var_mean(x.to(device), dim), x.to(device).sum(dim)]
    # Terms of a plain sum may cancel.
    scales = [(exact[0], 2.5e-7), (exact[1], 2.5e-7), (x.double().abs().sum(dim), 4e-7)]
    for wanted, got, (size, bound) in zip(exact, found, scales, strict=True):
        error = (got.cpu().double() - wanted).norm() / size.norm()
        assert error < bound, error.item()


def test_ends_of_lines_keep_their_precision(device):
    """Equal terms, whose rounding errors are of one sign. Half of them are behind the
    last full vector of a line of 31."""
    x = torch.full((4000, 50), 0.1)
    y = x.to(device)
    for line in (3, 16, 31, 47):
        expected = x[:, :line].double().sum().item()
        actual = y[:, :line].sum().item(), y[:, :line].mean().item() * 4000 * line
        assert max(abs(total / expected - 1) for total in actual) < 4e-6, line


def test_sums_of_infinities(device):
    infinity = float("inf")
    x = torch.rand(5, 3000)  # of one sign: sums that cancel lose digits
    x[0, 7] = x[1, 2999] = infinity
    x[2, 0], x[2, 2000], x[3, 100] = infinity, -infinity, -infinity
    for there in (x, x.t().contiguous().t()):
        y = there.to(device)
        for op in (torch.sum, torch.mean, torch.nansum, torch.var):
            wanted, got = op(there.double(), 1).float(), op(y, 1).cpu()
            torch.testing.assert_close(got, wanted, equal_nan=True)


def _integers(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(size) < 0.9
    info = torch.iinfo(dtype)
    # the ends of int64 wrap around in sums, as on the CPU
    return torch.randint(info.min, info.max, size, dtype=dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("layout", [contiguous, offset, strided])
@pytest.mark.parametrize("size,dim", CASES)
def test_integers(device, size, dim, layout, dtype):
    x = layout(_integers(size, dtype))
    y = layout(x.to(device))
    ops = [torch.sum, torch.any, torch.all, torch.amax, torch.amin, torch.count_nonzero]
    for op in ops:
        result, expected = op(y, dim), op(x, dim)
        assert result.dtype == expected.dtype
        assert torch.equal(result.cpu(), expected)
    assert torch.equal(y.sum().cpu(), x.sum())
    if dtype != torch.bool:
        assert torch.equal(y.max().cpu(), x.max())
        assert torch.equal(y.prod(dim[0]).cpu(), x.prod(dim[0]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_conditions_met_nowhere_or_everywhere(device, dtype):
    for x in (torch.zeros(40, 67, dtype=dtype), torch.full((40, 67), 1, dtype=dtype)):
        for one_differs in (False, True):
            if one_differs:
                x[37, 65] = 1 - x[37, 65].int()
            y = x.to(device)
            for dim in (0, 1):
                assert torch.equal(y.any(dim).cpu(), x.any(dim))
                assert torch.equal(y.all(dim).cpu(), x.all(dim))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("size", [(3, 15), (3, 8211), (1, 100003), (2, 40, 70)])
def test_places_of_integer_extremes(device, size, dtype):
    x = torch.randint(0, 5, size).to(dtype)
    y = x.to(device)
    for dim in range(len(size)):
        for op in (torch.argmax, torch.argmin):
            assert torch.equal(op(y, dim).cpu(), op(x, dim))
        result, expected = y.max(dim), x.max(dim)
        for on_device, on_cpu in zip(result, expected, strict=True):
            assert torch.equal(on_device.cpu(), on_cpu)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["ties", "rising", "nan", "infinite", "zeros"])
# outputs of no, one and several vectors; rows of no, one and several at once
@pytest.mark.parametrize(
    "size", [(7, 15), (1, 16), (4, 17), (5, 33), (6, 1030), (2, 21, 47), (40000, 16)]
)
def test_places_between_rows(device, size, kind, dtype):
    x = _values(kind, size, dtype)
    whole = torch.zeros(x.numel() + 3, dtype=dtype, device=device)
    y = whole[3:].view(size).copy_(x)
    dim = len(size) - 2
    for op in (torch.max, torch.min):
        for on_cpu, on_device in zip(op(x, dim), op(y, dim), strict=True):
            torch.testing.assert_close(
                on_device.cpu(), on_cpu, rtol=0, atol=0, equal_nan=True
            )
    assert torch.equal(y.argmax(dim).cpu(), x.argmax(dim))


@pytest.mark.parametrize("size,dim", [((3, 70), ()), ((2, 0), (1,)), ((0, 3), (0,))])
def test_sum_in_another_dtype(device, size, dim):
    x = torch.randn(size).mul(9)
    for given, wanted in [
        (torch.int8, torch.int32),
        (torch.bool, torch.float32),
        (torch.int32, torch.float64),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.int64),
    ]:
        y = x.to(given)
        result = y.to(device).sum(dim, dtype=wanted)
        torch.testing.assert_close(result.cpu(), y.sum(dim, dtype=wanted))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("name", ["mean", "nansum", "nanmean"])
def test_fractions_are_not_written_to_integers(device, name, dtype):
    x = torch.rand(5, 3)
    function = getattr(torch, name)
    for size, dim in ((3, 0), (5, 1)):
        with pytest.raises(RuntimeError):
            function(x, dim, out=torch.zeros(size, dtype=dtype))
        out = torch.full((size,), 1, dtype=dtype, device=device)
        with pytest.raises(RuntimeError, match=r"not implemented for|can't be cast"):
            function(x.to(device), dim, out=out)
        assert out.cpu().eq(1).all()


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 4, 3), (5, 1, 7)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_into_outs_of_two_layouts(device, name, size):
    x = torch.randn(size)
    function = getattr(torch, name)
    expected = function(x, 1, keepdim=True)
    shape = expected.values.shape
    values = torch.empty(shape[::-1], device=device).permute(2, 1, 0)
    strides = (50, 7, 1) if shape[2] < 7 else (70, 70, 2)
    indices = torch.empty(999, dtype=torch.long, device=device)
    function(x.to(device), 1, True, out=(values, indices.as_strided(shape, strides)))
    torch.testing.assert_close(values.cpu(), expected.values)
    assert torch.equal(indices.as_strided(shape, strides).cpu(), expected.indices)


@pytest.mark.parametrize("rows", [289, 1100, 2000])
def test_rows_that_parts_do_not_divide(device, rows):
    """Of more rows behind the last one, which no part may read."""
    x = torch.randn(rows + 111, 1024)
    x[rows:] = 5 * x.abs().max()
    below, kept = x.to(device)[:rows], x[:rows]
    for op in (torch.argmax, torch.argmin):
        assert torch.equal(op(below, 0).cpu(), op(kept, 0))
        assert torch.equal(op(-below, 0).cpu(), op(-kept, 0))
    for op in (torch.max, torch.min):
        found, expected = op(below, 0), op(kept, 0)
        assert torch.equal(found.values.cpu(), expected.values)
        assert torch.equal(found.indices.cpu(), expected.indices)
    torch.testing.assert_close(below.sum(0).cpu(), kept.sum(0), rtol=1e-4, atol=1e-3)


# Rows that a GPU's work-items share, of which the last two are split, too.
_COLUMNS = [(33, 5), (300, 131), (4097, 9), (5000, 1030), (40000, 3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16])
@pytest.mark.parametrize("size", _COLUMNS)
def test_columns(device, size, dtype):
    x = torch.randn(size) * 3
    x = x.to(dtype)
    exact = x.double()
    ours = x.to(device)
    ours_between = torch.stack([ours, ours + 1], -1)[..., 0]
    for given in (ours, ours_between):
        assert torch.equal(given.argmax(0).cpu(), x.argmax(0))
        found = given.max(0)
        assert torch.equal(found.values.cpu(), x.max(0).values)
        assert torch.equal(found.indices.cpu(), x.max(0).indices)
        assert torch.equal(given.amin(0).cpu(), x.amin(0))
        total = given.sum(0, dtype=torch.float32).cpu()
        torch.testing.assert_close(total.double(), exact.sum(0), rtol=1e-5, atol=2e-3)
        spread = given.float().std(0).cpu()
        torch.testing.assert_close(spread.double(), exact.std(0), rtol=1e-5, atol=1e-5)
