"""Every benchmark ends well and writes its numbers; what they are is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COMMANDS = {
    "cold_start": "--model alexnet --devices {device}",
    "compile": "--device {device}",
    "decode": "--devices {device} cpu",
    "depthwise": "--batch 1 --shape 32 28 1 --shape 96 28 2 --devices {device} cpu",
    "distributed": "--device {device}",
    "local_conv": "--devices {device} cpu",
    "networks": "--models mobilenet_v2 --memory-format both --devices {device} cpu",
    "ops": "--family softmax --filter cross --devices {device} cpu",
    "overhead": "--devices {device}",
    "profile_network": "--model mobilenet_v2 --device {device}",
    "revisions": "--before {checkout} --of ops --match cross_entropy --device {device}",
    "roofline": "--devices {device}",
    "superres": "--devices {device} cpu",
    "sweep": "--family random module --devices {device} cpu",
}


def test_every_command_line_tool_is_run():
    tools = {p.stem for p in BENCHMARKS.glob("*.py") if "__main__" in p.read_text()}
    of_others = {"plain_opencl", "beyond_driver"}
    assert tools - of_others == set(COMMANDS)


@pytest.mark.sampled(3)
@pytest.mark.one_device
@pytest.mark.parametrize("name", COMMANDS)
def test_benchmark(device, name, tmp_path):
    numbers = tmp_path / "numbers.json"
    process = subprocess.run(
        [
            sys.executable,
            BENCHMARKS / f"{name}.py",
            *COMMANDS[name].format(device=device, checkout=BENCHMARKS.parent).split(),
            "--quick",
            "--json",
            numbers,
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert json.loads(numbers.read_text())
