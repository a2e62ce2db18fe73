"""The examples in README.md and docs run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
# Of fragments, which show a form and do not run: a table's line, C++ beside it.
FRAGMENTS = {"docs/adding-an-op.md"}
# `make test-libraries` runs them, where the libraries are.
LIBRARIES = "docs/libraries/"
# "cuda" stays redirected in a process that asked for it; process groups are a job's.
OWN_PROCESS = {"docs/cuda-programs.md", "docs/distributed.md"}
# What torchrun sets.
JOB = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def blocks(page: Path) -> list[str]:
    """Python of a page. A session (>>>) is not a program."""
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.M)
    return [block for block in found if not block.startswith(">>>")]


def is_run(name: str) -> bool:
    return name not in FRAGMENTS and not name.startswith(LIBRARIES)


PAGES = [
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if blocks(page) and is_run(str(page.relative_to(ROOT)))
]


@pytest.mark.parametrize("page", PAGES)
def test_examples(device, page):
    if page in OWN_PROCESS:
        program = "\n".join(blocks(ROOT / page))
        environment = {**os.environ, **JOB}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
        return
    names: dict[str, object] = {}
    with torch.opencl.device(device):
        for block in blocks(ROOT / page):
            if "pyopencl" in block:
                pytest.importorskip("pyopencl", reason="pyopencl is not installed")
            # An op's name can be registered once a process.
            exec(block.replace("mine::", f"mine{device.index}::"), names)


def test_pages_have_examples():
    assert {"README.md", "docs/training.md", "docs/custom-kernels.md"} <= set(PAGES)
