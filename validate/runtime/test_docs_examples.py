"""The examples in README.md and docs run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
# Of fragments, which show a form and do not run: a table's line, C++ beside it.
FRAGMENTS = {"docs/adding-an-op.md"}


def blocks(page: Path) -> list[str]:
    """Python of a page. A session (>>>) is not a program."""
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.M)
    return [block for block in found if not block.startswith(">>>")]


PAGES = [
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if blocks(page) and str(page.relative_to(ROOT)) not in FRAGMENTS
]


@pytest.mark.parametrize("page", PAGES)
def test_examples(device, page):
    names: dict[str, object] = {}
    with torch.opencl.device(device):
        for block in blocks(ROOT / page):
            if "pyopencl" in block:
                pytest.importorskip("pyopencl", reason="pyopencl is not installed")
            # An op's name can be registered once a process.
            exec(block.replace("mine::", f"mine{device.index}::"), names)


def test_pages_have_examples():
    assert {"README.md", "docs/training.md", "docs/custom-kernels.md"} <= set(PAGES)
