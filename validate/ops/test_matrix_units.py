"""Products of 16-bit operands by a GPU's matrix units: the layouts of all units'
fragments, by an emulation of the instructions that any device can run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import channels_last, check, contiguous, offset, strided

UNITS = ["gfx11", "gfx12", "sm_80", "intel_8", "intel_16"]
TILES = ["64x64", "128x128"]
HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _only_of_gpus(device, request):
    if not request.config.getoption("gpu_class"):
        pytest.skip("a kernel for GPUs")
    platform = torch.opencl.get_device_properties(device).platform
    if platform.startswith("Portable") and "convolutions" in request.node.name:
        pytest.skip("PoCL takes minutes to compile them")
    with torch.backends.opencl.flags():
        yield


def transposed(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.mT.contiguous().mT


def _set(units: str, tile: str = "64x64") -> None:
    torch.backends.opencl.solver = f"units_{units}_tile_{tile}"


def _mm(device, shape, dtype, left=contiguous, right=contiguous):
    m, k, n = shape
    inputs = [left(torch.randn(m, k)), right(torch.randn(k, n))]
    check(torch.mm, inputs, device, dtype, backward=False)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("units", UNITS)
def test_exact_numbers(device, units, tile, dtype):
    """No fragment is in another's place: all products and sums are exact."""
    _set(units, tile)
    a = torch.randint(-4, 5, (150, 67))
    b = torch.randint(-4, 5, (67, 139))
    with torch.opencl.profile() as profile:
        result = a.to(device, dtype) @ b.to(device, dtype)
        torch.opencl.synchronize(device)
    names = [entry.name for entry in profile.kernels]
    assert any("product_matrix" in name for name in names), names
    assert torch.equal(result.cpu(), (a @ b).to(dtype))


@pytest.mark.parametrize("units", UNITS)
def test_edges(device, units):
    _set(units)
    for rows in (9, 15, 17, 63, 65, 129):
        for columns, depth in ((9, 1), (17, 31), (65, 33), (131, 101)):
            _mm(device, (rows, depth, columns), torch.float16)


# Sizes of full vectors, and others.
@pytest.mark.parametrize("shape", [(68, 48, 72), (33, 31, 35)])
@pytest.mark.parametrize("right", [contiguous, transposed, strided, offset])
@pytest.mark.parametrize("left", [contiguous, transposed, strided, offset])
def test_layouts(device, left, right, shape):
    _set("sm_80")
    _mm(device, shape, torch.bfloat16, left, right)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("units", UNITS)
def test_split_depths_batches_and_addends(device, units, dtype):
    _set(units, "64x64_4")
    _mm(device, (70, 517, 33), dtype)
    inputs = [torch.randn(36), torch.randn(40, 90), torch.randn(90, 36)]
    check(
        lambda *t: torch.addmm(*t, beta=0.5, alpha=2),
        inputs,
        device,
        dtype,
        backward=False,
    )
    inputs = [torch.randn(3, 20, 36), torch.randn(3, 36, 25)]
    check(torch.bmm, inputs, device, dtype)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("units", UNITS)
def test_convolutions(device, units, layout):
    """Forward, and both gradients."""
    _set(units)
    x = layout(torch.randn(2, 12, 9, 10))
    weight = layout(torch.randn(20, 12, 3, 3))
    inputs = [x, weight, torch.randn(20)]
    check(lambda *t: F.conv2d(*t, padding=1), inputs, device, torch.float16)
    check(lambda *t: F.conv2d(*t, stride=2), inputs, device, torch.bfloat16)
    inputs = [x, layout(torch.randn(12, 7, 2, 3)), torch.randn(7)]
    check(lambda *t: F.conv_transpose2d(*t, stride=2), inputs, device, torch.float16)


def test_special_values(device):
    _set("sm_80")
    a, b = torch.randn(40, 50), torch.randn(50, 30)
    a[3, 7], a[9, 2], b[5, 11] = float("nan"), float("inf"), float("-inf")
    check(torch.mm, [a, b], device, torch.bfloat16, backward=False)


def test_float_operands_are_multiplied_in_float(device):
    _set("gfx11")
    inputs = [torch.randn(40, 300), torch.randn(300, 36)]
    check(torch.mm, inputs, device, backward=False)


def test_an_epilogue_joins(device):
    _set("intel_8")
    x, weight, bias = torch.randn(40, 50), torch.randn(36, 50), torch.randn(36)
    check(
        lambda x, w, b: F.relu(F.linear(x, w, b)) + 1,
        [x, weight, bias],
        device,
        torch.float16,
        backward=False,
    )
