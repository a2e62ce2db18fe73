"""What a slow link between two machines carries, and what its end leaves."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import time

import torch
import torch.distributed as dist
from jobs import assert_connection_fails, check, run_checks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
)
from torch.nn.parallel import DistributedDataParallel

DEVICE = torch.device(os.environ["DEVICE"])
MEGABITS = float(os.environ["MEGABITS"])


def bytes_sent() -> int:
    shown = subprocess.run(
        ["ip", "-json", "-statistics", "link", "show", "eth0"],
        check=True,
        capture_output=True,
    )
    (interface,) = json.loads(shown.stdout)
    return interface["stats64"]["tx"]["bytes"]


def sent_by(function) -> tuple[int, float]:
    """Bytes that this machine sent, and seconds that passed."""
    dist.barrier()
    before, start = bytes_sent(), time.monotonic()
    function()
    torch.opencl.synchronize()
    dist.barrier()
    return bytes_sent() - before, time.monotonic() - start


@check
def all_reduce_uses_the_link() -> None:
    size = 1 << 21
    x = torch.full((size // 4,), dist.get_rank() + 1.0, device=DEVICE)
    sent, seconds = sent_by(lambda: dist.all_reduce(x))
    assert (x == 3).all()
    # 2 (n - 1) / n times the tensor through each link (docs/distributed.md).
    assert size <= sent <= 1.2 * size, sent
    assert seconds >= 0.9 * size * 8 / (MEGABITS * 1e6), seconds


@check
def bfloat16_gradients_halve_what_is_sent() -> None:
    sent = []
    for hook in (None, bf16_compress_hook):
        model = DistributedDataParallel(nn.Linear(512, 512).to(DEVICE))
        if hook:
            model.register_comm_hook(None, hook)
        loss = model(torch.randn(8, 512, device=DEVICE)).square().mean()
        sent.append(sent_by(loss.backward)[0])
    assert 0.45 * sent[0] <= sent[1] <= 0.6 * sent[0], sent


@check
def a_pulled_cable() -> None:
    """An error on both machines, in the group's time."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=5))
    x = torch.ones(1 << 18, device=DEVICE)
    dist.all_reduce(x, group=group)
    # What rank 0 sent last may still be on the link when its own all_reduce ends.
    arrived = torch.ones(1)
    if dist.get_rank() == 1:
        dist.send(arrived, 0)
    else:
        dist.recv(arrived, 1)
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
    assert_connection_fails(
        lambda: [dist.all_reduce(x, group=group) for _ in range(1000)]
    )


if __name__ == "__main__":
    torch.opencl.set_device(DEVICE)
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    run_checks()
    os._exit(0)  # the group has lost its link
