"""What ``torch.amp`` asks of a device. Use ``torch.autocast("opencl")`` and
``torch.amp.GradScaler("opencl")``."""

from __future__ import annotations

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes ``torch.autocast("opencl", dtype=...)`` accepts. Every device
    stores both; arithmetic on them is in float32."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is a storage type on every device, with float32
    arithmetic. Native arithmetic (``including_emulation=False``) is not used."""
    return including_emulation


def is_tf32_supported() -> bool:
    """False: OpenCL has no TF32 arithmetic. float32 products are of float32."""
    return False
