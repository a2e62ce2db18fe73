"""Time-outs, shut groups, and what a killed peer leaves. CASE says which."""

from __future__ import annotations

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist
from jobs import assert_connection_fails, check, error_of, run_checks

DEVICE = torch.device(os.environ["DEVICE"])
SECONDS = 4


@check
def nobody_answers() -> None:
    if dist.get_rank() == 0:
        x, y = torch.ones(4, device=DEVICE), torch.ones(4)
        expected, _ = error_of(lambda: dist.recv(y, 1))
        text, seconds = error_of(lambda: dist.recv(x, 1))
        assert "Timed out" in text or "timeout" in text.lower(), text
        assert text.split("ms")[0][-6:] == expected.split("ms")[0][-6:]
        assert seconds < 3 * SECONDS + 10
    else:
        time.sleep(2 * SECONDS + 2)


@check
def work_wait_has_a_time_out() -> None:
    group = dist.new_group(timeout=datetime.timedelta(seconds=SECONDS))
    x = torch.ones(4, device=DEVICE)
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True, group=group)
        text, seconds = error_of(lambda: work.wait(datetime.timedelta(seconds=0.2)))
        assert "timed out" in text and seconds < SECONDS, (text, seconds)
        future = work.get_future()
        text, _ = error_of(work.wait)
        assert "imed out" in text or "onnection closed" in text, text
        assert work.is_completed() and work.exception() is not None
        text, _ = error_of(future.wait)
        assert "imed out" in text or "onnection closed" in text, text
    else:
        time.sleep(SECONDS + 2)


@check
def unmatched_receives_do_not_keep_a_group() -> None:
    group = dist.new_group(timeout=datetime.timedelta(seconds=300))
    x = torch.ones(4, device=DEVICE)
    work = dist.irecv(x, (dist.get_rank() + 1) % 2, group=group)
    start = time.monotonic()
    dist.destroy_process_group(group)
    del group
    text, _ = error_of(work.wait)
    assert time.monotonic() - start < 30, text


@check
def a_group_ends_while_a_callback_runs() -> None:
    """The callback needs the interpreter that waits for its thread."""
    group = dist.new_group()
    ran = []

    def callback(future):
        time.sleep(0.5)
        ran.append(future.value()[0].sum().item())

    work = dist.all_reduce(torch.ones(4, device=DEVICE), group=group, async_op=True)
    work.get_future().then(callback)
    dist.destroy_process_group(group)
    assert ran == [8.0], ran


@check
def a_killed_peer() -> None:
    group = dist.new_group(timeout=datetime.timedelta(seconds=20))
    x = torch.ones(1 << 20, device=DEVICE)
    dist.all_reduce(x, group=group)
    if dist.get_rank() == 1:
        print("all checks passed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    assert_connection_fails(
        lambda: [dist.all_reduce(x, group=group) for _ in range(1000)]
    )


if __name__ == "__main__":
    torch.opencl.set_device(DEVICE)
    dist.init_process_group(timeout=datetime.timedelta(seconds=SECONDS))
    run_checks()
    os._exit(0)  # the group has lost a process
