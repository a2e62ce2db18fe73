"""``nn.DataParallel`` on opencl: one device, and an error for more."""

from __future__ import annotations

import functools

import torch
from torch.utils._pytree import tree_map

_SEVERAL = (
    "nn.DataParallel copies between devices with functions that torch has for CUDA "
    "only. Use nn.parallel.DistributedDataParallel, with a process for each device, "
    "or pass device_ids=[{}] to use one opencl device"
)


def install() -> None:
    """Called once, when the package is imported."""
    parallel = torch.nn.DataParallel
    original_init, original_scatter = parallel.__init__, parallel.scatter

    @functools.wraps(original_init)
    def __init__(self, *args, **kwargs) -> None:
        original_init(self, *args, **kwargs)
        source = getattr(self, "src_device_obj", None)
        if source is not None and source.type == "opencl" and len(self.device_ids) > 1:
            raise NotImplementedError(_SEVERAL.format(source.index))

    @functools.wraps(original_scatter)
    def scatter(self, inputs, kwargs, device_ids):
        source = self.src_device_obj
        if source.type != "opencl":
            return original_scatter(self, inputs, kwargs, device_ids)

        def move(value):
            return value.to(source) if isinstance(value, torch.Tensor) else value

        return (tree_map(move, tuple(inputs)),), (tree_map(move, kwargs or {}),)

    parallel.__init__, parallel.scatter = __init__, scatter
