"""``torch.distributed`` with tensors on the device.

    torch.distributed.init_process_group()  # "cpu:gloo,opencl:opencl_gloo"

The backend ``opencl_gloo`` copies tensors to pinned host memory, lets gloo
communicate, and copies the results back, without a wait in the caller.
``opencl_mpi`` does the same with MPI where torch has it, and ``staged`` with
any backend for CPU tensors.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from . import _C

__all__ = ["staged"]

DEFAULT = "cpu:gloo,opencl:opencl_gloo"


def staged(inner: Any, name: str = "opencl_staged") -> Any:
    """A ``torch.distributed`` backend for tensors on the device.

    Operations copy their tensors to pinned host memory, run on ``inner``, and
    copy the results back. To be returned by what
    ``torch.distributed.Backend.register_backend`` is given.

    Args:
        inner: a backend for CPU tensors, of this process.
        name: what errors and profiles call it.
    """
    return _C._staged_backend(inner, name)


def _create_gloo(options: Any, gloo_options: Any) -> Any:
    from torch.distributed import ProcessGroupGloo

    arguments = (options.store, options.group_rank, options.group_size)
    if isinstance(gloo_options, ProcessGroupGloo.Options):
        gloo_options._timeout = options.timeout
        inner = ProcessGroupGloo(*arguments, gloo_options)
    else:
        inner = ProcessGroupGloo(*arguments, timeout=options.timeout)
    inner.options.global_ranks_in_group = options.global_ranks_in_group
    inner.options.group_name = options.group_id
    inner._set_sequence_number_for_group()
    return staged(inner, "opencl_gloo")


def _create_mpi(options: Any, _: Any) -> Any:
    from torch.distributed import ProcessGroupMPI

    inner = ProcessGroupMPI.create(options.global_ranks_in_group)
    return staged(inner, "opencl_mpi")


def _allow_bfloat16_hook() -> None:
    """DDP refuses the hook by its name where there is neither NCCL nor XCCL."""
    ddp = torch.nn.parallel.DistributedDataParallel
    original = ddp._check_comm_hook

    @functools.wraps(original)
    def check(self: Any, hook: Any) -> None:
        if self.device_type == "opencl" and callable(hook):

            def renamed() -> None:
                pass

            renamed.__signature__ = inspect.signature(hook)
            hook = renamed
        original(self, hook)

    ddp._check_comm_hook = check


def install() -> None:
    """Registers the backends, and makes them what plain ``init_process_group()``
    chooses. Imports nothing: torch itself imports ``torch.distributed``."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    backend = distributed_c10d.Backend
    # Taken for both by init_process_group("opencl_gloo"), as gloo itself is.
    devices = ["cpu", "opencl"]
    if torch.distributed.is_gloo_available():
        backend.register_backend("opencl_gloo", _create_gloo, True, devices)
    if torch.distributed.is_mpi_available():
        backend.register_backend("opencl_mpi", _create_mpi, True, devices)

    # Without a name torch takes the accelerator's backend only, and tensors on
    # the CPU would have none.
    config = distributed_c10d.BackendConfig
    original = config.__init__

    @functools.wraps(original)
    def initialize(self: Any, name: Any) -> None:
        is_ours = (
            str(name) == backend.UNDEFINED
            and torch._C._get_accelerator().type == "opencl"
            and torch.distributed.is_gloo_available()
        )
        original(self, DEFAULT if is_ours else name)

    config.__init__ = initialize
    _allow_bfloat16_hook()
