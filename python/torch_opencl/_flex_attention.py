"""``torch.nn.attention.flex_attention`` takes opencl tensors, and is autocast.

torch names the devices that it allows in a function of that module, which
``import torch`` does not load; there is no list that a backend could join. So the
function is replaced when the module is imported.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from types import ModuleType

import torch
from torch._C import DispatchKey

_NAME = "torch.nn.attention.flex_attention"


def _allow_device(module: ModuleType) -> None:
    validate = module._validate_device

    @functools.wraps(validate)
    def _validate_device(query, key, value) -> None:
        if query.device.type != "opencl":
            validate(query, key, value)

    module._validate_device = _validate_device


def _autocast(operator) -> None:
    """As torch does for the CPU and CUDA."""
    from torch.amp.autocast_mode import _cast

    keys = torch._C.DispatchKeySet(DispatchKey.AutocastPrivateUse1)

    @operator.py_impl(DispatchKey.AutocastPrivateUse1)
    def flex_attention_autocast(query, key, value, *rest):
        dtype = torch.get_autocast_dtype("opencl")
        cast = (_cast(tensor, "opencl", dtype) for tensor in (query, key, value))
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(*cast, *rest)


def _prepare(module: ModuleType) -> None:
    _allow_device(module)
    _autocast(module.flex_attention_hop)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _prepare(module)

        spec.loader.exec_module = exec_module
        return spec


def install() -> None:
    """Called once, when the package is imported."""
    if _NAME in sys.modules:
        _prepare(sys.modules[_NAME])
    else:
        sys.meta_path.insert(0, _Finder())
