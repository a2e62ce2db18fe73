"""Compiled reductions: long ones, few and many results, along rows and columns."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._inductor.utils import run_and_get_code

pytestmark = [pytest.mark.gpu_class, pytest.mark.usefixtures("fresh_inductor")]

_REDUCTIONS = {
    "sum": lambda x, dim: (x * 2).sum(dim),
    "mean": lambda x, dim: x.exp().mean(dim),
    "var": lambda x, dim: (x + 100).var(dim),
    "amax": lambda x, dim: (-x).amax(dim),
    "any": lambda x, dim: (x > 3.5).any(dim),
    "logsumexp": lambda x, dim: x.logsumexp(dim),
}
# Inductor divides those on GPUs.
_LONG = [((3001, 37), 0), ((40000, 3), 0), ((70001,), 0), ((5, 9000), 1)]
_OTHERS = [((130, 5000), 0), ((33, 9), 0), ((300, 256), 1), ((301, 700), 1)]


@pytest.mark.parametrize("size,dim", [*_LONG, *_OTHERS])
@pytest.mark.parametrize("name", _REDUCTIONS)
def test_reductions(device, name, size, dim):
    x = torch.randn(size)
    function = torch.compile(_REDUCTIONS[name], dynamic=False)
    found = function(x.to(device), dim).cpu()
    expected = _REDUCTIONS[name](x.double(), dim).to(found.dtype)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * size[dim] ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(2000, 40), (300, 768), (129, 770)])
def test_gradients_of_normalisations(device, size, dtype):
    def function(x, weight, bias):
        return F.gelu(F.layer_norm(x, x.shape[-1:], weight, bias)).square().mean()

    given = [torch.randn(size), torch.rand(size[1]) + 0.5, torch.randn(size[1])]
    ours = [t.to(device, dtype).requires_grad_() for t in given]
    theirs = [t.detach().cpu().double().requires_grad_() for t in ours]
    torch.compile(function, dynamic=False)(*ours).backward()
    function(*theirs).backward()
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    for mine, other in zip(ours, theirs, strict=True):
        scale = other.grad.abs().max().item()
        torch.testing.assert_close(
            mine.grad.cpu().double(), other.grad, rtol=0, atol=tolerance * scale
        )


def test_sizes_that_change(device):
    function = torch.compile(lambda x: (x * 2).sum(0), dynamic=True)
    for size in ((3000, 20), (4001, 31), (5, 20), (20, 3000)):
        x = torch.randn(size)
        torch.testing.assert_close(
            function(x.to(device)).cpu(), (x * 2).sum(0), rtol=1e-4, atol=1e-3
        )


def test_gpus_read_neighbours(device, request):
    """Rows by work-groups, columns by work-items, and few results in two steps."""
    if not request.config.getoption("gpu_class"):
        pytest.skip("of GPUs")

    def kernels(dim, *size):
        function = torch.compile(lambda x: (x * 2).sum(dim), dynamic=False)
        _, (code,) = run_and_get_code(function, torch.randn(size, device=device))
        return [
            "group" if "rest = get_group_id" in text else "item"
            for text in code.split("compiled_kernel('")[1:]
        ]

    assert kernels(1, 5000, 300) == ["group"]
    assert kernels(1, 20000, 40) == ["group"]
    assert kernels(0, 40, 20000) == ["item"]
    assert len(kernels(0, 20000, 40)) == 2
    assert len(kernels(0, 1 << 20)) == 2
