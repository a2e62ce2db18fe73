"""Kernels that the cases of other tests seldom choose, on shapes small enough for a
simulator: each is launched, and right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import vision_oracle
from against_cpu import channels_last, check

pytestmark = pytest.mark.sampled(1)

# A function and its inputs.
_Call = tuple[Callable, list[torch.Tensor]]


def _depthwise(x: torch.Tensor, kernel: tuple[int, int], **arguments) -> _Call:
    def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight, groups=x.size(1), **arguments)

    return convolve, [x, torch.randn(x.size(1), 1, *kernel)]


def _by_channels(y: torch.Tensor) -> torch.Tensor:
    """So that the gradient is channels_last, too."""
    return y.permute(0, 2, 3, 1)


def _far_filter() -> _Call:
    """A tile's share of the image would not fit into local memory."""
    return _depthwise(torch.randn(1, 2, 8229, 2), (3, 1), dilation=(4111, 1))


def _spread() -> _Call:
    return _depthwise(torch.randn(1, 3, 6, 38), (3, 3), stride=2, padding=1)


def _long_rows() -> _Call:
    return _depthwise(torch.randn(1, 16, 4, 37), (3, 3), padding=1)


def _by_vectors_of_channels(channels: int) -> _Call:
    x = channels_last(torch.randn(2, channels, 7, 9))
    convolve, inputs = _depthwise(x, (3, 3), padding=1)
    return lambda *operands: _by_channels(convolve(*operands)), inputs


def _winograd(x: torch.Tensor, channels: int) -> _Call:
    inputs = [x, torch.randn(channels, x.size(1), 3, 3)]
    return lambda x, weight: F.conv2d(x, weight, padding=1), inputs


def _winograd_of_many() -> _Call:
    """Channels that make up for its traffic on a GPU."""
    return _winograd(torch.randn(1, 73, 18, 18), 74)


def _winograd_by_channels() -> _Call:
    return _winograd(channels_last(torch.randn(1, 17, 20, 20)), 16)


def _pooled_channels() -> _Call:
    x = channels_last(torch.randn(2, 17, 6, 8))
    return lambda x: _by_channels(F.avg_pool2d(x, 2)), [x]


def _enlarged_channels() -> _Call:
    x = channels_last(torch.randn(2, 5, 4, 3))
    return lambda x: _by_channels(F.interpolate(x, (7, 6), mode="bilinear")), [x]


def _repeats() -> _Call:
    inputs = [torch.randn(5, 3), torch.tensor([2, 0, 3, 1, 1])]
    return lambda x, r: x.repeat_interleave(r, 0, output_size=7), inputs


def _gru_cell() -> _Call:
    inputs = [torch.randn(3, 5), torch.randn(3, 7), torch.randn(21, 5)]
    return torch.gru_cell, [*inputs, torch.randn(21, 7), *torch.randn(2, 21)]


def _regions(op: str, *options: float) -> _Call:
    ops = pytest.importorskip("torchvision").ops
    vision_oracle.register()  # where torchvision's own did not load
    rois = torch.tensor([[1, -2.3, 1.1, 9.2, 8.4], [0, 3.0, 2.0, 4.5, 11.7]])
    pool = getattr(ops, op)
    return lambda x: pool(x, rois.to(x), (3, 2), *options), [torch.randn(2, 12, 11, 13)]


def _long_row() -> _Call:
    x = torch.randperm(24_593).float().reshape(1, -1)
    return lambda x: torch.kthvalue(x, 12_345), [x]


# kernel -> device class, and a call that launches it
_CASES = {
    "depthwise_each": ("gpu", _far_filter),
    "depthwise_3x3_spread": ("cpu", _spread),
    "depthwise_weight_3x3": ("cpu", _long_rows),
    "depthwise_weight_channels": ("cpu", partial(_by_vectors_of_channels, 5)),
    "depthwise_weight_row_tiles": ("cpu", partial(_by_vectors_of_channels, 17)),
    "winograd_input_channels": ("cpu", _winograd_by_channels),
    "winograd_tiles_gpu": ("gpu", _winograd_of_many),
    "avg_pool_backward_gather": ("cpu", _pooled_channels),
    "upsample_backward_pixels": ("cpu", _enlarged_channels),
    "gru_cell_backward": (None, _gru_cell),  # and gru_cell
    "ps_roi_align_backward": (None, partial(_regions, "ps_roi_align", 0.5, 2)),
    "ps_roi_pool_backward": (None, partial(_regions, "ps_roi_pool", 0.5)),
    "check_repeats": (None, _repeats),
    "count_below": ("cpu", _long_row),  # and make_keys and find_place
}


@pytest.mark.parametrize("kernel", _CASES)
def test_kernel(device, kernel):
    device_class, case = _CASES[kernel]
    own = torch.opencl.get_device_properties(device).device_class
    if device_class not in (None, own):
        pytest.skip(f"a kernel of the class {device_class}")
    function, inputs = case()
    with torch.opencl.profile() as profile:
        check(function, inputs, device)
    names = {entry.name.rpartition(":")[2] for entry in profile.kernels}
    assert kernel in names, names
