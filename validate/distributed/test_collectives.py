"""torch.distributed's operations on the device, in jobs of several processes."""

from __future__ import annotations

import jobs


def test_two_processes(device):
    jobs.run("job_collectives.py", 2, device)


def test_four_processes(first_device):
    """With torch's own checks that all of them call the same operations."""
    jobs.run("job_collectives.py", 4, first_device, TORCH_DISTRIBUTED_DEBUG="DETAIL")
