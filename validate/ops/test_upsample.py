"""Resampling: values, gradients, layouts and dtypes of every mode."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, LAYOUTS, channels_last, check, contiguous, strided
from torch.nn.functional import interpolate

_MODES = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    3: ("nearest", "nearest-exact", "trilinear"),
}
_SIZES = {1: [(3,), (14,), (150,)], 2: [(3, 4), (14, 10), (1, 70), (7, 5)]}
_SIZES[3] = [(2, 3, 4), (6, 14, 10), (1, 1, 9)]
_SOURCE = (3, 7, 5)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_sizes(device, spatial, align):
    x = torch.randn(2, 3, *_SOURCE[-spatial:])
    for mode in _MODES[spatial]:
        corners = {} if mode.startswith("nearest") else {"align_corners": align}
        for size in _SIZES[spatial]:
            check(lambda x: interpolate(x, size, mode=mode, **corners), [x], device)  # noqa: B023


@pytest.mark.parametrize("factor", [0.4, 2.0, (1.7, 0.6)])
@pytest.mark.parametrize("recompute", [False, True])
def test_scale_factors(device, factor, recompute):
    x = torch.randn(1, 2, 13, 9)
    for mode in _MODES[2]:
        check(
            lambda x: interpolate(
                x,
                scale_factor=factor,
                mode=mode,  # noqa: B023
                recompute_scale_factor=recompute,
            ),
            [x],
            device,
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", _MODES[2])
def test_layouts(device, mode, layout):
    x = layout(torch.randn(2, 67, 5, 6))
    check(lambda x: interpolate(x, (11, 7), mode=mode), [x], device)


# Channels: fewer than a vector, a whole number of vectors, four at once and others.
@pytest.mark.parametrize("size", [(10, 12), (23, 7), (1, 1), (3, 60)])
@pytest.mark.parametrize("channels", [2, 16, 67, 149])
@pytest.mark.parametrize("mode", _MODES[2])
def test_pixels(device, mode, channels, size):
    x = channels_last(torch.randn(2, channels, 5, 6))
    check(lambda x: interpolate(x, size, mode=mode), [x], device)


@pytest.mark.parametrize("mode", ["nearest", "trilinear"])
def test_pixels_of_volumes(device, mode):
    x = torch.randn(2, 19, 3, 4, 5).contiguous(memory_format=torch.channels_last_3d)
    for size in [(5, 4, 9), (2, 8, 3)]:
        check(lambda x: interpolate(x, size, mode=mode), [x], device)  # noqa: B023


# A factor whose result has twice the size, but not by that factor.
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearly_twice(device, mode, layout):
    x = layout(torch.randn(2, 3, 3, 3))
    check(lambda x: interpolate(x, scale_factor=2.3, mode=mode), [x], device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", _MODES[2])
def test_dtypes(device, mode, dtype):
    x = torch.randn(2, 3, 5, 6)
    check(lambda x: interpolate(x, (11, 4), mode=mode), [x], device, dtype)


@pytest.mark.parametrize("layout", [contiguous, strided])
@pytest.mark.parametrize("size", [(3, 4), (20, 17), (6, 7)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(device, mode, size, layout):
    x = layout(torch.randn(2, 3, 13, 16))
    check(lambda x: interpolate(x, size, mode=mode, antialias=True), [x], device)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("size", [(4, 6), (20, 17), (1, 30)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias_reads_no_pixel_beyond_its_filter(device, mode, size, value):
    x = torch.randn(1, 2, 11, 13)
    x[0, 1, 4, 6] = value
    gradient = torch.randn(1, 2, *size)
    gradient[0, 0, 0, size[1] // 2] = value
    results = []
    for place in ("cpu", device):
        leaf = x.detach().clone().to(place).requires_grad_()
        y = interpolate(leaf, size, mode=mode, antialias=True)
        y.backward(gradient.to(place))
        results.append((y.detach().cpu(), leaf.grad.cpu()))
    for expected, result in zip(*results, strict=True):
        finite = expected.isfinite()
        assert torch.equal(result.isfinite(), finite)
        torch.testing.assert_close(result[finite], expected[finite])


@pytest.mark.parametrize("mode", _MODES[2])
def test_bytes(device, mode):
    x = torch.randint(256, (2, 3, 9, 8), dtype=torch.uint8)
    result = interpolate(x.to(device), (5, 13), mode=mode).cpu()
    # The CPU rounds weights, and what lies between the axes, to integers.
    expected = interpolate(x.double(), (5, 13), mode=mode).round().clamp(0, 255)
    off = 0 if mode.startswith("nearest") else 1
    assert (result.double() - expected).abs().max() <= off


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(5, 13), (7, 4), (40, 30), (19, 60), (1, 1)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_rounded_once(device, mode, size, antialias, align):
    """The nearest byte, halves up, but where float32 cannot tell halves.

    The CPU takes weights of 16 bits, and between the axes rounds and clamps to bytes:
    it is up to 1 off in bilinear, and 29 in bicubic, which overshoots.
    """
    given = {"size": size, "mode": mode, "antialias": antialias, "align_corners": align}
    for channels in (1, 3, 6):
        x = torch.randint(256, (2, channels, 19, 18), dtype=torch.uint8)
        exact = interpolate(x.double(), **given)
        expected = (exact + 0.5).floor()
        is_half = ((exact + 0.5).round() - (exact + 0.5)).abs() < 1e-3
        expected[is_half] = exact[is_half]
        allowed = is_half * 0.502
        for layout in (contiguous, channels_last):
            result = interpolate(layout(x).to(device), **given).cpu().double()
            off = (result - expected.clamp(0, 255)).abs()
            assert bool((off <= allowed).all()), off.max()


def test_empty_batch(device):
    x = torch.empty(0, 3, 5, 6, device=device, requires_grad=True)
    y = interpolate(x, (11, 7), mode="bilinear")
    y.sum().backward()
    assert y.shape == (0, 3, 11, 7) and x.grad.shape == x.shape


@pytest.mark.parametrize("antialias", [False, True])
def test_halves_of_bytes_go_up(device, antialias):
    x = torch.tensor([[[[1, 2], [4, 5]]]], dtype=torch.uint8)
    given = {"size": (2, 1), "mode": "bilinear", "antialias": antialias}
    result = interpolate(x.to(device), **given).cpu().flatten()
    assert result.tolist() == [2, 5]  # of 1.5 and 4.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    ("size", "factor"), [(3, 2.3), (5, 1.1), (17, 2.3), (6, 0.51), (4, 2.0), (9, 1.0)]
)
def test_nearest_by_a_scale_beside_the_sizes(device, size, factor, mode, dtype):
    """Sizes that double or stay, by a scale that is not 2 or 1."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for axes in (1, 2, 3):
        for channels in (1, 3, 5):
            x = torch.randn(2, channels, size, *[3] * (axes - 1), dtype=dtype)
            for layout in (torch.contiguous_format, formats.get(axes + 2)):
                if layout is None:
                    continue

                def call(x, layout=layout, factors=(factor, *[1.5] * (axes - 1))):
                    x = x.contiguous(memory_format=layout).requires_grad_()
                    y = interpolate(x, scale_factor=factors, mode=mode)
                    (grad,) = torch.autograd.grad(y, x, y.detach())
                    return y.detach().cpu(), grad.cpu()

                expected, result = call(x), call(x.to(device))
                assert torch.equal(result[0], expected[0])
                torch.testing.assert_close(result[1], expected[1])


def _resampled(x, gradient, device, **given):
    leaf = x.detach().to(device).requires_grad_()
    y = interpolate(leaf, **given)
    y.backward(gradient[: y.numel()].view(y.shape).to(device))
    return y.detach().cpu(), leaf.grad.cpu()


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("factors", [(1.05, 1.05), (1.05, 1.7), (0.6, 1.05)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_scale_beside_a_size_that_stays(device, mode, factors, layout, antialias):
    x = layout(torch.randn(2, 19, 10, 10))
    gradient = torch.randn(2 * 19 * 400)
    given = {"scale_factor": factors, "mode": mode, "antialias": antialias}
    expected = _resampled(x, gradient, "cpu", **given)
    result = _resampled(x, gradient, device, **given)
    if factors == (1.05, 1.05) and (mode == "bilinear" or antialias):
        assert torch.equal(result[0], x)
    if mode == "bicubic" and not antialias:  # the CPU's gradient is not its forward's
        expected, result = expected[:1], result[:1]
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("sizes", [(10,), (5, 10), (4, 5, 10)])
def test_linear_reads_no_neighbour_where_the_size_stays(device, sizes):
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(sizes)]
    x = torch.randn(2, 3, *sizes)
    x[0, 1, ..., 3] = float("nan")
    gradient = torch.randn(x.numel())
    gradient[7] = float("nan")
    for layout in (contiguous, channels_last)[: len(sizes)]:
        for given in ({"size": sizes}, {"scale_factor": 1.05}):
            result = _resampled(layout(x), gradient, device, mode=mode, **given)
            values = (x, gradient.view_as(x))
            torch.testing.assert_close(result, values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_of_a_size_that_stays(device, mode, antialias):
    x = torch.randint(256, (2, 3, 10, 10), dtype=torch.uint8)
    given = {"mode": mode, "antialias": antialias}
    for layout in (contiguous, channels_last):
        moved = layout(x).to(device)
        result = interpolate(moved, scale_factor=1.05, **given)
        assert torch.equal(result.cpu(), x)
        assert torch.equal(interpolate(x, scale_factor=1.05, **given), x)
        result = interpolate(moved, scale_factor=(1.05, 0.6), **given)
        expected = interpolate(moved, scale_factor=(1.0, 0.6), **given)
        assert torch.equal(result.cpu(), expected.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_of_large_images(device, mode, dtype):
    """Beyond 128 rows and columns torch's CPU takes its other kernel."""
    for channels in (1, 3, 5):
        x = torch.randn(1, channels, 100, 20, dtype=dtype)
        for layout in (contiguous, channels_last):
            given = {"scale_factor": (1.009, 2.02), "mode": mode}
            gradient = torch.randn(channels * 100 * 40, dtype=dtype)
            result = _resampled(layout(x), gradient, device, **given)
            expected = _resampled(layout(x), gradient, "cpu", **given)
            assert torch.equal(result[0], expected[0])
            torch.testing.assert_close(result[1], expected[1])
    for axes in (1, 2, 3):
        x = torch.arange(2, dtype=dtype).expand(1, 1, *[2] * axes)
        for size in ((82,) * axes, (94,) * axes):
            result = interpolate(x.to(device), size, mode=mode)
            assert torch.equal(result.cpu(), interpolate(x, size, mode=mode))
