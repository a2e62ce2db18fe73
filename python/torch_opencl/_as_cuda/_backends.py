"""cuDNN's flags, NCCL, the profiler, and packages that need CUDA itself."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from typing import Any

import torch
from torch.backends import ContextProp

from .. import distributed
from ._counts import counts, unsupported, unsupported_class

# Packages whose kernels are for NVIDIA GPUs. Libraries ask whether they are there,
# so they look as if they were not.
CUDA_PACKAGES = ("apex", "bitsandbytes", "cupy", "flash_attn", "triton", "xformers")
_WHY_NOT_IMPORTED = (
    "{} has kernels for CUDA only, so torch_opencl.as_cuda() keeps it from being "
    "imported"
)
_NO_CUDA_SOURCE = (
    "CUDA source is not compiled for opencl; torch_opencl.RawKernel and "
    "torch_opencl.ElementwiseKernel take OpenCL C"
)


def _patch_cudnn() -> None:
    """``cudnn.benchmark`` measures solvers, too. Results are deterministic anyway;
    the other flags are kept and do nothing."""
    set_benchmark = torch._C._set_cudnn_benchmark

    def set_both(value: bool) -> None:
        counts["torch.backends.cudnn.benchmark"] += 1
        set_benchmark(value)
        torch.backends.opencl.benchmark = value

    torch._C._set_cudnn_benchmark = set_both
    type(torch.backends.cudnn).benchmark = ContextProp(
        torch._C._get_cudnn_benchmark, set_both
    )


def _backend_for_opencl(backend: Any) -> str:
    """NCCL's place, and gloo's for tensors on GPUs, is taken by the device's own."""
    name = str(backend).lower()
    if name in ("nccl", "gloo"):
        return distributed.DEFAULT
    pairs = [pair.partition(":") for pair in name.split(",")]
    return ",".join(
        "opencl:opencl_gloo" if device == "cuda" else f"{device}{colon}{inner}"
        for device, colon, inner in pairs
    )


def _patch_distributed() -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    for name in ("init_process_group", "new_group"):
        original = getattr(distributed_c10d, name)
        signature = inspect.signature(original)

        @functools.wraps(original)
        def redirected(*args, _original=original, _signature=signature, **kwargs):
            bound = _signature.bind(*args, **kwargs)
            if bound.arguments.get("backend") is not None:
                counts["torch.distributed backends"] += 1
                backend = _backend_for_opencl(bound.arguments["backend"])
                bound.arguments["backend"] = backend
            return _original(*bound.args, **bound.kwargs)

        setattr(distributed_c10d, name, redirected)
        setattr(torch.distributed, name, redirected)


def _patch_profiler() -> None:
    """ProfilerActivity.CUDA and ``use_device="cuda"`` show the device's commands."""
    profile = torch.autograd.profiler.profile
    original = profile.__init__

    @functools.wraps(original)
    def redirected(self, enabled=True, *, use_cuda=False, use_device=None, **options):
        if (use_cuda or use_device == "cuda") and torch.cuda.is_available():
            counts["ProfilerActivity.CUDA"] += 1
            use_cuda, use_device = False, "opencl"
        original(self, enabled, use_cuda=use_cuda, use_device=use_device, **options)

    profile.__init__ = redirected


class _ExtensionFinder:
    """Refuses CUDA source in torch.utils.cpp_extension once that is imported: it
    takes a second to import."""

    _NAME = "torch.utils.cpp_extension"

    def find_spec(self, name: str, path: Any, target: Any = None):
        if name != self._NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module) -> None:
            execute(module)
            _refuse_cuda_source(module)

        spec.loader.exec_module = exec_module
        return spec


def _refuse_cuda_source(module: Any) -> None:
    load, load_inline = module.load, module.load_inline
    refuse = unsupported("torch.utils.cpp_extension with CUDA", _NO_CUDA_SOURCE)

    @functools.wraps(load)
    def checked_load(name, sources, *args, **kwargs):
        paths = [sources] if isinstance(sources, str) else sources
        if any(str(path).endswith((".cu", ".cuh")) for path in paths):
            refuse()
        return load(name, sources, *args, **kwargs)

    @functools.wraps(load_inline)
    def checked_load_inline(name, cpp_sources, cuda_sources=None, *args, **kwargs):
        if cuda_sources:
            refuse()
        return load_inline(name, cpp_sources, cuda_sources, *args, **kwargs)

    module.load, module.load_inline = checked_load, checked_load_inline
    module.CUDAExtension = unsupported_class(
        "torch.utils.cpp_extension.CUDAExtension", _NO_CUDA_SOURCE
    )


def _hide_cuda_packages() -> None:
    for name in CUDA_PACKAGES:
        sys.modules.setdefault(name, None)


def explain_import_error(error: BaseException) -> None:
    """Adds to the error of importing one of CUDA_PACKAGES why it is not there."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ImportError) and name in CUDA_PACKAGES:
        error.add_note(_WHY_NOT_IMPORTED.format(name))


def install() -> None:
    """Replaces them."""
    _patch_cudnn()
    _patch_distributed()
    _patch_profiler()
    _hide_cuda_packages()
    if module := sys.modules.get(_ExtensionFinder._NAME):
        _refuse_cuda_source(module)
    else:
        sys.meta_path.insert(0, _ExtensionFinder())
