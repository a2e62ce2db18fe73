"""Matrix products: shapes around the tiles, any strides, alpha and beta."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, check, contiguous, move, offset, strided, transposed
from tolerance import assert_matches, assert_same_strides

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# (rows, depth, columns): none, one, primes, a vector's 16 columns, tiles of
# 8 x 48 (CPUs) and 64 x 64 (GPUs), a packing block's 128 depths, the 256 rows
# of a tall-skinny product's work-item.
SHAPES = [
    (1, 1, 1),
    (1, 300, 1),
    (1, 257, 1000),
    (1000, 257, 1),
    (3, 512, 130),
    (7, 5, 3),
    (8, 128, 48),
    (9, 129, 49),
    (16, 19, 521),
    (515, 41, 2),
    (17, 31, 13),
    (64, 16, 64),
    (65, 17, 63),
    (101, 1, 103),
    (131, 277, 97),
]
EMPTY = [(0, 3, 4), (3, 4, 0), (3, 0, 4), (0, 0, 0)]
MATRIX_LAYOUTS = (contiguous, transposed, strided, offset)


def expanded(matrix: torch.Tensor) -> torch.Tensor:
    return matrix[:1].expand_as(matrix)


def reversed_batch(matrices: torch.Tensor) -> torch.Tensor:
    return matrices.transpose(0, 1).contiguous().transpose(0, 1)


def _nan(*size: int) -> torch.Tensor:
    return torch.full(size, float("nan"))


@pytest.mark.parametrize("shape", SHAPES + EMPTY)
def test_mm(device, shape):
    m, k, n = shape
    check(torch.mm, [torch.randn(m, k), torch.randn(k, n)], device, strides=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape", [(1, 300, 77), (7, 43, 300), (33, 65, 49), (130, 40, 1)]
)
def test_mm_dtypes(device, shape, dtype):
    m, k, n = shape
    check(torch.mm, [torch.randn(m, k), torch.randn(k, n)], device, dtype)


@pytest.mark.parametrize("right", [*MATRIX_LAYOUTS, expanded])
@pytest.mark.parametrize("left", [*MATRIX_LAYOUTS, expanded])
@pytest.mark.parametrize("rows", [1, 6, 37])
def test_mm_layouts(device, rows, left, right):
    a, b = left(torch.randn(rows, 29)), right(torch.randn(29, 53))
    check(torch.mm, [a, b], device)


# Read unpacked where they are as wide as tiles: the right one, the left one.
@pytest.mark.parametrize("right", [contiguous, strided, offset, expanded])
@pytest.mark.parametrize("left", [contiguous, strided, offset, expanded])
@pytest.mark.parametrize(
    "shape",
    [(30, 300, 95), (95, 257, 30), (48, 19, 48), (530, 17, 95), (530, 33, 95)],
)
def test_mm_of_operands_in_place(device, shape, left, right):
    m, k, n = shape
    a, b = left(torch.randn(m, k)), right(torch.randn(k, n))
    check(torch.mm, [a, b], device)
    check(torch.mm, [a.double(), b.double()], device, torch.float64)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("few", [1, 2, 4, 5, 8, 9])
def test_few_rows_by_a_transposed_matrix(device, few, dtype):
    x, weight = torch.randn(few, 4133), torch.randn(19, 4133)
    check(lambda x, w: torch.mm(x, w.t()), [x, weight], device, dtype)
    batches = [torch.randn(2, few, 37), torch.randn(2, 21, 37)]
    check(lambda x, w: torch.bmm(x, w.mT), batches, device, dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 19, 33), (4, 0, 3)])
def test_mm_integers_wrap_around(device, shape, dtype):
    m, k, n = shape
    a = torch.randint(0, 100, (k, m), dtype=dtype).t()
    b = torch.randint(0, 100, (k, n), dtype=dtype)
    self = torch.randint(0, 100, (m, n), dtype=dtype)
    assert torch.equal((a.to(device) @ b.to(device)).cpu(), a @ b)
    result = torch.addmm(*(t.to(device) for t in (self, a, b)), beta=2, alpha=3)
    assert torch.equal(result.cpu(), torch.addmm(self, a, b, beta=2, alpha=3))


@pytest.mark.parametrize("beta", [0, 1, -0.5])
@pytest.mark.parametrize("alpha", [0, 1, 2.5])
@pytest.mark.parametrize("size", [(37, 53), (53,), (37, 1), (1, 1), ()])
def test_addmm(device, size, alpha, beta):
    check(
        lambda self, a, b: torch.addmm(self, a, b, beta=beta, alpha=alpha),
        [torch.randn(size), torch.randn(37, 29), torch.randn(29, 53)],
        device,
    )


@pytest.mark.parametrize("shape", [*EMPTY, (1, 0, 1)])
def test_addmm_empty(device, shape):
    m, k, n = shape
    inputs = [torch.randn(m, n), torch.randn(m, k), torch.randn(k, n)]
    check(lambda *t: torch.addmm(*t, beta=1.5, alpha=2), inputs, device)


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_addmm_self_strides(device, dtype, layout):
    inputs = [layout(torch.randn(21, 50)), torch.randn(21, 40), torch.randn(40, 50)]
    check(lambda *t: torch.addmm(*t, beta=0.5, alpha=1.5), inputs, device, dtype)


@pytest.mark.parametrize("rows", [1, 37])
def test_beta_of_zero_ignores_self(device, rows):
    a, b = torch.rand(2, rows, 29), torch.rand(2, 29, 53)  # a sum of one may cancel
    self = _nan(2, rows, 53)
    for function, tensors in (
        (torch.addmm, (self[0], a[0], b[0])),
        (torch.baddbmm, (self, a, b)),
        (torch.addmv, (self[0, :, 0], a[0], b[0, :, 0])),
    ):
        result = function(*(t.to(device) for t in tensors), beta=0)
        reference = function(*(t.double() for t in tensors), beta=0)
        assert_matches(result, reference, function(*tensors, beta=0))


def test_products_spread_nan_and_infinity(device):
    a, b = torch.randn(20, 33), torch.randn(33, 50)
    a[3, 4], a[5, 6], b[7, 8] = float("nan"), float("inf"), float("-inf")
    check(torch.mm, [a, b], device, backward=False)


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 29, 53), (37, 29, 53), (37, 29, 1)])
def test_out_keeps_its_strides(device, shape, layout):
    m, k, n = shape
    a, b = torch.randn(m, k), torch.randn(k, n)
    poisoned = move(layout(_nan(m, n)), device)
    before = poisoned.stride(), poisoned.data_ptr()
    torch.mm(a.to(device), b.to(device), out=poisoned)
    assert (poisoned.stride(), poisoned.data_ptr()) == before
    assert_matches(poisoned, a.double() @ b.double(), a @ b)


def test_in_place(device):
    self, a, b = torch.randn(20, 30), torch.randn(20, 7), torch.randn(7, 30)
    wide = torch.randn(20, 60, device=device)
    odd = wide[:, 1::2].clone()
    wide[:, ::2] = self.to(device)
    wide[:, ::2].addmm_(a.to(device), b.to(device), beta=0.5, alpha=2)
    reference = self.double().addmm_(a.double(), b.double(), beta=0.5, alpha=2)
    baseline = self.clone().addmm_(a, b, beta=0.5, alpha=2)
    assert_matches(wide[:, ::2], reference, baseline)
    assert torch.equal(wide[:, 1::2].cpu(), odd.cpu())


@pytest.mark.parametrize("shape", [(30, 20, 95), (95, 20, 30), (131, 20, 131)])
@pytest.mark.parametrize("columns_first", [False, True])
def test_in_place_adds_once(device, shape, columns_first):
    m, k, n = shape
    self, a, b = torch.randn(m, n), torch.randn(m, k), torch.randn(k, n)
    mine = self.to(device)
    if columns_first:
        mine = mine.t().contiguous().t()
    mine.addmm_(a.to(device), b.to(device), beta=0.5, alpha=2)
    reference = self.double().addmm_(a.double(), b.double(), beta=0.5, alpha=2)
    baseline = self.clone().addmm_(a, b, beta=0.5, alpha=2)
    assert_matches(mine, reference, baseline)


def test_long_sums_keep_their_precision(device):
    # All terms of one sign: errors do not cancel.
    check(torch.mm, [torch.rand(3, 50000) + 1, torch.rand(50000, 40)], device)


def test_repeats_bit_for_bit(device):
    a, b = (torch.randn(131, 131, device=device) for _ in range(2))
    assert torch.equal((a @ b).cpu(), (a @ b).cpu())


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("shape", SHAPES[:8] + EMPTY)
def test_bmm(device, size, shape):
    m, k, n = shape
    check(torch.bmm, [torch.randn(size, m, k), torch.randn(size, k, n)], device)


# Of so many tiles that some are blocked over the depth.
@pytest.mark.parametrize("right", [contiguous, transposed, expanded, reversed_batch])
@pytest.mark.parametrize("left", [contiguous, transposed, expanded, reversed_batch])
def test_bmm_of_many_tiles(device, left, right):
    a, b = left(torch.randn(40, 150, 260)), right(torch.randn(40, 260, 97))
    check(torch.bmm, [a, b], device)


@pytest.mark.parametrize("right", [*MATRIX_LAYOUTS, expanded, reversed_batch])
@pytest.mark.parametrize("left", [*MATRIX_LAYOUTS, expanded, reversed_batch])
def test_bmm_layouts(device, left, right):
    a, b = left(torch.randn(4, 17, 29)), right(torch.randn(4, 29, 53))
    check(torch.bmm, [a, b], device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(3, 17, 20), (17, 20), (3, 1, 20), (1,)])
def test_baddbmm(device, size, dtype):
    check(
        lambda *t: torch.baddbmm(*t, beta=0.5, alpha=2),
        [torch.randn(size), torch.randn(3, 17, 9), torch.randn(3, 9, 20)],
        device,
        dtype,
    )


@pytest.mark.parametrize("size", [(4, 5), (2, 4, 5), (2, 3, 4, 5)])
def test_matmul_and_linear(device, size):
    check(torch.matmul, [torch.randn(size), torch.randn(5, 6)], device)
    check(torch.matmul, [torch.randn(size), torch.randn(5)], device)
    check(torch.matmul, [torch.randn(4), torch.randn(size)], device)
    check(
        torch.nn.functional.linear,
        [torch.randn(size), torch.randn(7, 5), torch.randn(7)],
        device,
    )
    check(torch.nn.functional.linear, [torch.randn(size), torch.randn(7, 5)], device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1), (37, 300), (300, 37)])
def test_mv_and_addmv(device, shape, layout, dtype):
    m, k = shape
    matrix = layout(torch.randn(m, k))
    check(torch.mv, [matrix, torch.randn(2 * k)[::2]], device, dtype)
    check(
        lambda *t: torch.addmv(*t, beta=2, alpha=0.5),
        [torch.randn(m), matrix, torch.randn(k)],
        device,
        dtype,
    )


def test_addmv_without_depth(device):
    inputs = [torch.randn(5), torch.randn(5, 0), torch.randn(0)]
    check(lambda *t: torch.addmv(*t, beta=2), inputs, device)


@pytest.mark.parametrize("function", [torch.dot, torch.vdot])
@pytest.mark.parametrize("size", [0, 1, 1009])
def test_dot(device, size, function):
    a, b = torch.randn(size), torch.randn(2 * size)
    # Products of one sign: a sum that cancels has no relative accuracy.
    check(function, [a, b.copysign_(a.repeat_interleave(2))[::2]], device)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_dot_integers(device, dtype):
    a, b = (torch.randint(0, 50, (101,), dtype=dtype) for _ in range(2))
    assert torch.equal(torch.dot(a.to(device), b.to(device)).cpu(), torch.dot(a, b))


def test_out_of_another_shape_or_dtype(device):
    a, b = torch.randn(3, 4, device=device), torch.randn(4, 5, device=device)
    out = torch.empty(0, device=device)
    assert torch.mm(a, b, out=out) is out
    assert_same_strides(out, torch.empty(3, 5))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        torch.mm(a, b, out=torch.empty(3, 5, dtype=torch.int32, device=device))


def test_errors_are_torchs(device):
    def on(*size, dtype=torch.float32):
        return torch.ones(size, dtype=dtype, device=device)

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multipl"):
        torch.mm(on(2, 3), on(4, 5))
    with pytest.raises(RuntimeError, match="expected m1 and m2 to have the same dtype"):
        torch.mm(on(2, 3), on(3, 2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="self and mat2 must have the same dtype"):
        torch.addmm(on(2, 2, dtype=torch.float64), on(2, 3), on(3, 2))
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Do"):
        torch.bmm(on(1, 2, 3), on(1, 3, 2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="Input dtypes must be the same"):
        torch.baddbmm(on(1, 2, 2, dtype=torch.float64), on(1, 2, 3), on(1, 3, 2))
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        torch.mv(on(2, 3), on(3, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.mm(on(2, 3, dtype=torch.bool), on(3, 2, dtype=torch.bool))
    nothing = torch.mm(on(2, 0, dtype=torch.bool), on(0, 2, dtype=torch.bool))
    assert nothing.tolist() == [[False, False]] * 2
    with pytest.raises(
        RuntimeError, match=r"[Ee]xpected size for first two dimensions"
    ):
        torch.bmm(on(2, 3, 4), on(2, 3, 4))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        torch.dot(on(3), on(4))
    with pytest.raises(RuntimeError, match="1D tensors expected"):
        torch.dot(on(3, 1), on(3, 1))
    with pytest.raises(RuntimeError, match="same device"):
        torch.mm(on(2, 3), torch.ones(3, 2))


@pytest.mark.parametrize("op", [torch.dot, torch.vdot, torch.matmul])
def test_dot_of_halves_adds_up_floats(device, op):
    small = torch.full((10_000,), 1e-4).half().to(device)
    assert abs(op(small, small).item() - 1e-4) < 1e-6
    large, other = (torch.tensor([300.0, x]).half().to(device) for x in (300, -300))
    assert op(large, other).item() == 0
