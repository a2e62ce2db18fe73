"""``.cuda()``, ``is_cuda`` and the legacy types of tensors and storages."""

from __future__ import annotations

from typing import Any

import torch

from ._counts import counted, counts

_LEGACY = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


def _index(device: Any) -> Any:
    """What ``.cuda(device)`` takes: nothing, an index, a name or a device."""
    return torch.device("opencl", device) if type(device) is int else device


def _cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
    """The tensor on an opencl device: as_cuda() is active."""
    counts["Tensor.cuda"] += 1
    device = torch.device("opencl") if device is None else torch.device(_index(device))
    if device.type != "opencl":
        raise ValueError(f"Invalid device, must be cuda device: {device}")
    return self.to(device, non_blocking=non_blocking, memory_format=memory_format)


def _on_opencl(self) -> bool:
    """Whether it is on an opencl device: as_cuda() is active."""
    return self.device.type == "opencl"


class _LegacyType(type):
    """``torch.cuda.FloatTensor``: makes tensors, and tells them by isinstance."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "opencl"
            and instance.dtype == cls.dtype
        )

    def __call__(cls, *args, **kwargs) -> torch.Tensor:
        counts[f"torch.cuda.{cls.__name__}"] += 1
        cpu_type = getattr(torch, cls.__name__)
        return cpu_type(*args, **kwargs).to("opencl")


def _legacy_types() -> None:
    for prefix, dtype in _LEGACY.items():
        name = f"{prefix}Tensor"
        legacy = _LegacyType(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, name, legacy)


def _dtype_of(wanted: Any) -> torch.dtype | None:
    """The dtype of what a name or class of a CUDA type stands for."""
    if isinstance(wanted, _LegacyType):
        return wanted.dtype
    if isinstance(wanted, str) and wanted.startswith("torch.cuda."):
        return _LEGACY.get(wanted.removeprefix("torch.cuda.").removesuffix("Tensor"))
    return None


def _patch_types() -> None:
    original_type = torch.Tensor.type
    original_default = torch.set_default_tensor_type
    default_is_cuda = False

    def type_(self, dtype=None, non_blocking=False, **kwargs):
        if found := _dtype_of(dtype):
            counts["Tensor.type"] += 1
            device = self.device if _on_opencl(self) else "opencl"
            return self.to(device, found, non_blocking=non_blocking)
        result = original_type(self, dtype, non_blocking, **kwargs)
        if dtype is None and isinstance(result, str):
            return result.replace("torch.opencl.", "torch.cuda.")
        return result

    def set_default_tensor_type(t):
        nonlocal default_is_cuda
        if found := _dtype_of(t):
            counts["torch.set_default_tensor_type"] += 1
            torch.set_default_dtype(found)
            torch.set_default_device("opencl")
            default_is_cuda = True
            return
        original_default(t)
        if default_is_cuda:
            torch.set_default_device(None)
            default_is_cuda = False

    type_.__name__, type_.__doc__ = "type", original_type.__doc__
    set_default_tensor_type.__doc__ = original_default.__doc__
    torch.Tensor.type = type_
    torch.set_default_tensor_type = set_default_tensor_type


def _patch_modules() -> None:
    def cuda(self, device=None):
        """Moves parameters and buffers to an opencl device: as_cuda() is active."""
        return self._apply(lambda tensor: tensor.cuda(device))

    torch.nn.Module.cuda = counted("Module.cuda", cuda)


def install() -> None:
    """Replaces the methods and types."""
    torch.Tensor.cuda = _cuda
    torch.Tensor.is_cuda = property(_on_opencl)
    torch.UntypedStorage.is_cuda = property(_on_opencl)
    torch.TypedStorage.is_cuda = property(_on_opencl)
    _legacy_types()
    _patch_types()
    _patch_modules()
