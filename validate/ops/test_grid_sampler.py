"""Sampling by a grid: values and gradients for every mode and padding."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, LAYOUTS, channels_last, check, contiguous
from torch.nn.functional import affine_grid, grid_sample

_MODES = {2: ("bilinear", "nearest", "bicubic"), 3: ("bilinear", "nearest")}
_PADDINGS = ("zeros", "border", "reflection")


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", _PADDINGS)
@pytest.mark.parametrize("spatial", [2, 3])
def test_modes(device, spatial, padding, align):
    x = torch.randn(2, 3, *(5, 7, 6)[-spatial:])
    # far outside too
    grid = torch.randn(2, *(2, 9, 4)[-spatial:], spatial) * 2
    for mode in _MODES[spatial]:
        check(
            lambda x, grid: grid_sample(x, grid, mode, padding, align),  # noqa: B023
            [x, grid],
            device,
        )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    x = layout(torch.randn(2, 4, 5, 7))
    grid = layout(torch.rand(2, 3, 6, 2) * 2 - 1)
    check(lambda x, g: grid_sample(x, g, align_corners=False), [x, grid], device)


def _image(channels, size, layout):
    return layout(torch.randn(2, channels, *size))


# Channels around a vector, pixels around a vector and a block of 256.
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("channels", [1, 15, 16, 37])
def test_blocks(device, channels, layout):
    x = _image(channels, (6, 5), layout)
    for pixels in ((1, 15), (4, 4), (17, 1), (16, 16), (3, 91)):
        grid = torch.randn(2, *pixels, 2)
        check(lambda x, g: grid_sample(x, g, align_corners=False), [x, grid], device)


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("mode", _MODES[2])
def test_many_channels_and_small_images(device, mode, layout):
    # Fewer rows or columns than taps, and one more.
    for size in ((1, 1), (1, 7), (7, 1), (3, 5), (5, 3), (4, 4)):
        x = _image(19, size, layout)
        grid = torch.randn(2, 3, 7, 2) * 2
        for padding in _PADDINGS:
            check(
                lambda x, g: grid_sample(x, g, mode, padding, False),  # noqa: B023
                [x, grid],
                device,
            )


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("mode", _MODES[3])
def test_volumes(device, mode, layout):
    grid = torch.randn(2, 2, 5, 9, 3)
    for size in ((4, 3, 5), (1, 3, 5), (4, 1, 2)):
        x = _image(21, size, layout)
        check(
            lambda x, g: grid_sample(x, g, mode, align_corners=True), [x, grid], device
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_dtypes(device, layout, dtype):
    x = _image(18, (5, 7), layout)
    grid = torch.rand(2, 5, 7, 2) * 2 - 1
    check(lambda x, g: grid_sample(x, g, align_corners=True), [x, grid], device, dtype)


def test_grids_of_other_strides(device):
    x = torch.randn(2, 3, 5, 7)
    flow = torch.randn(2, 2, 6, 4)
    check(
        lambda x, f: grid_sample(x, f.permute(0, 2, 3, 1), align_corners=False),
        [x, flow],
        device,
    )
    check(
        lambda x, f: grid_sample(x, f.permute(0, 3, 2, 1), align_corners=False),
        [x, flow],
        device,
    )
    check(
        lambda x, f: grid_sample(x, f.expand(2, 6, 4, 2), align_corners=False),
        [x, torch.randn(1, 1, 4, 2)],
        device,
    )


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("padding", _PADDINGS)
def test_nan_spreads_as_on_the_cpu(device, padding, layout):
    # The only columns and rows that count are the first and the last.
    x = _image(16, (6, 6), layout)
    x[:, :, 1:-1] = float("nan")
    x[:, :, :, 1:-1] = float("nan")
    corners = torch.tensor([[-1.0, -1], [1, -1], [-1, 1], [1, 1]])
    outward = 1.1 if padding != "reflection" else 1.0
    grid = (corners * outward).expand(2, 1, 4, 2)
    y = grid_sample(x.to(device), grid.to(device), "bilinear", padding, False)
    expected = grid_sample(x, grid, "bilinear", padding, False)
    torch.testing.assert_close(y.cpu(), expected, equal_nan=True)
    assert padding != "zeros" or not y.isnan().any()


def test_gradients_repeat(device):
    x = torch.randn(2, 20, 9, 9, device=device, requires_grad=True)
    grid = (torch.randn(2, 40, 40, 2) * 0.1).to(device).requires_grad_()
    y = grid_sample(x, grid, align_corners=False)
    first, second = (
        torch.autograd.grad(y, [x, grid], torch.ones_like(y), retain_graph=True)
        for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_identity(device):
    x = torch.randn(1, 2, 6, 5, device=device)
    theta = torch.eye(2, 3, device=device)[None]
    grid = affine_grid(theta, x.shape, align_corners=True)
    torch.testing.assert_close(grid_sample(x, grid, align_corners=True), x)


def test_empty_and_errors(device):
    x = torch.randn(2, 3, 5, 5, device=device, requires_grad=True)
    y = grid_sample(x, torch.empty(2, 0, 4, 2, device=device), align_corners=False)
    y.sum().backward()
    assert y.shape == (2, 3, 0, 4) and not x.grad.any()
    with pytest.raises(RuntimeError, match="to have size 2 in last dimension"):
        grid_sample(x, torch.empty(2, 3, 4, 3, device=device), align_corners=False)


def test_modes_that_are_none(device):
    x, grid = torch.randn(1, 2, 5, 5, device=device), torch.zeros(1, 2, 2, 2)
    for interpolation, padding in [(65, 0), (-1, 0), (0, 7)]:
        with pytest.raises(RuntimeError, match="modes from 0 to 2"):
            torch.grid_sampler_2d(x, grid.to(device), interpolation, padding, False)
