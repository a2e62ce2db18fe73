"""Distributed training on the device equals one process's."""

from __future__ import annotations

import subprocess
import sys

import jobs


def test_two_processes(first_device):
    jobs.run("job_training.py", 2, first_device)


def test_torchrun_and_checkpoints_of_other_numbers(first_device, tmp_path):
    """Two processes save, started by torchrun and each on its own device; three
    load."""
    torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
    saved = subprocess.run(
        [*torchrun, "--standalone", "--nproc-per-node=2", "job_checkpoint.py"],
        cwd=jobs.FOLDER,
        env={
            **jobs.environments(1, ACTION="save", CHECKPOINT=str(tmp_path))[0],
            "MASTER_PORT": "0",
        },
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert saved.returncode == 0, saved.stdout + saved.stderr
    jobs.run(
        "job_checkpoint.py", 3, first_device, ACTION="load", CHECKPOINT=str(tmp_path)
    )
