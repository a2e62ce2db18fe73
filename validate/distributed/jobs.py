"""Jobs of several processes, as torchrun starts them, that never hang a test.

A job is a script of this folder. Each of its processes runs all checks of the
script in turn, and fails at the end if one of them did.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent
_TIME_LIMIT = 150.0

_checks: list[Callable] = []


def check(function: Callable) -> Callable:
    """Makes the function one of the job's checks."""
    _checks.append(function)
    return function


def run_checks() -> None:
    """Runs the checks in the order of the script; exits with 1 if one failed."""
    failed = []
    for function in _checks:
        try:
            function()
        except Exception:
            failed.append(function.__name__)
            print(f"{function.__name__} failed", traceback.format_exc(), flush=True)
    if failed:
        # Peers of a failed check may wait for it: leave without asking them.
        sys.stdout.flush()
        os._exit(1)
    print("all checks passed", flush=True)


def error_of(function: Callable) -> tuple[str, float]:
    """The text of the RuntimeError that the call raises, and the seconds until it."""
    start = time.monotonic()
    try:
        function()
    except RuntimeError as error:
        return str(error), time.monotonic() - start
    raise AssertionError("no error")


def assert_connection_fails(function: Callable) -> None:
    """Of a lost peer: an error of the connection or a time-out, within 30 s."""
    text, seconds = error_of(function)
    assert seconds < 30, seconds
    assert "onnection" in text or "imed out" in text, text


def environments(processes: int, **environment: str) -> list[dict[str, str]]:
    """What torchrun gives each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        for rank in range(processes)
    ]


def start(script: str, processes: int, **environment: str) -> list[subprocess.Popen]:
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", FOLDER / script],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for variables in environments(processes, **environment)
    ]


def finish(job: list[subprocess.Popen], time_limit: float = _TIME_LIMIT) -> list[str]:
    """Output of each process; kills what has not ended within the limit."""
    end = time.monotonic() + time_limit
    outputs = []
    for process in job:
        try:
            output, _ = process.communicate(timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += f"\nkilled after {time_limit:g} s"
        outputs.append(output)
    return outputs


def run(script: str, processes: int, device: object, **environment: str) -> None:
    """Runs a job; the test fails with the output where a process failed."""
    job = start(script, processes, DEVICE=str(device), **environment)
    outputs = finish(job)
    for rank, (process, output) in enumerate(zip(job, outputs, strict=True)):
        assert process.returncode == 0 and "all checks passed" in output, (
            f"rank {rank} ended with {process.returncode}:\n{output}"
        )
