"""The examples in docs run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["custom-kernels.md", "layers.md"])
def test_examples(device, page):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    with torch.opencl.device(device):
        for block in blocks:
            if "pyopencl" in block:
                pytest.importorskip("pyopencl", reason="pyopencl is not installed")
            # An op's name can be registered once a process.
            exec(block.replace("mine::", f"mine{device.index}::"), names)
