"""Kernels that the cases of other tests seldom choose, on shapes small enough for a
simulator: each is launched, and right.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check

pytestmark = pytest.mark.sampled(1)

_LAST = torch.channels_last


def _depthwise(
    kernel: tuple[int, int], **arguments
) -> tuple[Callable, Callable[[tuple[int, ...]], list[torch.Tensor]]]:
    def inputs(*sizes: int) -> list[torch.Tensor]:
        return [torch.randn(sizes), torch.randn(sizes[1], 1, *kernel)]

    def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight, groups=x.size(1), **arguments)

    return convolve, inputs


def _by_channels(y: torch.Tensor) -> torch.Tensor:
    """So that the gradient is channels_last, too."""
    return y.permute(0, 2, 3, 1)


def _far_filter() -> tuple[Callable, list[torch.Tensor]]:
    """A tile's share of the image would not fit into local memory."""
    convolve, inputs = _depthwise((3, 1), dilation=(4111, 1))
    return convolve, inputs(1, 2, 8229, 2)


def _spread() -> tuple[Callable, list[torch.Tensor]]:
    convolve, inputs = _depthwise((3, 3), stride=2, padding=1)
    return convolve, inputs(1, 3, 6, 38)


def _few_channels() -> tuple[Callable, list[torch.Tensor]]:
    convolve, inputs = _depthwise((3, 3), padding=1)
    x, weight = inputs(2, 5, 7, 9)
    return lambda *args: _by_channels(convolve(*args)), [
        x.contiguous(memory_format=_LAST),
        weight,
    ]


def _winograd() -> tuple[Callable, list[torch.Tensor]]:
    """Of as many channels as make up for its traffic on a GPU."""
    inputs = [torch.randn(1, 73, 18, 18), torch.randn(74, 73, 3, 3)]
    return lambda x, weight: F.conv2d(x, weight, padding=1), inputs


def _pooled_channels() -> tuple[Callable, list[torch.Tensor]]:
    x = torch.randn(2, 17, 6, 8).contiguous(memory_format=_LAST)
    return lambda x: _by_channels(F.avg_pool2d(x, 2)), [x]


def _enlarged_channels() -> tuple[Callable, list[torch.Tensor]]:
    x = torch.randn(2, 5, 4, 3).contiguous(memory_format=_LAST)
    return lambda x: _by_channels(F.interpolate(x, (7, 6), mode="bilinear")), [x]


def _repeats() -> tuple[Callable, list[torch.Tensor]]:
    inputs = [torch.randn(5, 3), torch.tensor([2, 0, 3, 1, 1])]
    return lambda x, r: x.repeat_interleave(r, 0, output_size=7), inputs


def _long_row() -> tuple[Callable, list[torch.Tensor]]:
    x = torch.randperm(24_593).float().reshape(1, -1)
    return lambda x: torch.kthvalue(x, 12_345), [x]


# kernel -> device class, and a call that launches it
_CASES = {
    "depthwise_each": ("gpu", _far_filter),
    "depthwise_3x3_spread": ("cpu", _spread),
    "depthwise_weight_channels": ("cpu", _few_channels),
    "winograd_tiles_gpu": ("gpu", _winograd),
    "avg_pool_backward_gather": ("cpu", _pooled_channels),
    "upsample_backward_pixels": ("cpu", _enlarged_channels),
    "check_repeats": (None, _repeats),
    "count_below": ("cpu", _long_row),  # and make_keys and find_place
}


@pytest.mark.parametrize("kernel", _CASES)
def test_kernel(device, kernel):
    device_class, case = _CASES[kernel]
    if device_class not in (None, _class_of(device)):
        pytest.skip(f"a kernel of the class {device_class}")
    function, inputs = case()
    with torch.opencl.profile() as profile:
        check(function, inputs, device)
    names = {entry.name.rpartition(":")[2] for entry in profile.kernels}
    assert kernel in names, names


def _class_of(device: torch.device) -> str:
    return torch.opencl.get_device_properties(device).device_class
