"""Max, average and adaptive pooling, forward and backward, in every layout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import (
    FLOATS,
    LAYOUTS,
    channels_last,
    check,
    check_error,
    contiguous,
    strided,
)

# (input size, kernel, stride, padding, ceil_mode)
WINDOWS_2D = [
    ((2, 3, 13, 17), 3, 2, 1, False),
    ((2, 3, 13, 17), 3, 2, 0, True),  # googlenet, squeezenet
    ((1, 19, 12, 12), 2, 2, 0, True),
    ((1, 1, 1, 1), 1, 1, 0, False),
    ((2, 16, 9, 33), (3, 5), (1, 2), (1, 2), True),
    ((1, 5, 7, 7), 7, 3, 3, False),
    ((3, 35, 40), 3, 1, 1, False),  # no batch
    ((2, 33, 5, 5), 5, 5, 0, False),  # one output
    ((1, 2, 4, 4), 2, 3, 1, True),
    ((1, 2, 6, 290), 3, 2, 1, True),  # a line of more groups than are made at once
    ((2, 3, 5, 37), 2, 1, 1, False),
    # vectors of channels, whole windows and others
    ((2, 35, 9, 10), 3, 2, 1, False),
    ((1, 50, 7, 9), 2, 2, 0, True),
    # rows of whole windows, the last of which overlap
    ((2, 3, 8, 66), 2, 2, 0, False),
    ((1, 3, 9, 71), 3, 2, 1, False),
    ((2, 2, 6, 40), 3, 1, 1, True),
    ((1, 2, 7, 53), 2, 2, 1, True),
    # windows too far apart for vectors of outputs; a line too long to be added first
    ((2, 3, 12, 41), (4, 5), (4, 7), (1, 2), True),
    ((1, 3, 9, 71), (3, 4), (2, 4), (1, 1), False),
    ((1, 2, 5, 1031), 4, 4, 0, True),
]


def _layout_of(layout, tensor):
    if layout is channels_last and tensor.dim() < 4:
        pytest.skip("channels_last needs a batch")
    return layout(tensor)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size,kernel,stride,padding,ceil_mode", WINDOWS_2D)
def test_max_pool2d(device, size, kernel, stride, padding, ceil_mode, layout):
    x = _layout_of(layout, torch.randn(size))

    def pool(x):
        return F.max_pool2d(
            x, kernel, stride, padding, ceil_mode=ceil_mode, return_indices=True
        )

    check(pool, [x], device, strides=layout in (contiguous, channels_last))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_max_pool2d_dtypes(device, dtype, layout):
    x = layout(torch.randn(2, 21, 14, 15))
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), [x], device, dtype)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
)
@pytest.mark.parametrize("layout", [contiguous, channels_last, strided])
def test_max_pool2d_integers(device, dtype, layout):
    x = layout(torch.randint(0, 100, (2, 17, 9, 9)).to(dtype))
    check(
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        [x],
        device,
        backward=False,
    )


@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_max_pool2d_dilation(device, layout):
    x = layout(torch.randn(2, 17, 15, 16))
    check(
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation=(2, 3), return_indices=True),
        [x],
        device,
    )


@pytest.mark.parametrize("channels", [1, 3, 17, 33, 64])
def test_channels(device, channels):
    whole = torch.randn(3, channels + 2, 9, 11)
    whole[1, channels // 2, 3, 4] = float("nan")
    x = channels_last(whole)[1:, 2:, 1:, 1:]  # part of each pixel
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), [x], device)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), [x], device)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_max_pool2d_special_values(device, layout):
    x = torch.randn(1, 20, 8, 8)
    x[0, 0, 2:4, 3] = float("nan")
    x[0, 1, :4] = -float("inf")
    x[0, 2] = -float("inf")
    x[0, 3, 1, 1] = float("inf")
    x[0, 4] = 1.0  # equal maxima: the first wins
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), [layout(x)], device)


@pytest.mark.parametrize("kernel,padding", [(2, 0), (3, 1)])
def test_special_values_in_rows_of_whole_windows(device, kernel, padding):
    generator = torch.Generator().manual_seed(5)
    x = torch.randint(-2, 3, (2, 3, 20, 75), generator=generator).float()
    x[x == 2] = float("nan")
    x[x == -2] = float("-inf")
    check(
        lambda x: F.max_pool2d(x, kernel, 2, padding, return_indices=True),
        [x],
        device,
        backward=False,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_results_larger_than_caches(device, layout, dtype):
    """They are then written past them."""
    x = layout(torch.randn(1, 66, 453, 454))
    check(
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        [x],
        device,
        dtype,
        backward=False,
    )


@pytest.mark.parametrize("op", ["max", "avg"])
def test_empty_batch(device, op):
    x = torch.randn(0, 3, 8, 8)
    pool = F.max_pool2d if op == "max" else F.avg_pool2d
    check(lambda x: pool(x, 2), [x], device)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size,kernel,stride,padding,ceil_mode", WINDOWS_2D)
def test_avg_pool2d(device, size, kernel, stride, padding, ceil_mode, layout, include):
    x = _layout_of(layout, torch.randn(size))

    def pool(x):
        return F.avg_pool2d(x, kernel, stride, padding, ceil_mode, include)

    check(pool, [x], device, strides=layout in (contiguous, channels_last))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_avg_pool2d_dtypes(device, dtype, layout):
    x = layout(torch.randn(2, 21, 14, 15))
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), [x], device, dtype)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_avg_pool2d_divisor(device, layout):
    x = layout(torch.randn(2, 18, 9, 9))
    check(
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, True, divisor_override=7), [x], device
    )
    with pytest.raises(RuntimeError, match="divisor must be not zero"):
        F.avg_pool2d(x.to(device), 3, divisor_override=0)


def test_avg_pool2d_int64(device):
    x = torch.randint(-50, 50, (2, 3, 9, 9))
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), [x], device, backward=False)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("out", [(1, 1), (6, 6), (7, 3), (20, 21), (13, 17), (0, 2)])
def test_adaptive_avg_pool2d(device, out, layout):
    x = layout(torch.randn(2, 18, 13, 17))
    check(
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x, out),
        [x],
        device,
        backward=0 not in out,
        strides=layout in (contiguous, channels_last),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("out", [(3, 12), (6, 24), (1, 16), (12, 48), (12, 24), (5, 4)])
def test_adaptive_windows_of_one_size(device, out, layout):
    """They are ordinary windows, or each an element."""
    x = layout(torch.randn(2, 18, 12, 48))
    for pool in (torch.ops.aten._adaptive_avg_pool2d, F.adaptive_max_pool2d):
        check(
            lambda x, pool=pool: pool(x, out),
            [x],
            device,
            strides=layout in (contiguous, channels_last),
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_dtypes(device, dtype):
    x = torch.randn(2, 5, 13, 17)
    check(lambda x: F.avg_pool2d(x, 4, padding=1), [x], device, dtype)
    check(lambda x: F.adaptive_avg_pool2d(x, (4, 5)), [x], device, dtype)
    check(lambda x: F.adaptive_avg_pool2d(x, 1), [x], device, dtype)
    check(
        lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True),
        [x],
        device,
        dtype,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("out", [(1, 1), (7, 3), (20, 21), (13, 17)])
def test_adaptive_max_pool2d(device, out, layout):
    x = layout(torch.randn(2, 18, 13, 17))
    check(lambda x: F.adaptive_max_pool2d(x, out, return_indices=True), [x], device)


@pytest.mark.parametrize("layout", [contiguous, channels_last, strided])
def test_pool3d(device, layout):
    x = layout(torch.randn(2, 17, 7, 9, 8))
    keeps = layout is not strided
    check(
        lambda x: F.max_pool3d(
            x, 3, 2, 1, (1, 2, 1), ceil_mode=True, return_indices=True
        ),
        [x],
        device,
        strides=keeps,
    )
    check(lambda x: F.avg_pool3d(x, (3, 2, 3), 2, 1, True, False), [x], device)
    check(lambda x: F.adaptive_avg_pool3d(x, (3, 4, 2)), [x], device, strides=keeps)
    check(lambda x: F.adaptive_max_pool3d(x, (3, 4, 2), True), [x], device)


@pytest.mark.parametrize("size", [(2, 5, 33), (5, 33)])
def test_pool1d(device, size):
    x = torch.randn(size)
    check(lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), [x], device)
    check(lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True), [x], device)
    check(lambda x: F.avg_pool1d(x, 3, 2, 1), [x], device)
    check(lambda x: F.adaptive_avg_pool1d(x, 4), [x], device)
    check(lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), [x], device)


def test_out_variants(device):
    x = torch.randn(2, 5, 9, 9)
    d = x.to(device)
    indices = torch.empty(0, dtype=torch.long, device=device)
    out = torch.empty(0, device=device)
    torch.ops.aten.max_pool2d_with_indices.out(
        d, [3], [2], [1], [1], False, out=out, indices=indices
    )
    expected, expected_indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    assert torch.equal(out.cpu(), expected)
    assert torch.equal(indices.cpu(), expected_indices)
    # an output with a layout of its own
    gaps = torch.full((2, 5, 3, 3, 2), float("nan"), device=device)
    torch.ops.aten.adaptive_avg_pool2d.out(d, [3, 3], out=gaps[..., 0])
    torch.testing.assert_close(gaps[..., 0].cpu(), F.adaptive_avg_pool2d(x, 3))
    assert gaps.cpu()[..., 1].isnan().all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_max_unpool(device, spatial, layout):
    pool = getattr(F, f"max_pool{spatial}d")
    unpool = getattr(F, f"max_unpool{spatial}d")
    for outer in ((2, 3), (3,)):
        x = torch.randn(*outer, *(5, 8, 9)[-spatial:])
        pooled, indices = pool(x, 3, 2, 1, return_indices=True)
        if layout is channels_last and pooled.dim() < 4:
            continue
        size = x.shape[-spatial:]
        # PyTorch's gradient views indices as they are: no other layout has one.
        check(
            lambda x, i: unpool(x, i, 3, 2, 1, output_size=size),  # noqa: B023
            [layout(pooled), layout(indices)],
            device,
            backward=layout is contiguous,
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("output", [1, 2, 4])
@pytest.mark.parametrize("spatial", [2, 3])
def test_fractional_max_pool(device, spatial, output, dtype):
    pool = getattr(F, f"fractional_max_pool{spatial}d")
    kernel, size = (2, 3, 1)[-spatial:], (output + 1, output, output)[-spatial:]
    for outer in ((2, 3), (3,), (0, 3)):
        x = torch.randn(*outer, *(7, 8, 9)[-spatial:])
        samples = torch.rand(outer[0] if len(outer) == 2 else 1, 3, spatial)
        samples = samples.to(dtype).double()
        # Windows follow the samples' dtype, so that the reference takes the CPU's.
        leaves = [x.to(dtype).to(place).requires_grad_() for place in (device, "cpu")]
        results = [
            pool(
                leaf,
                kernel,
                size,
                return_indices=True,
                _random_samples=samples.to(leaf.device, dtype),
            )
            for leaf in leaves
        ]
        assert torch.equal(results[0][0].cpu(), results[1][0])
        assert torch.equal(results[0][1].cpu(), results[1][1])
        for values, _ in results:
            values.square().sum().backward()
        torch.testing.assert_close(leaves[0].grad.cpu(), leaves[1].grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("layout", [contiguous, strided])
def test_gradients_of_long_rows(device, layout, dtype):
    x = layout(torch.randn(2, 3, 5, 150))
    for call in (
        lambda x: F.max_pool2d(x, (2, 3), 1, 1),
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation=(1, 4), ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, (3, 5), (1, 3), (1, 2), ceil_mode=True),
        lambda x: F.avg_pool2d(x, (2, 20), (2, 1), divisor_override=7),
        lambda x: F.adaptive_avg_pool2d(x, (2, 140)),
    ):
        check(call, [x], device, dtype)


@pytest.mark.parametrize("channels", [4, 40])
def test_gradient_of_indices_outside_the_image(device, channels):
    gradient = channels_last(torch.ones(1, channels, 2, 2)).to(device)
    image = channels_last(torch.zeros(1, channels, 4, 4)).to(device)
    for far in (1 << 40, 16, -1, -(1 << 31)):
        indices = torch.full_like(gradient, far, dtype=torch.int64)
        result = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, image, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
        )
        if far != -1:  # no pixel
            with pytest.raises(IndexError, match=rf"index {far} is out of bounds"):
                torch.opencl.synchronize(device)
        assert not result.any()


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, (3, 2), (4, 2), (1, 0)),
        lambda x: F.max_pool3d(x, 2),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, (1, 2), (3, 2), divisor_override=5),
        lambda x: F.avg_pool2d(x, (3, 2), padding=(1, 0), count_include_pad=False),
    ],
)
@pytest.mark.parametrize("width", [32, 33, 47, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_gradients_of_windows_side_by_side(device, pool, width, dtype):
    check(pool, [torch.randn(2, 3, 7, width)], device, dtype)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.adaptive_avg_pool2d(x, (3, 1)),
    ],
)
def test_gradients_of_few_large_images(device, pool):
    check(pool, [channels_last(torch.randn(2, 40, 63, 66))], device)


def test_backward_is_deterministic(device):
    x = torch.randn(4, 8, 31, 31)
    gradients = []
    for _ in range(2):
        leaf = x.to(device).requires_grad_()
        F.max_pool2d(leaf, 5, 1, 2).square().sum().backward()
        gradients.append(leaf.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.max_pool2d(x, 3, 2, 2),
        lambda x: F.max_pool2d(x, 9),
        lambda x: F.max_pool2d(x.bool(), 2),
        lambda x: F.avg_pool2d(x.int(), 2),
        lambda x: F.max_pool3d(x[None], (2, 2)),
        lambda x: F.max_unpool2d(x, x.int(), 2),
        lambda x: F.max_unpool2d(x, x[..., 1:].long(), 2),
        lambda x: torch.ops.aten.max_unpool2d(x, x.long(), [6]),
        lambda x: torch.ops.aten.max_unpool3d(
            x[0], x[0].long(), [6] * 3, [2] * 3, [0] * 3
        ),
        lambda x: torch.ops.aten.max_unpool3d(x, x.long(), [6] * 3, [2] * 2, [0] * 3),
        lambda x: F.fractional_max_pool2d(x, 7, output_size=2),
        lambda x: F.fractional_max_pool2d(
            x, 2, output_size=2, _random_samples=x[:, :, 0, :3]
        ),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x, [2]),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x[0, 0], [2, 2]),
        lambda x: torch.ops.aten._adaptive_avg_pool2d(x.long(), [2, 2]),
        lambda x: torch.ops.aten._adaptive_avg_pool3d(x[:, :, :0][None], [1, 1, 1]),
    ],
)
def test_errors_are_the_cpus(device, call):
    x = torch.randn(2, 3, 6, 6)
    check_error(call, device, x)


# Each with kernels of its own.
_DIVIDED = [
    (F.avg_pool2d, (2, 3, 5, 6), 2, {}),
    (F.avg_pool2d, (2, 3, 6, 40), 2, {}),
    (F.avg_pool2d, (2, 3, 9, 40), 3, {"stride": 1, "padding": 1}),
    (F.avg_pool2d, (1, 2, 9, 50), 3, {"stride": 4}),
    (F.avg_pool3d, (2, 3, 4, 5, 6), 2, {"stride": 1}),
]


@pytest.mark.parametrize(("pool", "shape", "size", "options"), _DIVIDED)
@pytest.mark.parametrize("divisor", [2**31, -(2**31) - 3, 2**32])
def test_divisors_beyond_ints(device, pool, shape, size, options, divisor):
    for layout in (contiguous, channels_last):
        check(
            lambda x: pool(x, size, **options, divisor_override=divisor),
            [layout(torch.randn(shape))],
            device,
        )


def test_gradient_of_deep_windows_in_channels_last(device):
    """Results of depth 1. The CPU's gradient into this format is another's."""
    x, shape = channels_last(torch.randn(2, 17, 4, 9, 8)), (2, 17, 1, 4, 4)
    gradient = torch.randn(shape)
    results = []
    for place in ("cpu", device):
        out = torch.full_like(x, float("nan"), device=place)
        out = out if results else out.contiguous()
        options = ([4, 3, 2], [4, 2, 2], [0, 0, 0], False, True, None)
        torch.ops.aten.avg_pool3d_backward.grad_input(
            gradient.to(place), x.to(place), *options, grad_input=out
        )
        results.append(out.cpu())
    torch.testing.assert_close(results[1], results[0])
    check(lambda x: F.adaptive_avg_pool3d(x, (1, 4, 3)), [x], device)
    check(lambda x: F.max_pool3d(x, (4, 3, 2)), [x], device)
