"""Devices: which there are, what they can do, and which one is current."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from .. import _C
from ._lazy import _lazy_init

Device: TypeAlias = "torch.device | str | int | None"


def _device_index(device: Device) -> int:
    """The index that ``device`` names; the current one for None and for
    ``opencl`` without an index.

    Raises:
        ValueError: ``device`` is of another type than opencl.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is None:
        return current_device()
    if not isinstance(device, torch.device) or device.type != "opencl":
        raise ValueError(f"Expected an opencl device, but got: {device}")
    return current_device() if device.index is None else device.index


@dataclass(frozen=True)
class DeviceProperties:
    """What a device reports of itself. Sizes are in bytes."""

    name: str
    vendor: str
    platform: str
    platform_version: str
    version: str
    """OpenCL version of the device, e.g. ``OpenCL 3.0 (Build 0)``."""
    driver_version: str
    library: str
    """Path of the driver where the package found it by itself, else empty."""
    extensions: str = field(repr=False)
    """Space-separated names of the OpenCL extensions."""
    architecture: str
    """Of GPUs: ``gfx1030``, ``sm_86``, ``xe_12.55.8``; empty where the driver
    does not say."""
    is_gpu: bool
    device_class: str
    """``cpu`` or ``gpu``: the family of kernels that runs."""
    multi_processor_count: int
    """Compute units."""
    clock_mhz: int
    total_memory: int
    max_allocation: int
    """The largest size of one allocation (CL_DEVICE_MAX_MEM_ALLOC_SIZE)."""
    local_memory: int
    """Of one work-group."""
    max_work_group_size: int
    has_fp16: bool
    """Native half arithmetic; float16 tensors work without."""
    has_fp64: bool
    has_subgroups: bool
    has_denormals: bool
    """Denormal float32 numbers are computed with; other devices take them as 0."""


def device_count() -> int:
    """Number of OpenCL devices, after TORCH_OPENCL_DEVICES; 0 without a
    driver."""
    return _C._device_count()


def current_device() -> int:
    """Index of the calling thread's current device."""
    _lazy_init()
    return _C._current_device()


def set_device(device: Device) -> None:
    """Makes ``device`` the calling thread's current one; a negative index does
    nothing.

    Raises:
        RuntimeError: invalid device ordinal.
    """
    _lazy_init()
    _C._exchange_device(_device_index(device))


class device:
    """Context manager that changes the current device.

    Args:
        device: device, index or name; nothing changes for a negative index.
    """

    def __init__(self, device: Device) -> None:
        self.idx = _device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
            self.prev_idx = _C._exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            self.idx = _C._exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor or storage current;
    does nothing for one that is elsewhere."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device.index if obj.device.type == "opencl" else -1)


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Capabilities and limits of a device; the current one by default."""
    _lazy_init()
    return DeviceProperties(**_C._device_info(_device_index(device)))


def get_device_name(device: Device = None) -> str:
    """Name of a device as its driver spells it."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """OpenCL version of a device as (major, minor), e.g. (3, 0)."""
    version = get_device_properties(device).version
    match = re.match(r"OpenCL (\d+)\.(\d+)", version)
    if match is None:
        raise RuntimeError(f"opencl: malformed device version {version!r}")
    return int(match[1]), int(match[2])


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """False: a device does not read another one's memory. Copies between devices
    go through the host.

    Raises:
        RuntimeError: invalid device ordinal.
    """
    for one in (device, peer_device):
        get_device_properties(one)
    return False


def synchronize(device: Device = None) -> None:
    """Waits until everything enqueued on every stream of a device has finished.

    Raises:
        RuntimeError: a command failed; the text names the kernels launched
            last.
    """
    _lazy_init()
    _C._synchronize(_device_index(device))
