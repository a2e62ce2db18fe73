"""What other parts of Python need to know about opencl tensors: DLPack,
pickling to other processes, and the end of the process."""

from __future__ import annotations

import atexit
import functools
import time
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions
from torch.utils.data._utils import fetch, worker

from . import _C
from .opencl import _lazy

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


def _refuse(what: str, value: torch.Tensor | torch.UntypedStorage) -> None:
    if value.device.type == "opencl":
        kind = "tensor" if isinstance(value, torch.Tensor) else "storage"
        raise RuntimeError(_NOT_SHARED.format(what, kind))


def _refuse_other_processes() -> None:
    """Pickling for another process raises. Through host memory, a receiver made
    by ``fork`` could not use its device and would wait forever."""
    reduce_storage = reductions.reduce_storage
    share_memory_ = torch.UntypedStorage.share_memory_

    def opencl_reduce_tensor(tensor: torch.Tensor):
        _refuse("send memory", tensor)
        return reductions.reduce_tensor(tensor)

    def opencl_reduce_storage(storage: torch.UntypedStorage):
        _refuse("send memory", storage)
        return reduce_storage(storage)

    @functools.wraps(share_memory_)
    def opencl_share_memory_(self, *args, **kwargs):
        _refuse("share memory", self)
        return share_memory_(self, *args, **kwargs)

    ForkingPickler.register(torch.Tensor, opencl_reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, opencl_reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, opencl_reduce_storage)
    torch.UntypedStorage.share_memory_ = opencl_share_memory_


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


class _BatchCheck(ForkingPickler):
    """Raises where a batch has opencl tensors; what others hold is not pickled."""

    def __init__(self) -> None:
        # Memory of arrays stays out of the pickle: protocol 5's buffers.
        super().__init__(_Nowhere(), 5, True, lambda buffer: False)

    def persistent_id(self, value: object) -> str | None:
        if isinstance(value, (torch.Tensor, torch.UntypedStorage)):
            _refuse("send memory", value)
            return ""
        return None


def _check_workers_batches() -> None:
    """A worker of a DataLoader pickles its batches in a thread, whose errors the
    main process, which waits for the batch, does not see: they are checked where an
    error is sent to it."""

    def checked(original):
        @functools.wraps(original)
        def fetch_and_check(self, index):
            batch = original(self, index)
            info = worker._worker_info
            is_workers_own = info is not None and info.dataset is self.dataset
            if is_workers_own and (_lazy._initialized or _C._is_in_bad_fork()):
                _BatchCheck().dump(batch)
            return batch

        return fetch_and_check

    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        fetcher.fetch = checked(fetcher.fetch)


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
        except (RuntimeError, IndexError) as error:
            print(f"torch_opencl: at exit: {error}")
    if used:
        time.sleep(_ENGINE_THREAD_START_SECONDS)


def install() -> None:
    """Called once, when the package is imported."""
    _patch_dlpack_device()
    _refuse_other_processes()
    _check_workers_batches()
    atexit.register(_drain)
