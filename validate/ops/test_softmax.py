"""Softmax and log-softmax, forward and backward, along any dimension."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import (
    FLOATS,
    channels_last,
    check,
    contiguous,
    offset,
    strided,
    transposed,
)

OPS = [F.softmax, F.log_softmax]
# Around a vector's 16 lanes, what a work-item (8), some (128) and groups (1024, 2048)
# keep of a row, and a block of sums (1024).
ROWS = [1, 2, 7, 9, 15, 16, 17, 49, 127, 128, 129, 1023, 1025, 2048, 2049, 5000]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", ROWS)
def test_row_sizes(device, op, size):
    check(lambda x: op(x, -1), [torch.randn(5, size) * 3], device, strides=True)
    check(lambda x: op(x, 0), [torch.randn(size, 19) * 3], device, strides=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("inner", [2, 15, 16, 33])
@pytest.mark.parametrize("size", [63, 65, 131, 1500])
def test_groups_of_rows_side_by_side(device, op, size, inner):
    check(lambda x: op(x, 1), [torch.randn(3, size, inner) * 3], device)


@pytest.mark.parametrize("op", OPS)
def test_special_values_of_long_rows(device, op):
    x = torch.randn(6, 9000)
    x[0] = -float("inf")
    x[1, :4500] = -float("inf")
    x[2, 4500:] = -float("inf")
    x[3, 7000] = float("inf")
    x[4, 7000] = float("nan")
    x[5, :3000] = float("nan")
    check(lambda x: op(x, 1), [x], device, backward=False)
    check(lambda x: op(x, 0), [x.t().contiguous()], device, backward=False)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "layout", [contiguous, channels_last, transposed, strided, offset]
)
def test_dimensions_and_layouts(device, op, dim, layout):
    x = layout(torch.randn(3, 18, 5, 21))
    check(lambda x: op(x, dim), [x], device)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1])
def test_dtypes(device, op, dtype, dim):
    check(lambda x: op(x, dim), [torch.randn(70, 130)], device, dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", [(), (1,), (0,), (0, 3), (3, 0), (1, 1, 1, 1)])
def test_small(device, op, size):
    check(lambda x: op(x, 0), [torch.randn(size)], device)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dim", [0, 1])
def test_special_values(device, op, dim):
    x = torch.randn(64, 64)
    x[0] = -float("inf")
    x[:, 0] = -float("inf")
    x[1, 5:] = -float("inf")
    x[2, 9] = float("inf")
    x[3, 17] = float("nan")
    x[4] = 1e30
    x[5] = -1e30
    check(lambda x: op(x, dim), [x], device, backward=False)


@pytest.mark.parametrize("op", OPS)
def test_many_dimensions(device, op):
    x = torch.randn(2, 3, 2, 2, 3, 2, 2)
    x = x.permute(6, 1, 4, 3, 0, 2, 5)[:, :, ::2]
    check(lambda x: op(x, 3), [x], device)


@pytest.mark.parametrize("op", OPS)
def test_expanded(device, op):
    row = torch.randn(1, 60)
    expected = op(row.expand(7, 60), 1)
    result = op(row.to(device).expand(7, 60), 1)
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("op", OPS)
def test_dtype_argument(device, op):
    x = torch.randn(9, 100).half()
    expected = op(x, 1, dtype=torch.float32)
    result = op(x.to(device), 1, dtype=torch.float32)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.cpu(), expected)


def test_half_to_float(device):
    x = torch.randn(9, 100).half()
    for op, cpu in (
        (torch.ops.aten._softmax, F.softmax),
        (torch.ops.aten._log_softmax, F.log_softmax),
    ):
        result = op(x.to(device), 1, True)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.cpu(), cpu(x.float(), 1))
    leaf = x.to(device).requires_grad_()
    F.softmax(leaf, 1, dtype=torch.float32).square().sum().backward()
    host = x.clone().requires_grad_()
    F.softmax(host, 1, dtype=torch.float32).square().sum().backward()
    assert leaf.grad.dtype == torch.float16
    torch.testing.assert_close(leaf.grad.cpu(), host.grad)


def test_out(device):
    x = torch.randn(6, 50)
    out = torch.full((50, 12), float("nan"), device=device)
    view = out.t()[::2]
    torch.softmax(x.to(device), 1, out=view)
    torch.testing.assert_close(view.cpu(), torch.softmax(x, 1))
    assert out.cpu().t()[1::2].isnan().all()


def test_logsumexp(device):
    check(lambda x: torch.logsumexp(x, 1), [torch.randn(5, 77)], device)


@pytest.mark.parametrize("op", OPS)
def test_errors(device, op):
    x = torch.ones(3, 4)
    with pytest.raises(IndexError, match="Dimension out of range"):
        op(x.to(device), 2)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        op(x.long().to(device), 1)


@pytest.mark.parametrize("inner", [1, 16, 63, 64, 130])
@pytest.mark.parametrize("size", [1, 21, 64, 65])
def test_rows_side_by_side(device, size, inner):
    x = torch.randn(3, size, inner)
    x[0, 0, 0] = -float("inf")
    if size > 1:
        x[1, :, 0] = -float("inf")
        x[2, 1, inner // 2] = float("nan")
    for call in (lambda x: x.softmax(1), lambda x: x.log_softmax(1)):
        check(call, [x], device)
        check(call, [x[:, :, ::2]], device)


@pytest.mark.parametrize("size,dim", [((1, 2, 4 << 20), 1), ((8390, 1001), 1)])
def test_results_past_the_caches(device, size, dim):
    check(lambda x: x.softmax(dim), [torch.randn(size)], device)
