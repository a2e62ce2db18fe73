"""Sampling by a grid: values and gradients for every mode and padding."""

from __future__ import annotations

import pytest
import torch
from against_cpu import LAYOUTS, check
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
