"""Errors and time-outs of process groups end in the time they should."""

from __future__ import annotations

import signal

import jobs


def test_time_outs_and_a_killed_peer(first_device):
    job = jobs.start("job_failures.py", 2, DEVICE=str(first_device))
    outputs = jobs.finish(job, 120)
    assert job[0].returncode == 0 and "all checks passed" in outputs[0], outputs
    assert job[1].returncode == -signal.SIGKILL, outputs
    assert "all checks passed" in outputs[1], outputs
