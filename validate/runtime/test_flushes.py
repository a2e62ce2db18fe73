"""A GPU's driver may keep commands back until a flush: it is told to begin early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
_PERIOD = 200e-6  # seconds; kFlushPeriod of queue.h

_LAUNCHES = 400  # of a part

_PROGRAM = """
import time
import torch

x = torch.empty(64, device="opencl")
for pause in (0, 4 * {period}):
    torch.opencl.synchronize()
    for _ in range({launches}):
        x.add_(1)
        if pause:
            time.sleep(pause)
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """What a driver was asked in two parts: True for a flush, False for a launch."""
    sys.path.insert(0, str(_BENCHMARKS))
    try:
        from gpu.tools import build_recorder
    finally:
        sys.path.remove(str(_BENCHMARKS))
    file = tmp_path_factory.mktemp("recorder") / "commands"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(build_recorder()),
        "TORCH_OPENCL_DEVICES": "recorder",
        "TORCH_OPENCL_CACHE_SIZE_MIB": "0",
        "RECORDER_FILE": str(file),
    }
    program = _PROGRAM.format(period=_PERIOD, launches=_LAUNCHES)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    commands = [each for each in records if "launch" in each or "flush" in each]
    launches = [i for i, each in enumerate(commands) if "launch" in each]
    assert len(launches) == 2 * _LAUNCHES
    flushes = ["flush" in each for each in commands]
    second = launches[_LAUNCHES]
    return flushes[launches[0] : second], flushes[second:]


def test_the_first_launch_after_a_wait_is_flushed(parts):
    assert [part[:2] for part in parts] == [[False, True]] * 2


def test_launches_that_follow_each_other_share_flushes(parts):
    assert 1 <= sum(parts[0]) < _LAUNCHES


def test_every_launch_after_a_pause_is_flushed(parts):
    assert sum(parts[1]) >= _LAUNCHES
