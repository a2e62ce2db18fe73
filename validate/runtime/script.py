"""Runs Python code in a process of its own: forks, exits, absent drivers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import torch


def run_python(code: str, **environment: str) -> str:
    """Standard output of ``code``. The test fails with all output where the
    process does not end well."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    report = f"{process.stdout}\n{process.stderr}"
    assert process.returncode == 0, f"exit status {process.returncode}\n{report}"
    return process.stdout


def run_script(
    code: str, device: torch.device | None = None, **environment: str
) -> str:
    """The same with torch and torch_opencl imported; DEVICE is the name of
    ``device``."""
    prologue = f"import torch\nimport torch_opencl\nDEVICE = {str(device)!r}\n"
    return run_python(prologue + textwrap.dedent(code), **environment)
