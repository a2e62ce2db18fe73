"""Sparse COO tensors: what embedding(sparse=True) and SparseAdam need, and the
arithmetic between sparse and dense tensors."""

from __future__ import annotations

import io

import pytest
import torch
from against_cpu import check

# sizes, sparse dimensions, entries (with repeated places)
_FORMS = {
    "rows": ((7, 5), 1, 11),
    "scattered": ((3, 4, 2), 3, 13),
    "hybrid": ((5, 3, 4), 2, 9),
    "one entry": ((5, 3), 2, 1),
    "empty": ((5, 3), 2, 0),
}


def _sparse(form: str, seed: int = 0, dtype=torch.float32) -> torch.Tensor:
    sizes, dims, entries = _FORMS[form]
    generator = torch.Generator().manual_seed(seed)
    rows = [
        torch.randint(0, size, (entries,), generator=generator) for size in sizes[:dims]
    ]
    values = torch.randn(entries, *sizes[dims:], generator=generator).to(dtype)
    return torch.sparse_coo_tensor(
        torch.stack(rows), values, sizes, check_invariants=False
    )


def _same(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert result.device.type == "opencl"
    assert (result.layout, result.dtype) == (expected.layout, expected.dtype)
    if expected.is_sparse:
        assert result.is_coalesced() == expected.is_coalesced()
        result, expected = result.to_dense(), expected.to_dense()
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("form", _FORMS)
def test_coalesce_sums_repeated_places(device, form):
    expected = _sparse(form)
    result = expected.to(device).coalesce()
    expected = expected.coalesce()
    assert torch.equal(result.indices().cpu(), expected.indices())
    torch.testing.assert_close(result.values().cpu(), expected.values())


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16])
def test_coalesce_dtypes(device, dtype):
    sparse = _sparse("rows", dtype=dtype)
    _same(sparse.to(device).coalesce(), sparse.coalesce())


@pytest.mark.parametrize("form", _FORMS)
def test_arithmetic(device, form):
    left, right = _sparse(form, 1), _sparse(form, 2)
    dense = torch.randn(left.shape)
    on = [tensor.to(device) for tensor in (left, right, dense)]
    for function in (
        lambda a, b, x: x + a,
        lambda a, b, x: torch.add(x.mT.contiguous().mT, a, alpha=-0.5),
        lambda a, b, x: (a + b).coalesce(),
        lambda a, b, x: (a - b * 2).coalesce(),
        lambda a, b, x: (a.coalesce() * b.coalesce()).coalesce(),
        lambda a, b, x: (a * x).coalesce(),
        lambda a, b, x: a.to_dense(),
        lambda a, b, x: x.sparse_mask(a.coalesce()),
        lambda a, b, x: a.coalesce().sparse_mask(b.coalesce()),
        lambda a, b, x: (a * -3).coalesce().abs().sqrt(),
        lambda a, b, x: torch.sparse.sum(a, 0),
        lambda a, b, x: a.sum(),
        lambda a, b, x: a.coalesce().norm(),
    ):
        _same(function(*on), function(left, right, dense))


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("accumulate", [False, True])
def test_projection_on_a_mask(device, form, accumulate):
    values, mask = _sparse(form, 1), _sparse(form, 2)
    for left, right in [
        (values, mask),
        (values.coalesce(), mask),
        (values, mask.coalesce()),
    ]:
        project = torch.ops.aten._sparse_mask_projection
        result = project(left.to(device), right.to(device), accumulate)
        expected = project(left, right, accumulate)
        torch.testing.assert_close(result.to_dense().cpu(), expected.to_dense())


def test_from_dense(device):
    dense = torch.randn(5, 3, 4)
    dense[dense.abs() < 1] = 0
    _same(dense.to(device).to_sparse(), dense.to_sparse())
    _same(dense.to(device).to_sparse(1), dense.to_sparse(1))


def test_product_with_dense(device):
    matrix = torch.randn(5, 7)
    matrix[matrix.abs() < 1] = 0
    check(lambda a, x: torch.sparse.mm(a, x), [matrix, torch.randn(7, 3)], device)
    sparse, x, bias = matrix.to_sparse(), torch.randn(7, 3), torch.randn(3)
    expected = torch.addmm(bias.expand(5, 3), sparse, x, beta=0.5, alpha=2.0)
    result = torch.addmm(
        bias.to(device).expand(5, 3), sparse.to(device), x.to(device), beta=0.5, alpha=2
    )
    _same(result, expected)
    with pytest.raises(RuntimeError, match="Expected dim 0 size 7, got 5"):
        torch.sparse.mm(sparse.to(device), torch.zeros(5, 3, device=device))


def test_gradient_of_a_sparse_embedding(device):
    weight, index = torch.randn(10, 4), torch.tensor([[1, 1, 5], [9, 5, 1]])
    gradients = []
    for place in ("cpu", device):
        parameter = weight.clone().to(place).requires_grad_()
        output = torch.nn.functional.embedding(index.to(place), parameter, sparse=True)
        output.pow(2).sum().backward()
        gradients.append(parameter.grad)
    _same(gradients[1], gradients[0])


def test_saved_printed_and_moved(device):
    sparse = _sparse("hybrid").coalesce()
    there = sparse.to(device)
    assert f"device='{device}'" in repr(there) and "nnz=" in repr(there)
    buffer = io.BytesIO()
    torch.save(there, buffer)
    for place in (None, "cpu"):
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=place)
        torch.testing.assert_close(loaded.cpu().to_dense(), sparse.to_dense())


def test_errors_are_torchs(device):
    sparse = _sparse("rows").to(device)
    with pytest.raises(RuntimeError, match="add\\(sparse, dense\\) is not supported"):
        sparse + torch.zeros(7, 5, device=device)
    with pytest.raises(RuntimeError, match="op2-sparse addition"):
        torch.zeros(7, 1, device=device) + sparse


def test_bmm_refuses_another_dtype(device):
    x = torch.rand(2, 3, 4, dtype=torch.float64).to_sparse().to(device)
    with pytest.raises(RuntimeError, match="Double"):
        torch.bmm(x, torch.rand(2, 4, 5, device=device))
