"""What Inductor's cache of compiled graphs has to know of this backend."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import torch
from torch._inductor.custom_graph_pass import CustomGraphModulePass

from .. import _C, __version__, opencl

_TEXTS = (
    *("types", "lanes", "math", "philox", "compiled"),
    *("attention_cpu", "attention_gpu"),
)


class CacheKey(CustomGraphModulePass):
    """Changes no graph. Its ``uuid`` is in the key of a cached one, so that a graph
    is used again only by the generator and for the devices that it was made for."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        pass

    @functools.cache  # noqa: B019  (one object a process)
    def uuid(self) -> bytes:
        digest = hashlib.sha256(__version__.encode())
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.read_bytes())
        for name in _TEXTS:
            digest.update(_C._kernel_text(name).encode())
        for index in range(opencl.device_count()):
            properties = opencl.get_device_properties(index)
            facts = (
                properties.name,
                properties.driver_version,
                properties.device_class,
                properties.multi_processor_count,
            )
            digest.update(repr(facts).encode())
        return digest.digest()
