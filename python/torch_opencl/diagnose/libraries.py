"""Which installed libraries use the device, and how to make the others."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable

_BY_NAME = 'give it device="opencl"'
_RUN = "python -m torch_opencl.run PROGRAM"

# A library that picks a device by itself, and how it takes this one: the recipes of
# docs/libraries, which `make test-libraries` runs.
HOW = {
    "accelerate": f"set ACCELERATE_TORCH_DEVICE=opencl:0, or {_RUN}",
    "diffusers": '.to("opencl")',
    "lightning": "import torch_opencl.integrations.lightning; "
    'Trainer(accelerator="opencl", strategy="single_opencl")',
    "pytorch-lightning": "import torch_opencl.integrations.lightning; "
    'Trainer(accelerator="opencl", strategy="single_opencl")',
    "safetensors": f'load_file(...), then .to("opencl"); load_file(device=...): {_RUN}',
    "sentence-transformers": _BY_NAME,
    "stable-baselines3": _BY_NAME,
    "transformers": 'device_map="opencl:0" or pipeline(device="opencl:0"); Trainer: '
    f"ACCELERATE_TORCH_DEVICE=opencl:0, for float16 and bfloat16 {_RUN}",
    "ultralytics": _RUN,
}


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def libraries(
    names: Iterable[str] = HOW, version: Callable[[str], str | None] = _installed
) -> list[dict[str, str]]:
    """Of the libraries that are installed and choose the CPU unless told otherwise:
    name, version, and how to have them use the device."""
    return [
        {"name": name, "version": found, "how": HOW[name]}
        for name in names
        if name in HOW and (found := version(name))
    ]
