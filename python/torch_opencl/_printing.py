"""Printing tensors of a device without float64, in which torch formats numbers."""

from __future__ import annotations

import functools

import torch
from torch import _tensor_str


def install() -> None:
    """Called once, when the package is imported."""
    formatter = _tensor_str._Formatter
    original = formatter.__init__

    @functools.wraps(original)
    def __init__(self, tensor: torch.Tensor) -> None:
        # What is printed, no more: torch has left out the middle of large tensors.
        original(self, tensor.cpu() if _lacks_float64(tensor.device) else tensor)

    formatter.__init__ = __init__


def _lacks_float64(device: torch.device) -> bool:
    if device.type != "opencl":
        return False
    return not torch.opencl.get_device_properties(device).has_fp64
