"""``torch.cuda`` with the functions of ``torch.opencl``."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import _C
from ..opencl import _utils
from ..opencl.devices import DeviceProperties
from . import _graphs
from ._counts import counted, counts, unsupported, unsupported_class

_NO_POOLS = "opencl has one allocator; torch.cuda.empty_cache() empties it"
_NO_SENSORS = "OpenCL does not tell it; the driver's own tools do"
_NO_CUDA_SOURCE = (
    "it takes CUDA source; torch.opencl.compile_kernel and "
    "torch_opencl.ElementwiseKernel take OpenCL C"
)
_NO_LIBRARY = "there is no CUDA runtime, cuBLAS or cuSOLVER"

# Names of torch.cuda and of its modules, and why they cannot work.
_UNSUPPORTED_FUNCTIONS = {
    "_compile_kernel": _NO_CUDA_SOURCE,
    "_sleep": "OpenCL has no such command",
    "caching_allocator_alloc": _NO_POOLS,
    "caching_allocator_delete": _NO_POOLS,
    "change_current_allocator": _NO_POOLS,
    "clock_rate": _NO_SENSORS,
    "cudart": _NO_LIBRARY,
    "current_blas_handle": _NO_LIBRARY,
    "current_solver_handle": _NO_LIBRARY,
    "get_stream_from_external": _NO_LIBRARY,
    "list_gpu_processes": _NO_SENSORS,
    "memory_usage": _NO_SENSORS,
    "power_draw": _NO_SENSORS,
    "temperature": _NO_SENSORS,
    "use_mem_pool": _NO_POOLS,
    "utilization": _NO_SENSORS,
}
_UNSUPPORTED_CLASSES = {
    "CUDAPluggableAllocator": _NO_POOLS,
    "ExternalStream": _NO_LIBRARY,
    "GreenContext": _NO_LIBRARY,
    "MemPool": _NO_POOLS,
}
_MODULES = ("graphs", "green_contexts", "memory", "random", "streams")

# Volta: halves with products summed in float32. Programs that ask for more (8.0)
# do it for kernels of their own for bfloat16, TF32 or fused attention.
_CAPABILITY = (7, 0)


class _Properties:
    """An opencl device's properties with the attributes of CUDA's besides."""

    major, minor = _CAPABILITY
    warp_size = 32
    is_integrated = 0
    is_multi_gpu_board = 0
    gcnArchName = ""

    def __init__(self, properties: DeviceProperties) -> None:
        self._properties = properties
        self.max_threads_per_block = properties.max_work_group_size
        self.max_threads_per_multi_processor = properties.max_work_group_size
        self.shared_memory_per_block = properties.local_memory
        self.shared_memory_per_multiprocessor = properties.local_memory
        self.clock_rate = properties.clock_mhz * 1000

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._properties, name)

    def __repr__(self) -> str:
        own = self._properties
        return (
            f"_CudaDeviceProperties(name={own.name!r}, major={self.major}, "
            f"minor={self.minor}, total_memory={own.total_memory // 2**20}MB, "
            f"multi_processor_count={own.multi_processor_count})"
        )


def _count_devices() -> int:
    """GPUs where there are any, else one: all CPU drivers offer the same CPU, and
    a program that finds two devices divides its work between them."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        return 0
    count = _C._device_count()
    gpus = sum(_C._device_info(index)["is_gpu"] for index in range(count))
    return gpus or min(count, 1)


def _get_device_properties(device=None) -> _Properties:
    return _Properties(torch.opencl.get_device_properties(device))


def _get_device_capability(device=None) -> tuple[int, int]:
    torch.opencl.get_device_properties(device)  # raises for a wrong device
    return _CAPABILITY


def _set_sync_debug_mode(debug_mode: int | str) -> None:
    if debug_mode not in (0, "default"):
        raise NotImplementedError(
            "torch.cuda.set_sync_debug_mode is not supported on opencl; "
            "torch.opencl.wait_stats() counts waits"
        )


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    torch._C._accelerator_setStream(
        torch.Stream(
            stream_id=stream_id, device_index=device_index, device_type=device_type
        )
    )


def _replacements() -> dict[str, Any]:
    """What is not simply the name of the same spelling in torch.opencl."""
    opencl = torch.opencl
    return {
        "CUDAGraph": _graphs.CUDAGraph,
        "_exchange_device": _C._exchange_device,
        "_get_device_index": _utils._get_device_index,
        "_maybe_exchange_device": _C._exchange_device,
        "_set_stream_by_id": _set_stream_by_id,
        "caching_allocator_disabled": contextlib.nullcontext,
        "device_count": _count_devices,
        "get_arch_list": list,
        "get_device_capability": _get_device_capability,
        "get_device_properties": _get_device_properties,
        "get_gencode_flags": str,
        "get_sync_debug_mode": int,
        "graph": _graphs.graph,
        "graph_pool_handle": _graphs.graph_pool_handle,
        "ipc_collect": lambda: None,
        "is_available": lambda: _count_devices() > 0,
        "max_memory_cached": opencl.max_memory_reserved,
        "memory_cached": opencl.memory_reserved,
        "reset_max_memory_allocated": opencl.reset_peak_memory_stats,
        "reset_max_memory_cached": opencl.reset_peak_memory_stats,
        "set_sync_debug_mode": _set_sync_debug_mode,
    }


def _wrap(name: str, value: Any) -> Any:
    """Functions are counted; classes and numbers stay what they are, for programs
    derive from them."""
    if isinstance(value, type) or not callable(value):
        return value
    return counted(f"torch.cuda.{name}", value)


def _names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    opencl = torch.opencl
    sources = [vars(opencl), vars(opencl.memory)]
    for name in {*dir(torch.cuda), *dir(torch.cuda.memory)}:
        if name.startswith("__"):
            continue
        found = [source[name] for source in sources if name in source]
        if found and callable(found[0]):
            names[name] = _wrap(name, found[0])
    for name, function in _replacements().items():
        names[name] = _wrap(name, function)
    for name, why in _UNSUPPORTED_FUNCTIONS.items():
        names[name] = unsupported(f"torch.cuda.{name}", why)
    for name, why in _UNSUPPORTED_CLASSES.items():
        names[name] = unsupported_class(f"torch.cuda.{name}", why)
    return names


def _patch_nvtx() -> None:
    """Annotations for NVIDIA's profilers: there is nothing to annotate."""

    def ignored(result: Any) -> Callable:
        def annotate(*args, **kwargs):
            counts["torch.cuda.nvtx (ignored)"] += 1
            return result

        return annotate

    results = {"range_push": 0, "range_pop": 0, "range_start": 0}
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, ignored(results.get(name)))
    torch.cuda.profiler.start = ignored(None)
    torch.cuda.profiler.stop = ignored(None)


def _refuse_module(module: types.ModuleType, why: str) -> None:
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", "") == module.__name__ and callable(value):
            setattr(module, name, unsupported(f"{module.__name__}.{name}", why))


class _CudaModule(types.ModuleType):
    """For the names of torch.cuda that change, or that nobody has."""

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        return torch.opencl.default_generators

    def __getattr__(self, name: str) -> Any:
        if name in ("_initialized",):
            return torch.opencl.is_initialized()
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"module 'torch.cuda' has no attribute {name!r} on opencl "
            "(torch_opencl.as_cuda)"
        )


def install() -> None:
    """Replaces the names of torch.cuda and of its modules."""
    cuda = torch.cuda
    names = _names()
    modules = [cuda, *(getattr(cuda, name) for name in _MODULES), cuda._utils]
    for module in modules:
        for name, value in names.items():
            if hasattr(module, name):
                setattr(module, name, value)
    for name in ("default_generators", "_initialized"):
        vars(cuda).pop(name, None)
    cuda.__class__ = _CudaModule
    cuda.has_magma = False
    _patch_nvtx()
    _refuse_module(cuda.nccl, "NCCL needs NVIDIA GPUs; use torch.distributed")
    _refuse_module(cuda.jiterator, _NO_CUDA_SOURCE)
    # Programs import it by either name.
    sys.modules["torch.cuda"] = cuda
