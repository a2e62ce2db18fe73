"""Ops that run on the CPU by decision: right, quiet and uncounted. The tests'
policy forbids every other fallback."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch_opencl

_CALLS = {
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + 3 * torch.eye(3).to(x)),
    "solve": lambda x: torch.linalg.solve(x, x[:, :2]),
    "qr": lambda x: torch.linalg.qr(x)[1].abs(),
    "svd": torch.linalg.svdvals,
    "det": torch.linalg.det,
}


@pytest.mark.parametrize("name", _CALLS)
def test_is_quiet(device, name):
    x = torch.randn(3, 3) + 2 * torch.eye(3)
    torch.opencl.reset_fallback_stats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = _CALLS[name](x.to(device))
    assert result.device == device
    torch.testing.assert_close(result.cpu(), _CALLS[name](x))
    assert torch.opencl.fallback_stats() == {}


def test_names_are_aten_families():
    families = {
        name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()
    }
    declared = torch_opencl._C._cpu_on_purpose()
    assert declared == sorted(declared)
    assert set(declared) <= families


def test_lstsq_has_the_cpus_strides(device):
    for size in ((5, 3), (3, 5), (2, 5, 3)):
        a, b = torch.randn(size), torch.randn(*size[:-1], 2)
        expected = torch.linalg.lstsq(a, b)
        result = torch.linalg.lstsq(a.to(device), b.to(device))
        for value, reference in zip(result, expected, strict=True):
            assert value.stride() == reference.stride()
            torch.testing.assert_close(value.cpu(), reference)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("of", ["given", "mT", "mH", "conj"])
def test_triangular_solves_have_the_cpus_strides(device, of, left):
    a = torch.randn(2, 3, 3, dtype=torch.complex64) + 4 * torch.eye(3)
    b = torch.randn(2, 3, 5) if left else torch.randn(2, 5, 3)
    given = [a.triu(), b.to(a.dtype)]

    def solve(*tensors: torch.Tensor) -> list[torch.Tensor]:
        matrix, right = (x.requires_grad_() for x in tensors)
        seen = {"mT": matrix.mT, "mH": matrix.mH, "conj": matrix.conj()}
        upper = of in ("given", "conj")
        x = torch.linalg.solve_triangular(
            seen.get(of, matrix), right, upper=upper, left=left
        )
        x.backward(torch.ones_like(x))
        return [x.detach(), matrix.grad, right.grad]

    expected = solve(*(x.clone() for x in given))
    results = solve(*(x.to(device) for x in given))
    for value, reference in zip(results, expected, strict=True):
        assert value.stride() == reference.stride()
        torch.testing.assert_close(value.cpu(), reference)


def test_a_resized_out_with_gaps_has_the_cpus_strides(device):
    a, b = torch.randn(2, 3, 3) + 4 * torch.eye(3), torch.randn(2, 3, 2)

    def solve(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outs = a.new_ones(2), a.new_ones(4)[::2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that they are resized; deprecation
            torch.triangular_solve(b, a, out=outs)
        return outs

    results = solve(a.to(device), b.to(device))
    for value, reference in zip(results, solve(a, b), strict=True):
        assert value.stride() == reference.stride()
        torch.testing.assert_close(value.cpu(), reference)


def _laid_out(x: torch.Tensor) -> dict[str, torch.Tensor]:
    rows = torch.zeros(2, 7, 4, device=x.device, dtype=x.dtype)[:, :3, :3]
    matrices = torch.zeros(2, 28, device=x.device, dtype=x.dtype)[:, :9]
    return {
        "contiguous": x,
        "transposed": x.mT.contiguous().mT,
        "between rows": rows.copy_(x),
        "between matrices": matrices.view(2, 3, 3).copy_(x),
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.det,
        torch.linalg.slogdet,
        torch.linalg.inv,
        torch.logdet,
        lambda x: torch.linalg.solve(x, x[..., :2] * 2 + 1),
        lambda x: torch.linalg.solve(x, x * 2 + 1, left=False),
        torch.linalg.lu_factor,
    ],
    ids=["det", "slogdet", "inv", "logdet", "solve", "solve right", "lu_factor"],
)
def test_gradients_of_any_layout(device, function, dtype):
    x = torch.randn(2, 3, 3, dtype=dtype)
    x = x + 3 * torch.eye(3, dtype=dtype)
    for name, matrix in _laid_out(x.to(device)).items():
        gradients = []
        for leaf in (matrix.detach(), x.detach()):
            outputs = function(leaf.requires_grad_())
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            weights = [torch.arange(1, y.numel() + 1).to(y).view_as(y) for y in outputs]
            total = sum(
                (y * weight).abs().sum()
                for y, weight in zip(outputs, weights, strict=True)
                if y.requires_grad
            )
            gradients.append(torch.autograd.grad(total, leaf)[0].cpu())
        torch.testing.assert_close(*gradients, msg=f"{name}: {gradients}")


# torch's CPU writes past the end of an `out` that lies like the first two.
@pytest.mark.parametrize("order", [(2, 0, 1, 3), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("size", [0, 4])
def test_out_in_any_order(device, order, size):
    """An ``out`` keeps its strides where it has the right size."""
    batch = (3, 2) if len(order) == 4 else (3,)
    a = torch.randn(*batch, 4, 5, device=device)
    sizes = [(*batch, 4, 4), (*batch, 4, 4), (*batch, 4, 5)]

    def lying(shape):
        permuted = torch.empty([shape[i] for i in order], device=device)
        return permuted.permute([order.index(i) for i in range(len(order))])

    outs = [lying(shape if size else (0,) * len(shape)) for shape in sizes]
    strides = [out.stride() for out in outs]
    results = torch.linalg.lu(a, out=outs)
    for out, result, stride, wanted in zip(outs, results, strides, sizes, strict=True):
        assert out.data_ptr() == result.data_ptr()
        assert out.shape == wanted
        assert not size or out.stride() == stride
    permutation, lower, upper = (out.cpu() for out in outs)
    torch.testing.assert_close(permutation @ lower @ upper, a.cpu())
    assert torch.equal(upper, upper.triu())
