"""Convolutions and their gradients: 1-d to 3-d, transposed, grouped, dilated."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import (
    FLOATS,
    LAYOUTS,
    channels_last,
    check,
    contiguous,
    offset,
    strided,
    transposed,
)
from tolerance import assert_matches

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# images, channels, out channels, groups, kernel, stride, padding, dilation, size
GEOMETRIES = [
    (2, 3, 5, 1, 3, 1, 1, 1, 9),
    (1, 4, 6, 2, 3, 2, 0, 1, 11),
    (2, 5, 7, 1, 1, 1, 0, 1, 7),
    (2, 5, 7, 1, 1, 2, 0, 1, 7),
    (1, 3, 4, 1, 2, 3, 2, 2, 7),
    (2, 17, 50, 1, 3, 1, 1, 1, 8),
    (1, 1, 1, 1, 5, 1, 4, 1, 1),
    (1, 6, 9, 3, 4, 1, 2, 1, 5),
]

# channels, out channels, kernel, stride, padding, dilation, size of the image
DEPTHWISE = [
    (5, 5, 3, 1, 1, 1, (9, 11)),
    (16, 16, 3, 1, 1, 1, (17, 40)),
    (33, 33, 3, 2, 1, 1, (15, 37)),
    (4, 8, 3, 1, 1, 1, (8, 19)),
    (3, 9, 2, 2, 0, 1, (7, 7)),
    (7, 7, 5, 1, 2, 1, (6, 21)),
    (7, 7, 5, 2, 2, 1, (7, 7)),
    (2, 2, 7, 1, 3, 1, (4, 3)),
    (3, 3, 3, 1, 2, 2, (10, 33)),
    (3, 3, 3, 3, 0, 2, (11, 10)),
    (20, 20, 1, 1, 0, 1, (3, 5)),
    (6, 6, 3, 1, 0, 1, (3, 3)),
    (1, 4, 3, 1, 1, 1, (5, 6)),
    # Tiles of GPUs: beyond one; spread sources; a window as large as local memory.
    (3, 3, 3, 1, 1, 1, (17, 65)),
    (17, 17, 3, 2, 1, 1, (33, 18)),
    (3, 6, 5, 4, 1, 1, (16, 17)),
    (2, 2, 8, 1, 28, 8, (5, 6)),
    # Rows shorter than a vector, that run into the next one; rows in two parts.
    (18, 18, 3, 1, 1, 1, (14, 14)),
    (18, 18, 3, 2, 1, 1, (14, 14)),
    (3, 6, 3, 2, 1, 1, (31, 31)),
    (5, 5, 3, 2, 1, 1, (7, 36)),
    (4, 8, 3, 2, 1, 1, (9, 32)),
    (4, 4, 3, 1, 1, 1, (20, 16)),
    (4, 8, 3, 1, 1, 1, (3, 15)),
    (4, 4, 3, 1, 1, 1, (1, 1)),
    (3, 3, 3, 1, 3, 3, (12, 40)),
    (2, 2, 3, 1, 1, 1, (3, 1031)),
    (2, 4, 3, 2, 1, 1, (5, 1100)),
]


def _convolution(function, **options):
    return lambda x, weight, bias=None: function(x, weight, bias, **options)


def _pair(dim, geometry, is_transposed=False):
    """The function and its operands, of `dim` spatial dimensions."""
    images, c, o, groups, kernel, stride, padding, dilation, size = geometry
    x = torch.randn(images, c, *(size + i for i in range(dim)))
    shape = (c, o // groups) if is_transposed else (o, c // groups)
    weight = torch.randn(*shape, *[kernel] * dim)
    function = _convolution(
        (TRANSPOSED if is_transposed else CONVOLUTIONS)[dim],
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    return function, [x, weight, torch.randn(o)]


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolution(device, geometry, dim):
    function, inputs = _pair(dim, geometry)
    check(function, inputs, device)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES[:6] + GEOMETRIES[7:])
def test_transposed(device, geometry, dim):
    function, inputs = _pair(dim, geometry, is_transposed=True)
    check(function, inputs, device)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("geometry", GEOMETRIES[:3])
def test_dtypes(device, geometry, dtype, is_transposed):
    function, inputs = _pair(2, geometry, is_transposed)
    check(function, inputs, device, dtype)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("weight_layout", [contiguous, channels_last, strided])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout, weight_layout, is_transposed):
    function, (x, weight, bias) = _pair(2, GEOMETRIES[5], is_transposed)
    check(function, [layout(x), weight_layout(weight), strided(bias)], device)


@pytest.mark.parametrize("layout", [contiguous, channels_last, transposed])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_layouts_3d(device, is_transposed, layout):
    function, (x, weight, bias) = _pair(3, GEOMETRIES[1], is_transposed)
    check(function, [layout(x), weight, bias], device)


# channels, outputs, kernel, stride, padding, dilation: of images read where they
# lie or copied, around the sizes that the weight's gradient is chosen by. Of some
# filter elements no pixel of a tile, or none at all, lies inside.
@pytest.mark.parametrize("layout", [contiguous, channels_last, offset])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        (16, 24, 3, 1, 1, 1),
        (20, 16, 3, 1, 1, 1),
        (32, 17, 2, 1, 1, 5),
        (48, 40, 3, 2, 1, 1),
        (64, 33, 4, 2, 1, 1),
        (33, 18, 3, 1, 9, 9),
    ],
)
@pytest.mark.parametrize("dim", [1, 3])
def test_lines_and_volumes(device, dim, case, is_transposed, layout):
    channels, outputs, *rest = case
    size = 5 if dim == 3 else 70
    geometry = (2, channels, outputs, 1, *rest, size)
    function, (x, weight, bias) = _pair(dim, geometry, is_transposed)
    if dim == 1 and layout is channels_last:
        layout = transposed
    check(function, [layout(x), weight, bias], device)


def test_every_fourth_column(device):
    check(*_pair(2, (2, 3, 5, 1, 11, 4, 2, 1, 90)), device)


def test_expanded_input(device):
    function, (x, weight, bias) = _pair(2, GEOMETRIES[0])
    check(function, [x[:1, :1].expand_as(x), weight, bias], device)


# A depthwise weight, of one channel, is in both formats.
@pytest.mark.parametrize(
    ("groups", "layouts"),
    [
        (1, (channels_last, contiguous)),
        (1, (contiguous, channels_last)),
        (6, (channels_last, contiguous)),
    ],
)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_channels_last_stays(device, groups, layouts, is_transposed):
    geometry = (2, 6, 6, groups, 3, 1, 1, 1, 9)
    function, (x, weight, bias) = _pair(2, geometry, is_transposed)
    x, weight = layouts[0](x).to(device), layouts[1](weight).to(device)
    x.requires_grad_()
    output = function(x, weight, bias.to(device))
    assert output.is_contiguous(memory_format=torch.channels_last)
    (grad,) = torch.autograd.grad(output.square().sum(), x)
    assert grad.is_contiguous(memory_format=torch.channels_last)


def test_channels_last_3d_stays(device):
    function, (x, weight, bias) = _pair(3, GEOMETRIES[0])
    output = function(channels_last(x).to(device), weight.to(device), bias.to(device))
    assert output.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_sides_differ(device, is_transposed):
    options = {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 3)}
    if is_transposed:
        options["output_padding"] = (1, 0)
    function = F.conv_transpose2d if is_transposed else F.conv2d
    weight = torch.randn(4, 4, 2, 5)
    inputs = [torch.randn(2, 4, 9, 14), weight, torch.randn(4)]
    check(_convolution(function, **options), inputs, device)


@pytest.mark.parametrize("groups", [1, 4, 8])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("kernel", [1, 2])
def test_transposed_output_padding_of_dilated(device, kernel, padding, groups):
    """It may be added to a stride of one, where the dilation is larger."""
    inputs = [torch.randn(2, 8, 4, 5), torch.randn(8, 8 // groups, kernel, kernel)]
    options = {"padding": padding, "dilation": 3, "groups": groups}
    for added in ((1, 0), (0, 2), (2, 1)):
        check(
            lambda x, w: F.conv_transpose2d(x, w, output_padding=added, **options),  # noqa: B023
            inputs,
            device,
        )


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("size", [(0, 4, 6, 7), (4, 6, 7)])
def test_no_images_and_no_batch(device, size, is_transposed):
    function = F.conv_transpose2d if is_transposed else F.conv2d
    inputs = [torch.randn(size), torch.randn(4, 4, 3, 3), torch.randn(4)]
    check(function, inputs, device)


def test_no_channels(device):
    check(F.conv2d, [torch.randn(2, 0, 5, 5), torch.randn(4, 0, 3, 3)], device)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name(device, padding):
    inputs = [torch.randn(2, 3, 8, 9), torch.randn(4, 3, 3, 4), torch.randn(4)]
    check(_convolution(F.conv2d, padding=padding), inputs, device)


# Images in whole tiles of 48 pixels, or nearly: read unpacked. 300 channels
# are more than one block of a sum.
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(6, 8), (13, 11), (12, 12), (10, 19)])
@pytest.mark.parametrize(("channels", "outputs"), [(3, 5), (300, 17), (17, 520)])
@pytest.mark.parametrize("layout", [offset, channels_last])
def test_conv1x1_in_place(device, layout, size, channels, outputs, dtype):
    x = layout(torch.randn(2, channels, *size))
    weight = torch.randn(outputs, channels, 1, 1) / channels**0.5
    check(F.conv2d, [x, weight, torch.randn(outputs)], device, dtype)
    check(F.conv2d, [x[:, ::2], weight[:, : (channels + 1) // 2]], device, dtype)
    check(F.conv2d, [x[:, :, 1:-1], weight, torch.randn(outputs)], device, dtype)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise(device, case, layout):
    c, o, kernel, stride, padding, dilation, size = case
    function = _convolution(
        F.conv2d, stride=stride, padding=padding, dilation=dilation, groups=c
    )
    weight = torch.randn(o, 1, kernel, kernel)
    for bias in ([], [torch.randn(o)]):
        check(function, [layout(torch.randn(2, c, *size)), weight, *bias], device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_layouts_and_dtypes(device, stride, layout, dtype):
    function = _convolution(F.conv2d, stride=stride, padding=1, groups=18)
    inputs = [layout(torch.randn(3, 18, 9, 35)), torch.randn(18, 1, 3, 3)]
    check(function, [*inputs, strided(torch.randn(18))], device, dtype)


# Strips of pixels: none whole, one, some; a last vector of channels that overlaps.
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (3, 2), (5, 1), (7, 1)])
@pytest.mark.parametrize(
    ("channels", "size"), [(16, (3, 2)), (21, (8, 9)), (600, (7, 15))]
)
def test_depthwise_channels_last(
    device, channels, size, dilation, kernel, stride, dtype
):
    for padding in (kernel // 2 * dilation, 0):
        function = _convolution(
            F.conv2d,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=channels,
        )
        image = [side + (kernel - 1) * dilation - padding for side in size]
        x = channels_last(torch.randn(2, channels, *image))
        weight = torch.randn(channels, 1, kernel, kernel)
        check(function, [x, weight, torch.randn(channels)], device, dtype)


# images, channels, size: planes transposed as a whole or too large for it; of one pixel,
# of less than a vector of pixels or channels, of vectors that overlap.
PLANES = [
    (1, 16, (1, 1)),
    (1, 1, (13, 5)),
    (2, 3, (7, 7)),
    (3, 17, (7, 7)),
    (1, 33, (5, 13)),
    (5, 16, (11, 12)),
    (2, 49, (17, 19)),
    (2, 16, (28, 29)),
    (2, 16, (31, 37)),
]


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("case", PLANES)
def test_depthwise_planes(device, case, kernel, stride, layout):
    images, channels, size = case
    weight = torch.randn(channels, 1, kernel, kernel)
    for padding in {kernel // 2, max(0, kernel - min(size))}:
        function = _convolution(
            F.conv2d, stride=stride, padding=padding, groups=channels
        )
        x = layout(torch.randn(images, channels, *size))
        check(function, [x, weight, torch.randn(channels)], device)


# The pixels under all windows fit where planes are transposed, the image does not.
@pytest.mark.parametrize("kernel", [3, 5])
def test_depthwise_planes_of_far_windows(device, kernel):
    function = _convolution(F.conv2d, stride=25, padding=1, groups=16)
    x = torch.randn(2, 16, 52, 50)
    check(function, [x, torch.randn(16, 1, kernel, kernel)], device)


@pytest.mark.parametrize("layout", [contiguous, channels_last, offset])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("case", PLANES[3:-1])
def test_depthwise_planes_dtypes(device, case, stride, dtype, layout):
    images, channels, size = case
    function = _convolution(F.conv2d, stride=stride, padding=1, groups=channels)
    x = layout(torch.randn(images, channels, *size))
    check(function, [x, torch.randn(channels, 1, 3, 3)], device, dtype)


# Rows of one vector of outputs, of some, of a last one that overlaps; one row, pairs
# of rows and an odd one.
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(1, 32), (2, 33), (3, 34), (6, 64), (4, 66), (5, 98)])
def test_depthwise_rows(device, size, stride, multiplier, dtype):
    function = _convolution(F.conv2d, stride=stride, padding=1, groups=17)
    x, weight = torch.randn(2, 17, *size), torch.randn(17 * multiplier, 1, 3, 3)
    check(function, [x, weight, torch.randn(len(weight))], device, dtype)


# Larger than caches: prefetched, and whole lines stored non-temporally.
@pytest.mark.parametrize("width", [100, 112])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_of_large_images(device, stride, layout, width):
    function = _convolution(F.conv2d, stride=stride, padding=1, groups=80)
    x = layout(torch.randn(6, 80, 96, width))
    check(function, [x, torch.randn(80, 1, 3, 3)], device)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_transposed(device, stride):
    function = _convolution(F.conv_transpose2d, stride=stride, padding=1, groups=6)
    for multiplier in (1, 2):
        inputs = [torch.randn(2, 6, 7, 18), torch.randn(6, multiplier, 3, 3)]
        check(function, [*inputs, torch.randn(6 * multiplier)], device)


@pytest.mark.parametrize("dim", [1, 3])
def test_depthwise_other_ranks(device, dim):
    function, inputs = _pair(dim, (2, 6, 6, 6, 3, 1, 1, 1, 20))
    check(function, inputs, device)


def test_depthwise_of_many_positions(device):
    # Weight gradients are sums over every position: float32 must not drift.
    function = _convolution(F.conv2d, padding=1, groups=2)
    x = torch.rand(4, 2, 112, 113) + 1
    check(function, [x, torch.randn(2, 1, 3, 3), torch.randn(2)], device)


@pytest.mark.parametrize(
    "mask", [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]
)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_output_mask(device, is_transposed, mask):
    mask = [bool(value) for value in mask]
    x, weight = torch.randn(2, 4, 6, 7), torch.randn(4, 4, 3, 3)
    grad = torch.randn(2, 4, 6, 7)

    def run(device, dtype):
        operands = (t.to(device, dtype) for t in (grad, x, weight))
        return torch.ops.aten.convolution_backward(
            *operands, [4], [1, 1], [1, 1], [1, 1], is_transposed, [0, 0], 1, mask
        )

    results = run(device, torch.float32)
    baselines = run("cpu", torch.float32)
    references = run("cpu", torch.float64)
    for wanted, *triple in zip(mask, results, references, baselines, strict=True):
        if wanted:
            assert_matches(*triple)
        else:
            assert triple[0] is None


# images, channels, out channels, padding, size: 3 x 3 kernels of enough channels
# and tiles of 4 x 4 for Winograd's algorithm, with edges that cut tiles.
WINOGRAD = [
    (3, 17, 50, 2, (9, 14)),
    (1, 19, 33, 0, (40, 72)),
    (2, 16, 16, 1, (33, 35)),
    (17, 32, 18, 2, (7, 16)),
    (9, 24, 24, 1, (7, 7)),
    (2, 18, 20, 1, (6, 12)),  # rows of outputs that are fours
    (1, 21, 40, 1, (13, 150)),  # rows of several segments
    (1, 150, 133, 1, (8, 70)),  # several blocks of channels
]


@pytest.mark.parametrize("layout", [contiguous, channels_last, strided])
@pytest.mark.parametrize("case", WINOGRAD)
def test_winograd(device, case, layout):
    images, c, o, padding, size = case
    weight = channels_last(torch.randn(o, c, 3, 3))
    inputs = [layout(torch.randn(images, c, *size)), weight, strided(torch.randn(o))]
    check(_convolution(F.conv2d, padding=padding), inputs, device)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_winograd_dtypes(device, dtype, layout):
    images, c, o, padding, size = WINOGRAD[1]
    inputs = [layout(torch.randn(images, c, *size)), torch.randn(o, c, 3, 3)]
    check(_convolution(F.conv2d, padding=padding), inputs, device, dtype)


def test_winograd_does_not_cancel(device):
    # Values of one sign: the transforms' differences must not lose digits.
    inputs = [torch.rand(2, 64, 20, 21) + 1, torch.rand(16, 64, 3, 3) + 1]
    check(_convolution(F.conv2d, padding=1), inputs, device)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_winograd_beyond_the_workspace(device, layout):
    inputs = [layout(torch.randn(3, 96, 112, 113)), torch.randn(96, 96, 3, 3)]
    check(_convolution(F.conv2d, padding=1), inputs, device)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_winograd_of_more_than_caches_hold(device, layout):
    inputs = [layout(torch.randn(1, 16, 724, 730)), torch.randn(16, 16, 3, 3)]
    check(_convolution(F.conv2d, padding=1), inputs, device, backward=False)


def test_columns_beyond_the_workspace(device):
    # 6 images whose columns exceed 64 MiB together: sums over several chunks.
    inputs = [torch.randn(6, 24, 120, 121), torch.randn(8, 24, 3, 3), torch.randn(8)]
    for dtype in (torch.float32, torch.bfloat16):
        check(_convolution(F.conv2d, padding=1), inputs, device, dtype)


def test_repeats_bit_for_bit(device):
    x = torch.randn(3, 8, 20, 21, device=device, requires_grad=True)
    for groups in (1, 8):
        shape = (8, 8 // groups, 3, 3)
        weight = torch.randn(shape, device=device, requires_grad=True)
        runs = []
        for _ in range(2):
            output = F.conv2d(x, weight, padding=1, groups=groups)
            grads = torch.autograd.grad(output.square().sum(), (x, weight))
            runs.append((output, *grads))
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(*runs, strict=True))


def test_gradient_of_gradients(device):
    def function(x, weight):
        x = x if x.requires_grad else x.detach().requires_grad_()
        output = F.conv2d(x, weight, padding=1)
        (grad,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return grad

    inputs = [torch.randn(2, 3, 6, 7), torch.randn(4, 3, 3, 3)]
    check(function, inputs, device)


def test_offset_views_of_weight_and_bias(device):
    function, (x, weight, bias) = _pair(2, GEOMETRIES[0])
    check(function, [offset(x), offset(weight), offset(bias)], device)
