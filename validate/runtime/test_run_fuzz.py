"""The command line of the fuzzer, on a few cases. `make fuzz` runs many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "run_fuzz.py"


def run_fuzz(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=170,
    )


@pytest.mark.one_device
def test_a_few_cases(device):
    options = ("--seed", "0", "--cases", "8", "--jobs", "1", "--json")
    process = run_fuzz("--device", str(device), *options)
    assert process.returncode == 0, process.stdout + process.stderr
    (summary,) = json.loads(process.stdout)
    assert summary["cases"] == 8
    assert summary["failed"] == []


def test_one_case_is_listed():
    first, again = (run_fuzz("--case", "2", "--list") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert "t0 = " in first.stdout
