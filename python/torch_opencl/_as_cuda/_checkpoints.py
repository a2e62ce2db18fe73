"""Files of torch.save name devices as CUDA's do, and are read by those names."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import serialization

# Ahead of torch's own functions for CUDA (20) and for this device (23).
_PRIORITY = 19


def _tag(storage: Any) -> str | None:
    """The location that is saved: a machine with CUDA finds its own device."""
    device = storage.device
    return f"cuda:{device.index}" if device.type == "opencl" else None


def _restore(storage: Any, location: str) -> Any:
    """``storage`` on the device that a program calls "cuda:N", however many
    torch.cuda.device_count() says that there are."""
    if re.fullmatch(r"cuda(:[0-9]+)?", location) and torch.cuda.is_available():
        device = serialization._validate_device(location, "opencl")
        return storage.to(device=device)
    return None


def _patch_map_location() -> None:
    """What selects by location sees "cuda:N" in files saved without as_cuda(), too."""
    get_restore_location = serialization._get_restore_location

    def redirected(map_location: Any):
        restore = get_restore_location(map_location)
        return lambda storage, location: restore(
            storage, re.sub("^opencl", "cuda", location)
        )

    serialization._get_restore_location = redirected


def install() -> None:
    """Called once, by as_cuda()."""
    serialization.register_package(_PRIORITY, _tag, _restore)
    _patch_map_location()
