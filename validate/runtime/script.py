"""Runs Python code in a process of its own: forks, exits, absent drivers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import torch

# enqueue(COUNT) takes about SECONDS, in one work-item, on a driver of any speed.
LONG_KERNEL = """
import os, signal, threading, time
from torch_opencl import RawKernel

chain = RawKernel('''
    kernel void chain(global float *x, long count) {
      float value = x[0];
      for (long i = 0; i < count; ++i) value = value * 0.999f + 0.001f;
      x[0] = value;
    }''', "chain")
x = torch.ones(4096, device=DEVICE)

def enqueue(count):
    chain((1,), (1,), (x, count))

def timed(count):
    start = time.perf_counter()
    enqueue(count)
    torch.opencl.synchronize(DEVICE)
    return time.perf_counter() - start

timed(1)
COUNT = 1_000_000
while (seconds := min(timed(COUNT) for _ in range(2))) < 0.05:
    COUNT *= 4
COUNT = int(COUNT * SECONDS / seconds)
"""


_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def recorded_commands(program: str, directory: Path, **environment: str) -> list[dict]:
    """What ``program``, in a process with the laboratory's recorder as its driver, asks
    of it; see benchmarks/gpu/recorder.cpp."""
    sys.path.insert(0, str(_BENCHMARKS))
    try:
        from gpu.tools import build_recorder
    finally:
        sys.path.remove(str(_BENCHMARKS))
    file = directory / "commands"
    driver = {
        "LD_LIBRARY_PATH": str(build_recorder()),
        "TORCH_OPENCL_DEVICES": "recorder",
        "TORCH_OPENCL_CACHE_SIZE_MIB": "0",
        "RECORDER_FILE": str(file),
    }
    run_process(program, **driver, **environment)
    return [json.loads(line) for line in file.read_text().splitlines()]


def run_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    """``code`` in a process. The test fails with all output where it does not end
    well."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    report = f"{process.stdout}\n{process.stderr}"
    assert process.returncode == 0, f"exit status {process.returncode}\n{report}"
    return process


def run_python(code: str, **environment: str) -> str:
    """Standard output of ``code``."""
    return run_process(code, **environment).stdout


def run_script(
    code: str, device: torch.device | None = None, **environment: str
) -> str:
    """The same with torch and torch_opencl imported; DEVICE is the name of
    ``device``."""
    prologue = f"import torch\nimport torch_opencl\nDEVICE = {str(device)!r}\n"
    return run_python(prologue + textwrap.dedent(code), **environment)
