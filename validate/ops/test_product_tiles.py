"""Products of GPUs: every member of the family at its tiles' edges, split depths."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, channels_last, check, contiguous, offset, strided

# Members of kMembers, and how many parts the depth is split in.
TILES = ["128x128", "128x64", "64x128", "64x64", "128x32", "32x128", "32x32"]
SIZES = (1, 15, 16, 17, 63, 64, 65, 127, 128, 129)
DEPTHS = (0, 1, 15, 16, 17, 300)


@pytest.fixture(autouse=True)
def _settings_stay():
    with torch.backends.opencl.flags():
        yield


def transposed(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.mT.contiguous().mT


def expanded(matrix: torch.Tensor) -> torch.Tensor:
    return matrix[..., :1, :].expand_as(matrix)


def _mm(device, shape, dtype=torch.float32, left=contiguous, right=contiguous):
    m, k, n = shape
    inputs = [left(torch.randn(m, k)), right(torch.randn(k, n))]
    check(torch.mm, inputs, device, dtype, backward=False)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("rows", SIZES)
def test_edges(device, tile, rows):
    torch.backends.opencl.solver = f"tile_{tile}"
    for i, columns in enumerate(SIZES):
        _mm(device, (rows, DEPTHS[1:][i % 5], columns))


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("depth", [*DEPTHS, 4097])
def test_depths(device, depth, parts):
    torch.backends.opencl.solver = f"tile_64x64_{parts}"
    _mm(device, (65, depth, 33))
    inputs = [torch.randn(40, 36), torch.randn(40, depth), torch.randn(depth, 36)]
    check(lambda *t: torch.addmm(*t, beta=0.5, alpha=2), inputs, device, backward=False)


LAYOUTS = [contiguous, transposed, strided, offset, expanded]


# Sizes of full vectors, and others.
@pytest.mark.parametrize("shape", [(36, 48, 40), (33, 31, 35)])
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_layouts(device, left, right, shape):
    _mm(device, shape, left=left, right=right)


@pytest.mark.parametrize("layout", [contiguous, transposed])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tile", ["64x64", "64x64_4", "32x32"])
def test_dtypes(device, tile, dtype, layout):
    torch.backends.opencl.solver = f"tile_{tile}"
    _mm(device, (72, 140, 68), dtype, layout, layout)
    _mm(device, (37, 139, 29), dtype, layout, layout)


@pytest.mark.parametrize("solver", ["", "tile_32x32_2"])
@pytest.mark.parametrize("size", [(3, 36, 70, 40), (5, 17, 9, 31)])
def test_batches(device, size, solver):
    b, m, k, n = size
    torch.backends.opencl.solver = solver
    inputs = [torch.randn(b, m, k), torch.randn(b, k, n)]
    check(torch.bmm, inputs, device)
    shared = [torch.randn(1, m, k).expand(b, m, k), torch.randn(b, n, k).mT]
    check(torch.bmm, shared, device)
    self = [torch.randn(n), *inputs]
    check(lambda *t: torch.baddbmm(*t, beta=2, alpha=0.5), self, device)


@pytest.mark.parametrize("layout", [contiguous, transposed])
@pytest.mark.parametrize("size", [(40, 36), (41, 35)])
def test_outputs_of_any_layout(device, size, layout):
    m, n = size
    a, b = torch.randn(m, 50), torch.randn(50, n)
    for tile in ("", "tile_64x64_2"):
        torch.backends.opencl.solver = tile
        out = layout(torch.zeros(2 * m, n).to(device))[m:]
        torch.mm(a.to(device), b.to(device), out=out)
        torch.testing.assert_close(out.cpu(), a @ b)


@pytest.mark.parametrize("layout", [contiguous, transposed, strided])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("few", [1, 2, 3, 5, 8])
def test_few_rows(device, few, dtype, layout):
    for k, n in ((300, 260), (129, 35), (4096, 12)):
        _mm(device, (few, k, n), dtype, right=layout)
        _mm(device, (n, k, few), dtype, left=layout)


def test_few_rows_of_batches(device):
    x, weight = torch.randn(3, 2, 2500), torch.randn(3, 40, 2500)
    check(lambda x, w: torch.bmm(x, w.mT), [x, weight], device)
    inputs = [torch.randn(9), torch.randn(2, 2000), torch.randn(2000, 9)]
    check(lambda *t: torch.addmm(*t, beta=0.5, alpha=3), inputs, device)


@pytest.mark.parametrize("solver", ["", "tile_128x64_8", "tile_32x32_4"])
def test_same_bits_each_run(device, solver):
    torch.backends.opencl.solver = solver
    a, b = torch.randn(70, 4097, device=device), torch.randn(4097, 70, device=device)
    assert torch.equal((a @ b).cpu(), (a @ b).cpu())
    assert torch.equal((a[:3] @ b).cpu(), (a[:3] @ b).cpu())


@pytest.mark.parametrize("solver", ["", "tile_64x64"])
def test_long_sums(device, solver):
    # Terms of one sign: errors do not cancel.
    torch.backends.opencl.solver = solver
    inputs = [torch.rand(33, 20000) + 1, torch.rand(20000, 40)]
    check(torch.mm, inputs, device, backward=False)


# images, channels, outputs, groups, kernel, stride, padding, dilation, size
IMAGES = [
    (2, 8, 12, 1, (3, 3), (1, 1), (1, 1), (1, 1), (8, 8)),
    (2, 3, 10, 1, (7, 7), (2, 2), (3, 3), (1, 1), (13, 10)),
    (3, 4, 8, 2, (3, 2), (2, 1), (1, 0), (1, 2), (9, 7)),
    (1, 12, 16, 1, (1, 1), (1, 1), (0, 0), (1, 1), (6, 6)),
    (2, 5, 7, 1, (1, 1), (2, 2), (0, 0), (1, 1), (7, 5)),
    (2, 8, 8, 2, (3, 3), (3, 2), (2, 2), (2, 2), (11, 12)),
    (1, 4, 4, 1, (3, 3), (4, 2), (1, 1), (2, 4), (9, 9)),
    (1, 2, 3, 1, (2, 2), (3, 3), (0, 0), (1, 1), (8, 7)),
    (5, 36, 40, 1, (3, 3), (1, 1), (0, 0), (1, 1), (5, 5)),
]


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("layout", [contiguous, channels_last, strided])
@pytest.mark.parametrize("case", IMAGES)
def test_implicit_convolution(device, case, layout, is_transposed):
    images, channels, outputs, groups, kernel, *geometry, size = case
    stride, padding, dilation = geometry
    shape = (outputs, channels // groups, *kernel)
    x = torch.randn(images, outputs if is_transposed else channels, *size)
    weight = torch.randn(shape)
    if layout is channels_last:
        weight = channels_last(weight)
    bias = torch.randn(channels if is_transposed else outputs)
    torch.backends.opencl.solver = "implicit"
    if is_transposed:
        check(
            lambda *t: F.conv_transpose2d(*t, stride, padding, 0, groups, dilation),
            [layout(x), weight, bias],
            device,
        )
    else:
        check(
            lambda *t: F.conv2d(*t, stride, padding, dilation, groups),
            [layout(x), weight, bias],
            device,
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_implicit_dtypes(device, dtype):
    torch.backends.opencl.solver = "implicit"
    x, weight = torch.randn(2, 8, 9, 8), torch.randn(12, 8, 3, 3)
    check(lambda *t: F.conv2d(*t, padding=1), [x, weight], device, dtype)
    check(lambda *t: F.conv2d(*t, stride=2), [channels_last(x), weight], device, dtype)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_implicit_in_other_dimensions(device, dimensions):
    torch.backends.opencl.solver = "implicit"
    size = {1: (19,), 3: (5, 7, 6)}[dimensions]
    x, weight = torch.randn(2, 6, *size), torch.randn(8, 3, *[3] * dimensions)
    name = f"conv{dimensions}d"
    check(
        lambda *t: getattr(F, name)(*t, stride=2, padding=1, groups=2),
        [x, weight, torch.randn(8)],
        device,
    )
    weight = torch.randn(6, 4, *[3] * dimensions)
    name = f"conv_transpose{dimensions}d"
    check(
        lambda *t: getattr(F, name)(*t, stride=2, padding=1, groups=2),
        [x, weight, torch.randn(8)],
        device,
    )


# A weight gradient of many pixels, its depth in parts.
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("kernel", [1, 3])
def test_split_weight_gradient(device, kernel, layout):
    x = layout(torch.randn(2, 5, 40, 41))
    weight = torch.randn(6, 5, kernel, kernel)
    torch.backends.opencl.solver = "tile_32x32_8"
    inputs = [x, weight]
    check(lambda *t: F.conv2d(*t, padding=kernel // 2), inputs, device)
    x, grad = x.to(device), torch.randn(2, 6, 40, 41, device=device)
    runs = [
        torch.nn.grad.conv2d_weight(x, weight.shape, grad, padding=kernel // 2).cpu()
        for _ in range(2)
    ]
    assert torch.equal(*runs)
