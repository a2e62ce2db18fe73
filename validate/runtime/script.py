"""Runs Python code in a process of its own: forks, exits, absent drivers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import torch


def run_script(code: str, device: torch.device | None = None, **environment: str) -> str:
    """Standard output of ``code``, in which DEVICE is the name of ``device``.
    The test fails with the output where the process does not end well."""
    # Forking a process with threads is what is tested; 3.12 warns of it.
    prologue = f"import torch\nimport torch_opencl\nDEVICE = {str(device)!r}\n"
    process = subprocess.run(
        [sys.executable, "-c", prologue + textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    report = f"{process.stdout}\n{process.stderr}"
    assert process.returncode == 0, f"exit status {process.returncode}\n{report}"
    return process.stdout
