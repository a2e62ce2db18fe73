"""The host's time of an op beyond its driver: runs in a process of its own, in which
the calls of the driver succeed without it.

`measured` starts the process, with a library that is compiled and preloaded; what
stands below it runs there. No thread of a device competes for the cores, and the
thread's own time is taken: two runs differ by 3 % at most.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_SOURCE = Path(__file__).with_name("null_driver.c")
_CALLS = 500


def measured(
    device: str, quick: bool = False, environment: dict[str, str] | None = None
) -> dict[str, float]:
    """Seconds of each of overhead.py's tiny ops; nothing without a C compiler.

    ``environment`` is added to this process's. Raises RuntimeError with what the
    process wrote where it fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return {}
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "null_driver.so")
        command = [compiler, "-shared", "-fPIC", "-O2", _SOURCE, "-o", library]
        subprocess.run(command, check=True)
        process = subprocess.run(
            [sys.executable, __file__, device, "3" if quick else "20"],
            env={**os.environ, **(environment or {}), "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
        )
    if process.returncode != 0:
        raise RuntimeError(f"{device} without its driver:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])


def seconds_of(function: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    for _ in range(_CALLS):
        function()
    return (time.thread_time_ns() - start) * 1e-9 / _CALLS


def main() -> None:
    import torch
    from overhead import tiny_ops

    device, rounds = sys.argv[1], int(sys.argv[2])
    ops = tiny_ops(device)
    for function in ops.values():  # compiles
        function()
    torch.opencl.synchronize(device)
    ctypes.CDLL(None).null_driver(1)
    found = {}
    for name, function in ops.items():
        seconds_of(function)
        found[name] = min(seconds_of(function) for _ in range(rounds))
    print(json.dumps(found), flush=True)
    # What was enqueued never ran: nothing is waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
