"""Runs programs written for CUDA on opencl devices: ``as_cuda()``.

Strings are redirected where torch makes devices of them, by the extension
(cuda_names.cpp); the modules here replace what Python has besides.
"""

from __future__ import annotations

import os

from .. import _C
from ._counts import counts

_VARIABLE = "TORCH_OPENCL_AS_CUDA"
_active = False


def as_cuda() -> None:
    """Makes "cuda" mean the opencl device, in this process and those it starts.

    ``torch.cuda``, ``.cuda()``, ``is_cuda``, ``device="cuda"``,
    ``torch.backends.cudnn`` and what else programs for CUDA use work on the opencl
    device from then on; to code outside of torch, ``device.type`` of an opencl
    device is "cuda". Call it before the program's other imports, for a library may
    ask once whether there is a GPU. Further calls do nothing, and nothing undoes it.

    Raises:
        RuntimeError: there is a CUDA device, or this torch makes devices of strings
            in another way than is known.
    """
    global _active
    if _active:
        return
    import torch

    if torch.cuda.is_available():
        raise RuntimeError(
            "torch_opencl.as_cuda: this torch has CUDA devices of its own, and "
            '"cuda" cannot name both; use device="opencl", or hide them by '
            'CUDA_VISIBLE_DEVICES=""'
        )
    from . import _backends, _checkpoints, _cuda_module, _tensors

    if not _C._redirect_cuda_names():
        raise RuntimeError(
            f"torch_opencl.as_cuda: torch {torch.__version__} does not make devices "
            "of strings where torch_opencl expects it"
        )
    _active = True
    # Processes that are spawned load torch_opencl by `import torch`, which asks.
    os.environ[_VARIABLE] = "1"
    _cuda_module.install()
    _tensors.install()
    _backends.install()
    _checkpoints.install()


def requested() -> bool:
    """Whether the environment asks for :func:`as_cuda`.

    Raises:
        RuntimeError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(_VARIABLE, "0")
    if value not in ("0", "1"):
        raise RuntimeError(
            f"{_VARIABLE}={value} is not valid: expected a number from 0 to 1"
        )
    return value == "1"


def redirected() -> dict[str, int]:
    """What was redirected so far: how often by name, most frequent first."""
    found = {**_C._redirected_cuda_names(), **counts}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def explanation() -> str:
    """:func:`redirected` as text."""
    found = redirected()
    if not found:
        return "torch_opencl.run: nothing was redirected\n"
    lines = [f"{count:>9}  {name}" for name, count in found.items()]
    return "\n".join(["torch_opencl.run: redirected to opencl:", *lines]) + "\n"
