"""Queues profile only while somebody does: their handles change, and nothing else."""

from __future__ import annotations

import threading

import pytest
import torch
import torch_opencl
from script import recorded_commands

_PROGRAM = """
import torch

x = torch.empty(64, device="opencl")
start, end = (torch.Event("opencl", enable_timing=True) for _ in range(2))
stream = torch.opencl.Stream()

def step():
    start.record()
    x.add_(1)
    with stream:
        x.mul_(1)
    end.record()
    torch.opencl.synchronize()
    start.elapsed_time(end)

step()
with torch.opencl.profile() as profile:
    step()
    with torch.opencl.Stream():
        x.add_(1)
assert profile.launches == 3
step()
if {shares}:
    torch.accelerator.current_stream().native_handle
    step()
"""


@pytest.mark.parametrize("shares", [False, True])
def test_only_profiled_launches_are_timed(shares, tmp_path):
    program = _PROGRAM.format(shares=shares)
    launches = [r for r in recorded_commands(program, tmp_path) if "launch" in r]
    expected = [False] * 2 + [True] * 3 + [False] * 2 + [True, False] * shares
    assert [r.get("is_profiled", False) for r in launches] == expected


def test_order_is_kept_while_handles_change(device):
    """Each launch depends on the one before it."""
    x = torch.zeros(1 << 16, dtype=torch.int64, device=device)
    for step in range(12):
        x.mul_(3).add_(step)
        with torch.opencl.profile():
            x.mul_(5).sub_(step)
    expected = 0
    for step in range(12):
        expected = (expected * 3 + step) * 5 - step
    assert x.eq(expected).all().item()


def test_other_threads_go_on(device):
    """They enqueue and wait while the handle changes."""
    rounds, failures = 200, []

    def run(start: int) -> None:
        try:
            x = torch.full((4096,), start, device=device)
            for _ in range(rounds):
                x.mul_(3).add_(1)
                x.remainder_(1009)
            expected = start
            for _ in range(rounds):
                expected = (expected * 3 + 1) % 1009
            if x.cpu().ne(expected).any():
                failures.append((start, x.unique().tolist(), expected))
        except Exception as error:
            failures.append((start, error))

    threads = [threading.Thread(target=run, args=(start,)) for start in (1, 2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with torch.opencl.profile():
            pass
    for thread in threads:
        thread.join()
    assert not failures


def test_a_shared_queue_stays_the_same_one(device):
    cl = pytest.importorskip("pyopencl")
    stream = torch.opencl.Stream(device)
    with stream:
        queue = torch_opencl.pyopencl_queue(device)
        handle = queue.int_ptr
        with torch.opencl.profile():
            again = torch_opencl.pyopencl_queue(device)
            assert again.int_ptr == handle
        assert torch_opencl.pyopencl_queue(device).int_ptr == handle
    assert queue.properties & cl.command_queue_properties.PROFILING_ENABLE


def test_times_of_events_are_those_of_the_work(device):
    """An event's time is taken in a queue beside that of the stream."""
    x = torch.rand(512, 512, device=device)
    x @ x
    torch.opencl.synchronize(device)
    start, middle, end = (torch.Event(device, enable_timing=True) for _ in range(3))
    start.record()
    middle.record()
    for _ in range(40):
        y = x @ x
    end.record()
    torch.opencl.synchronize(device)
    assert y.shape == x.shape
    assert 0 <= start.elapsed_time(middle) < middle.elapsed_time(end)
