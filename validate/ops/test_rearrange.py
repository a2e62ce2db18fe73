"""unfold and fold, and the shuffles of pixels and channels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, LAYOUTS, check, check_error, contiguous, move, strided

# (kernel, dilation, padding, stride) for images of 7x9
WINDOWS = [
    (1, 1, 0, 1),
    (3, 1, 1, 1),
    ((2, 3), (2, 1), (1, 0), (1, 2)),
    (3, 2, 3, 3),
    ((7, 9), 1, 0, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", WINDOWS)
def test_unfold(device, window, layout):
    for batch in (0, 1, 3):
        x = layout(torch.randn(batch, 5, 7, 9))
        check(lambda x: F.unfold(x, *window), [x], device)
    check(lambda x: F.unfold(x, *window), [x[0]], device)


@pytest.mark.parametrize("layout", [contiguous, strided])
@pytest.mark.parametrize("window", WINDOWS)
def test_fold(device, window, layout):
    x = layout(F.unfold(torch.randn(2, 5, 7, 9), *window))
    check(lambda x: F.fold(x, (7, 9), *window), [x], device)
    check(lambda x: F.fold(x, (7, 9), *window), [x[0]], device)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fold_dtypes(device, dtype):
    x = torch.randn(2, 3, 6, 70)
    check(lambda x: F.fold(F.unfold(x, 3), (6, 70), 3), [x], device, dtype)


def test_fold_of_bools(device):
    x = torch.ones(1, 400, 9, dtype=torch.bool)
    window = ((22, 22), 20)
    assert torch.equal(F.fold(x.to(device), *window).cpu(), F.fold(x, *window))


SHUFFLES = [
    lambda x: F.pixel_shuffle(x, 2),
    lambda x: F.pixel_shuffle(x, 1),
    lambda x: F.pixel_unshuffle(x, 3),
    lambda x: F.channel_shuffle(x, 4),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", SHUFFLES)
def test_shuffles(device, call, layout):
    for batch in (1, 3):
        x = layout(torch.randn(batch, 16, 6, 9))
        check(call, [x], device)
        result, expected = call(move(x, device)), call(x)
        assert torch.equal(result.cpu(), expected)
        assert result.stride() == expected.stride()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("width", [16, 37])
def test_wide_shuffles(device, width, factor, dtype):
    x = torch.randn(2, 2 * factor**2, 3, width).to(dtype)
    y = F.pixel_shuffle(x, factor)
    for layout in LAYOUTS:
        moved = move(layout(x), device)
        assert torch.equal(F.pixel_shuffle(moved, factor).cpu(), y)
        moved = move(layout(y), device)
        assert torch.equal(F.pixel_unshuffle(moved, factor).cpu(), x)


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("channels", [1, 3, 4, 16, 17, 33])
def test_shuffles_of_channels(device, channels, factor):
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(2, channels * factor**2, 3, 19).to(dtype)
        moved = x.to(device, memory_format=torch.channels_last)
        # Whole; one image, some lines and pixels; more channels than are asked for.
        for part in (
            lambda x: x,
            lambda x: x[1:, :, 1:, 2:],
            lambda x: x[:, : factor**2],
        ):
            y = F.pixel_shuffle(part(x), factor)
            result = F.pixel_shuffle(part(moved), factor)
            assert torch.equal(result.cpu(), y)
            assert torch.equal(F.pixel_unshuffle(result, factor).cpu(), part(x))
        whole = F.pixel_shuffle(moved, factor)
        assert whole.is_contiguous(memory_format=torch.channels_last)
        cut = whole[:, :, factor:, factor:]
        expected = F.pixel_unshuffle(cut.cpu(), factor)
        assert torch.equal(F.pixel_unshuffle(cut, factor).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bfloat16])
def test_shuffles_of_channels_dtypes(device, dtype):
    x = torch.randint(100, (2, 48, 2, 9)).to(dtype)
    moved = x.to(device, memory_format=torch.channels_last)
    y = F.pixel_shuffle(moved, 4)
    assert torch.equal(y.cpu(), F.pixel_shuffle(x, 4))
    assert torch.equal(F.pixel_unshuffle(y, 4).cpu(), x)


# Groups and channels of each around what a vector holds, few pixels and many.
@pytest.mark.parametrize("groups", [2, 3, 8, 15, 16, 29])
@pytest.mark.parametrize("group_size", [2, 3, 8, 15, 16, 29, 58])
def test_channel_shuffles(device, groups, group_size):
    for dtype in (torch.float32, torch.uint8):
        for size in ((1, 1), (3, 5), (29, 37)):
            x = torch.randint(250, (2, groups * group_size, *size)).to(dtype)
            x = x.to(memory_format=torch.channels_last)
            moved = x.to(device)
            result, expected = (
                F.channel_shuffle(moved, groups),
                F.channel_shuffle(x, groups),
            )
            assert torch.equal(result.cpu(), expected)
            assert result.stride() == expected.stride()
            back = F.channel_shuffle(result, group_size)
            assert torch.equal(back.cpu(), x)
            part = F.channel_shuffle(moved[1:, :, 1:, 1:], groups)
            assert torch.equal(part.cpu(), F.channel_shuffle(x[1:, :, 1:, 1:], groups))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.bfloat16, torch.int64, torch.complex64]
)
def test_channel_shuffles_dtypes(device, dtype):
    for shape in ((2, 24, 5), (2, 24, 3, 5), (2, 24, 2, 3, 5)):
        x = torch.randint(2, shape).to(dtype).movedim(1, -1).contiguous().movedim(-1, 1)
        for groups in (1, 3, 8, 12, 24):
            result = F.channel_shuffle(x.to(device), groups)
            assert torch.equal(result.cpu(), F.channel_shuffle(x, groups))


def test_gradient_of_channel_shuffle(device):
    for layout in LAYOUTS:
        x = layout(torch.randn(2, 48, 3, 5))
        check(lambda x: F.channel_shuffle(x, 3), [x], device)


# Stored non-temporally on CPUs.
@pytest.mark.parametrize("groups", [3, 4, 16])
def test_large_channel_shuffles(device, groups):
    x = torch.randint(250, (2, 48, 420, 421), dtype=torch.int32)
    moved = x.to(device, memory_format=torch.channels_last)
    result = F.channel_shuffle(moved, groups)
    assert torch.equal(result.cpu(), F.channel_shuffle(x, groups))


@pytest.mark.parametrize("call", SHUFFLES)
def test_shuffles_of_nothing(device, call):
    # Not against the CPU, where pixel_unshuffle returns an empty tensor as it is.
    x = torch.empty(0, 16, 6, 9, device=device, requires_grad=True)
    y = call(x)
    y.sum().backward()
    assert y.shape[1:] == call(torch.empty(1, 16, 6, 9)).shape[1:]
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("stride", [30, 2**31 - 1, 2**31, 2**32])
def test_strides_past_the_image(device, stride):
    x = torch.randn(2, 3, 7, 9)
    check(lambda x: F.unfold(x, 3, padding=1, stride=(2, stride)), [x], device)


@pytest.mark.slow
def test_columns_of_more_positions_than_ints(device):
    height, padding = 66, 2**24
    width = 2 * padding + 1
    columns = torch.zeros(1, 1, height * width, dtype=torch.bool, device=device)
    columns[0, 0, 65 * width + padding] = True
    window = ([1, 1], [1, 1], [0, padding], [1, 1])
    image = torch.ops.aten.col2im(columns, [height, 1], *window)
    assert image.nonzero().tolist() == [[0, 0, 65, 0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bool])
def test_columns_in_an_out_of_another_dtype(device, dtype):
    options = ([2, 2], [1, 1], [0, 0], [2, 2])
    x = torch.arange(1.0, 37).view(1, 1, 6, 6)

    def im2col(x):
        out = torch.empty(1, 4, 9, dtype=dtype, device=x.device)
        torch._C._nn.im2col(x, *options, out=out)

    def col2im(x):
        out = torch.empty(1, 1, 6, 6, dtype=dtype, device=x.device)
        torch._C._nn.col2im(x.view(1, 4, 9), [6, 6], *options, out=out)

    check_error(im2col, device, x)
    check_error(col2im, device, x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.aten.im2col(x, [2], [1, 1], [0, 0], [1, 1]),
        lambda x: torch.ops.aten.im2col(x, [2, 2], [1, 1], [0, 0], [0, 1]),
        lambda x: F.unfold(x, 9),
        lambda x: F.unfold(x.int(), 2),
        lambda x: F.fold(x[0], (5, 5), 2),
        lambda x: torch.ops.aten.col2im(x[0], [3], [2, 2], [1, 1], [0, 0], [1, 1]),
        lambda x: F.channel_shuffle(x, 3),
        lambda x: F.channel_shuffle(x, 0),
        lambda x: F.channel_shuffle(x[0, 0], 1),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.pixel_unshuffle(x, 2),
    ],
)
def test_errors_are_the_cpus(device, call):
    x = torch.randn(1, 2, 3, 4)
    check_error(call, device, x)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_cat_of_equal_shapes(device, count, dtype):
    """On GPUs up to four of them in one launch."""
    tensors = [(torch.randn(3, 5, 7) * 9).to(dtype) for _ in range(count)]
    layouts = (
        tensors,
        [tensor.transpose(0, 2) for tensor in tensors],
        [tensor[:, 1:4:2] for tensor in tensors],
        [tensor[:0] for tensor in tensors],
        [tensors[0].transpose(0, 2).contiguous().transpose(0, 2), *tensors],
        [tensors[0].expand(3, 5, 7)[:, :1].expand(3, 5, 7)] * count,
    )
    for inputs in layouts:
        ours = [tensor.to(device) for tensor in inputs]
        ours = [
            mine.as_strided(it.size(), it.stride()) if 0 in it.stride() else mine
            for mine, it in zip(ours, inputs, strict=True)
        ]
        for dim in (0, 1, 2):
            assert torch.equal(torch.cat(ours, dim).cpu(), torch.cat(inputs, dim))
            stacked = torch.stack(inputs, dim)
            assert torch.equal(torch.stack(ours, dim).cpu(), stacked)
            out = torch.empty_like(stacked, device=device)[..., :0]
            assert torch.equal(torch.stack(ours, dim, out=out).cpu(), stacked)


@pytest.mark.parametrize("part", [(0, 7, 1), (0, 9, 1), (1, 7, 2)])
def test_gradient_of_a_slice(device, part):
    """It is contiguous and a tensor of its own, of the whole tensor, too."""

    def function(x):
        return torch.ops.aten.slice(x, 1, *part)

    check(function, [torch.randn(5, 7)], device)
    grad = function(torch.randn(7, 5, device=device).t())
    x = torch.empty(5, 7, device=device, requires_grad=True)
    (found,) = torch.autograd.grad(function(x), x, grad)
    assert found.is_contiguous() and found.data_ptr() != grad.data_ptr()
