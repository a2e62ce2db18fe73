"""What other parts of Python need to know about opencl tensors: DLPack,
pickling to other processes, and the end of the process."""

from __future__ import annotations

import atexit
import functools
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


_NOT_SHARED = (
    "Cannot {} of an opencl {}: OpenCL has no handles of memory that another process "
    "could open. Send tensor.cpu(), and move it to a device where it is received"
)


def _refuse_other_processes() -> None:
    """Pickling for another process raises. Through host memory, a receiver made
    by ``fork`` could not use its device and would wait forever."""
    reduce_storage = reductions.reduce_storage
    share_memory_ = torch.UntypedStorage.share_memory_

    def check(what: str, value: torch.Tensor | torch.UntypedStorage) -> None:
        if value.device.type == "opencl":
            kind = "tensor" if isinstance(value, torch.Tensor) else "storage"
            raise RuntimeError(_NOT_SHARED.format(what, kind))

    def opencl_reduce_tensor(tensor: torch.Tensor):
        check("send memory", tensor)
        return reductions.reduce_tensor(tensor)

    def opencl_reduce_storage(storage: torch.UntypedStorage):
        check("send memory", storage)
        return reduce_storage(storage)

    @functools.wraps(share_memory_)
    def opencl_share_memory_(self, *args, **kwargs):
        check("share memory", self)
        return share_memory_(self, *args, **kwargs)

    ForkingPickler.register(torch.Tensor, opencl_reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, opencl_reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, opencl_reduce_storage)
    torch.UntypedStorage.share_memory_ = opencl_share_memory_


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
    _refuse_other_processes()
    atexit.register(_drain)
