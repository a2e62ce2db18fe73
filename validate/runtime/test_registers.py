"""Kernels of products and convolutions for CPUs that this one is not: with AVX-512
where it has none, and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from script import run_script


def _other_registers() -> str:
    cpu = Path("/proc/cpuinfo")
    if not cpu.exists():
        pytest.skip("which registers this CPU has is not known")
    return "narrow" if "avx512f" in cpu.read_text().split() else "wide"


_CHECK = """
import torch.nn.functional as F

def check(function, *inputs):
    def run(place, dtype):
        tensors = [t.to(place, dtype).detach().requires_grad_() for t in inputs]
        result = function(*tensors)
        result.backward(torch.ones_like(result) / result.numel())
        return [result, *(t.grad for t in tensors)]
    for mine, exact in zip(run(DEVICE, torch.float32), run("cpu", torch.float64)):
        tolerance = 1e-5 * exact.abs().max().item() + 1e-12
        torch.testing.assert_close(
            mine.cpu().double(), exact, rtol=1e-4, atol=tolerance
        )

torch.manual_seed(0)
"""

# Tiles of 16 rows and of 8, which pad less or are all there is; operands in place;
# tall-skinny products.
_PRODUCTS = """
for rows, depth, columns in (
    (131, 277, 97), (64, 600, 160), (40, 300, 64), (30, 300, 95), (95, 257, 30),
    (16, 300, 200), (3, 300, 200)
):
    left, right = torch.randn(rows, depth), torch.randn(depth, columns)
    check(torch.mm, left, right)
    check(torch.mm, left.t().contiguous().t(), right.t().contiguous().t())
check(torch.bmm, torch.randn(20, 150, 260), torch.randn(20, 260, 97))
"""

_DEPTHWISE = """
for stride in (1, 2):
    x = torch.randn(2, 40, 11, 13).to(memory_format=torch.channels_last)
    check(lambda x, w: F.conv2d(x, w, None, stride, 1, 1, 40), x, torch.randn(40, 1, 3, 3))
"""

_CONVOLUTION = """
for outputs, stride, memory_format in (
    (33, 2, torch.channels_last),
    (64, 1, torch.contiguous_format),
):
    x = torch.randn(2, 40, 11, 13).to(memory_format=memory_format)
    weight = torch.randn(outputs, 40, 3, 3)
    with torch.backends.opencl.flags(solver="SOLVER"):
        for image in (x, x[:, :, :3, :2]):
            check(lambda x, w: F.conv2d(x, w, None, stride, 1), image, weight)
"""

_SCRIPTS = {"products": _PRODUCTS, "depthwise": _DEPTHWISE} | {
    solver: _CONVOLUTION.replace("SOLVER", solver)
    for solver in ("direct_grouped", "winograd", "direct")
}


@pytest.mark.sampled(2)
@pytest.mark.timeout(300)  # PoCL compiles large tiles slowly without AVX-512
@pytest.mark.parametrize("script", _SCRIPTS.values(), ids=_SCRIPTS)
def test_products_and_convolutions(device, script):
    run_script(_CHECK + script, device, TORCH_OPENCL_REGISTERS=_other_registers())
