"""Fixtures of the kernel tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def attention_compiles(request: pytest.FixtureRequest, device: torch.device) -> None:
    """Skips a test whose fused attention would not be compiled in time."""
    platform = torch.opencl.get_device_properties(device).platform
    if request.config.getoption("gpu_class") and platform.startswith("Portable"):
        pytest.skip("PoCL compiles each GPU kernel of attention for a minute")
