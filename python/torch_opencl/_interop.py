"""What other parts of Python need to know about opencl tensors: DLPack,
pickling to other processes, and the end of the process."""

from __future__ import annotations

import atexit
import time
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions

from . import _C

_ENGINE_THREAD_START_SECONDS = 0.02


def _patch_dlpack_device() -> None:
    """``Tensor.__dlpack_device__`` compares with the name "privateuse1", which
    no renamed backend has (pytorch/pytorch#195815)."""
    from torch.utils.dlpack import DLDeviceType

    original = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self):
        if self.device.type == "opencl":
            return (DLDeviceType.kDLExtDev, self.device.index)
        return original(self)

    __dlpack_device__.__doc__ = original.__doc__
    torch.Tensor.__dlpack_device__ = __dlpack_device__


def _rebuild_tensor(values: torch.Tensor, device: str, requires_grad: bool):
    return values.to(device).requires_grad_(requires_grad)


def _rebuild_parameter(values: torch.Tensor, device: str, requires_grad: bool):
    return torch.nn.Parameter(values.to(device), requires_grad=requires_grad)


def _reduce_tensor(tensor: torch.Tensor):
    """OpenCL memory has no handle that another process could open: tensors
    travel through host memory."""
    is_leaf = tensor.is_leaf or not tensor.requires_grad
    if tensor.device.type != "opencl" or not is_leaf:
        return reductions.reduce_tensor(tensor)  # raises for a non-leaf
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    rebuild = _rebuild_parameter if is_parameter else _rebuild_tensor
    values = tensor.detach().cpu()
    return rebuild, (values, str(tensor.device), tensor.requires_grad)


def _drain() -> None:
    """Lets the devices finish while their drivers still exist, and autograd's
    threads get the interpreter lock they need to start: a thread that is
    refused it at finalisation aborts the process (pytorch/pytorch#38228)."""
    if _C._is_in_bad_fork():
        return
    used = [index for index in range(_C._device_count()) if _C._has_context(index)]
    for index in used:
        try:
            _C._synchronize(index)
        except RuntimeError as error:
            print(f"torch_opencl: at exit: {error}")
    if used:
        time.sleep(_ENGINE_THREAD_START_SECONDS)


def install() -> None:
    """Called once, when the package is imported."""
    _patch_dlpack_device()
    ForkingPickler.register(torch.Tensor, _reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, _reduce_tensor)
    atexit.register(_drain)
