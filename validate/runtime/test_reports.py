"""What kernels report is raised where the host waits: once, and by queue."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
import torch
from script import run_process, run_script

CASES_FOLDER = Path(__file__).parents[1] / "ops"
TEXT = r"gather\(\): index 4 is out of bounds for dimension 0 with size 4"


@pytest.fixture(autouse=True)
def on_device(device):
    with torch.opencl.device(device):
        yield
        torch.opencl.synchronize()  # a test leaves no report behind


def bad_gather(device) -> torch.Tensor:
    return torch.ones(4, device=device).gather(0, torch.tensor([1, 4], device=device))


WAITS = {
    "item": lambda x: x[0].item(),
    "cpu": lambda x: x.cpu(),
    "print": repr,
    "synchronize": lambda _: torch.opencl.synchronize(),
    "stream": lambda _: torch.opencl.current_stream().synchronize(),
    "accelerator": lambda _: torch.accelerator.synchronize(),
    "if": bool,
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_raises_once(device, name):
    bad_gather(device)
    good = torch.ones(1, device=device)
    with pytest.raises(IndexError, match=TEXT):
        WAITS[name](good)
    WAITS[name](good)


def test_calls_do_not_wait_or_raise(device):
    x = bad_gather(device)
    before = torch.opencl.wait_stats()
    for _ in range(20):
        x = x * 2
        bad_gather(device)
    # Small copies to the device do not wait.
    assert torch.opencl.wait_stats() == before
    with pytest.raises(IndexError, match=TEXT):
        x.cpu()
    before = torch.opencl.wait_stats()
    x.cpu()
    after = torch.opencl.wait_stats()
    assert sum(after.values()) == sum(before.values()) + 1


def test_events(device):
    early = torch.opencl.Event()
    early.record()
    bad_gather(device)
    late = torch.opencl.Event()
    late.record()
    later = torch.opencl.Event()
    later.record()
    early.synchronize()
    with pytest.raises(IndexError, match=TEXT):
        late.synchronize()
    later.synchronize()
    late.synchronize()
    torch.opencl.synchronize()


def test_an_event_that_is_polled(device):
    bad_gather(device)
    event = torch.opencl.Event()
    event.record()
    with pytest.raises(IndexError, match=TEXT):
        while not event.query():
            pass
    assert event.query()


def test_many_events_that_nobody_waits_for(device):
    for _ in range(100):
        bad_gather(device)
        torch.opencl.Event().record()
    with pytest.raises(IndexError, match=TEXT):
        torch.opencl.synchronize()


def test_streams_have_their_own(device):
    one, other = torch.opencl.Stream(), torch.opencl.Stream()
    with torch.opencl.stream(one):
        bad_gather(device)
    other.synchronize()
    torch.opencl.current_stream().synchronize()
    with pytest.raises(IndexError, match=TEXT):
        one.synchronize()
    with torch.opencl.stream(one):
        bad_gather(device)
    with torch.opencl.stream(other):
        bad_gather(device)
    for _ in range(2):  # of each stream
        with pytest.raises(IndexError, match=TEXT):
            torch.opencl.synchronize()


def test_a_gradient_of_bad_indices(device):
    x = torch.ones(4, device=device, requires_grad=True)
    x.gather(0, torch.tensor([1, 4], device=device)).sum().backward()
    with pytest.raises(IndexError, match=TEXT):
        x.grad.sum().item()


def test_pinned_copies_raise_at_their_event(device):
    pinned = torch.empty(2, pin_memory=True)
    pinned.copy_(bad_gather(device), non_blocking=True)
    event = torch.opencl.Event()
    event.record()
    with pytest.raises(IndexError, match=TEXT):
        event.synchronize()


def test_reports_of_threads_are_raised_as_often_as_cleared(device):
    index = torch.tensor([1, 4], device=device)
    table = torch.ones(4, device=device)
    raised, others = [], []

    def work():
        for _ in range(50):
            try:
                table.gather(0, index).cpu()
            except IndexError as error:
                raised.append(error)
            except Exception as error:
                others.append(error)

    with torch.opencl.device(device):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # Each was raised to the caller or, before the caller waited, to another.
    assert not others and 50 <= len(raised) <= 200
    # Of a thread that another one's wait overtook.
    with contextlib.suppress(IndexError):
        torch.opencl.synchronize(device)
    assert table.gather(0, index[:1]).item() == 1


def test_the_op_itself_raises_with_sync(device):
    """Also one that launches other kernels ahead of the one that reports."""
    run_script(
        f"""
        import re, sys
        sys.path.insert(0, {str(CASES_FOLDER)!r})
        from test_index_errors import CASES, RUNTIME_CASES

        silent = []
        for name, (call, _, bad, text) in (CASES | RUNTIME_CASES).items():
            kind = IndexError if name in CASES else RuntimeError
            moved = [tensor.to(DEVICE) for tensor in bad]
            for _ in range(2):
                try:
                    call(*moved)
                    silent.append(name)
                    torch.opencl.synchronize(DEVICE)
                except (IndexError, RuntimeError) as error:
                    assert type(error) is kind and re.search(text, str(error)), error
        assert not silent, silent
        torch.opencl.synchronize(DEVICE)
        x = torch.ones(4, device=DEVICE)
        assert x.gather(0, torch.tensor([1], device=DEVICE)).item() == 1
        """,
        device,
        TORCH_OPENCL_SYNC="1",
    )


def test_reports_at_exit_are_printed_of_every_device() -> None:
    process = run_process(
        "import torch\n"
        "for number in range(torch.opencl.device_count()):\n"
        "    with torch.device('opencl', number):\n"
        "        torch.ones(4).gather(0, torch.tensor([1, 4]))\n"
    )
    text = "torch_opencl: at exit: gather(): index 4 is out of bounds"
    assert process.stdout.count(text) == torch.opencl.device_count()
    assert "Traceback" not in process.stderr, process.stderr
