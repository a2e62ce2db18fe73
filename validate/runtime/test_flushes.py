"""A GPU's driver may keep commands back until a flush: it is told to begin early."""

from __future__ import annotations

import pytest
from script import recorded_commands

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
    program = _PROGRAM.format(period=_PERIOD, launches=_LAUNCHES)
    records = recorded_commands(program, tmp_path_factory.mktemp("recorder"))
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
