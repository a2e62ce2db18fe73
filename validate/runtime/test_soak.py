"""The soak run finds what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from soaking import judge, work

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


# Convolutions first: inference takes the programs that they built.
@pytest.mark.one_device
@pytest.mark.parametrize(
    "kind", ["convolutions", "transformer", "recurrent", "inference", "streams"]
)
def test_a_round_of(device, kind):
    step = work.KINDS[kind](device)
    step(0)
    if kind == "inference":
        step(2)  # the same input once more
    torch.opencl.synchronize(device)


def _samples(**late) -> list[judge.Sample]:
    """32 rounds; ``late`` are factors of what the last eight of them take."""
    figures = {"rss": 10**9, "allocated": 10**6, "reserved": 10**7, "programs": 100}
    figures |= {"cpu_seconds": 0.5, "ooms": 0, "seconds": 1.0, "round_seconds": 1.0}
    last = figures | {name: figures[name] * factor for name, factor in late.items()}
    return [judge.Sample(**(last if number >= 24 else figures)) for number in range(32)]


@pytest.mark.parametrize(
    ("field", "figure", "least"),
    [
        ("rss", "resident set, least", 1.02),
        ("allocated", "memory_allocated", 1.0),
        ("reserved", "memory_reserved", 1.1),
        ("programs", "programs", 1.0),
        ("cpu_seconds", "CPU time of a round", 1.2),
    ],
)
def test_growth_of_one_figure_is_found(field, figure, least):
    for factor, expected in ((least + 0.01, {figure}), (least - 0.01, set())):
        findings = judge.judge(_samples(**{field: factor}))
        assert {f.figure for f in findings if not f.passed} == expected


def test_decay_within_a_few_rounds_is_found():
    """As the fault `slow` decays, faster with each round."""
    samples = _samples()
    for number, sample in enumerate(samples):
        sample.cpu_seconds = 0.1 + 0.001 * number**2
    assert "CPU time of a round" in {
        f.figure for f in judge.judge(samples) if not f.passed
    }
