"""The soak run finds what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SOAK = Path(__file__).parents[1] / "soak.py"


def soak(device, folder: Path, *options: str) -> tuple[int, dict]:
    process = subprocess.run(
        [
            *(sys.executable, _SOAK, "--device", str(device), "--rounds", "32"),
            *("--work", "pointwise", "threads", "out_of_memory"),
            *("--out", folder, "--json", *options),
        ],
        capture_output=True,
        text=True,
        timeout=170,
    )
    report = process.stdout + process.stderr
    assert process.returncode in (0, 1), report
    return process.returncode, json.loads(process.stdout)


def grown(verdict: dict) -> set[str]:
    return {f["figure"] for f in verdict["findings"] if not f["passed"]}


# Other tests at the same time have caches and cores, too.
@pytest.mark.one_device
def test_a_run_without_faults_passes(device, tmp_path):
    status, verdict = soak(device, tmp_path)
    assert grown(verdict) <= {"CPU time of a round"}, verdict
    assert verdict["error"] == "" and verdict["rounds"] == 32
    assert verdict["ooms"] == 8
    assert status == (0 if verdict["passed"] else 1)
    stem = f"soak-opencl{device.index}"
    assert (tmp_path / f"{stem}.png").stat().st_size > 10_000
    samples = json.loads((tmp_path / f"{stem}.json").read_text())["samples"]
    assert len(samples) == 32


@pytest.mark.one_device
@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("device-leak", "memory_allocated"),
        ("host-leak", "resident set, least"),
        ("programs", "programs"),
        # Beside other tests every round is slow.
        pytest.param("slow", "CPU time of a round", marks=pytest.mark.slow),
        ("wrong", "injected: a wrong result"),
    ],
)
def test_a_fault_is_found(device, tmp_path, fault, found):
    status, verdict = soak(device, tmp_path, "--inject", fault)
    assert status == 1, verdict
    assert found in grown(verdict) or found in verdict["error"], verdict
