"""``torch.opencl._utils``: torch.load asks it which device a location names."""

from __future__ import annotations

import torch

from .devices import Device


def _get_device_index(
    device: Device, optional: bool = False, allow_cpu: bool = False
) -> int | None:
    """The index that ``device`` names.

    Args:
        device: device, index or name.
        optional: take the current device where no index is named (None where there
            is no device at all); otherwise that is an error.
        allow_cpu: -1 for the CPU; otherwise that is an error.

    Raises:
        ValueError: another type of device, or no index where one is wanted.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        allowed = ("opencl", "cpu") if allow_cpu else ("opencl",)
        if device.type not in allowed:
            wanted = " or ".join(allowed)
            raise ValueError(f"Expected a device of {wanted}, but got: {device}")
    return torch._utils._get_device_index(device, optional, allow_cpu)
