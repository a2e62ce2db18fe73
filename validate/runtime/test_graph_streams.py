"""Graphs that are replayed on several streams, and streams beside a capture."""

from __future__ import annotations

import time

import pytest
import torch
from captures import on_device  # noqa: F401
from script import run_script
from torch_opencl import RawKernel


def busy(x: torch.Tensor) -> None:
    """Keeps the current stream at work for a while."""
    for _ in range(20):
        x @ x


def test_replays_of_one_graph_are_in_order(device):
    """Whatever their streams: they share the graph's memory."""
    x = torch.zeros(1 << 18, device=device)
    x.copy_(x + 1)
    graph = torch.accelerator.Graph()
    with graph:
        for _ in range(10):
            x.copy_(x + 1)
    x.zero_()
    torch.opencl.synchronize()
    streams = [torch.opencl.Stream(device) for _ in range(4)]
    for i in range(40):
        with streams[i % 4]:
            graph.replay()
    torch.opencl.synchronize()
    assert x.unique().tolist() == [400]


def test_results_that_another_stream_reads(device):
    """Kept results move to other memory: what reads or writes the old one on another
    stream is finished first, and what comes later reads the copy."""
    results = pytest.importorskip("torch_opencl.inductor.results")
    x = torch.ones(1 << 18, device=device)
    a = torch.randn(512, 512, device=device)
    main, side = torch.opencl.current_stream(), torch.opencl.Stream(device)
    with side:
        busy(a)
        x * 1
    torch.opencl.synchronize()
    kept, graph = results.Results(), torch.accelerator.Graph()
    with graph:
        y = x * 2
    place = kept.add(y)
    del y
    graph.replay()
    out = kept[place].detach()
    side.wait_stream(main)
    with side:
        busy(a)
        out.add_(1)
    x.fill_(5)
    busy(a)
    kept.reclaim()
    graph.replay()
    with side:
        later = out * 1
    torch.opencl.synchronize()
    assert out.unique().tolist() == [3]
    assert later.unique().tolist() == [3]
    assert kept[place].unique().tolist() == [10]


def test_pointers_of_a_raw_kernel(device):
    """Sub-buffers that a captured launch was given live as long as the graph."""
    kernel = RawKernel(
        "kernel void add_one(global const float *x, global float *y)"
        "{ y[get_global_id(0)] = x[get_global_id(0)] + 1; }",
        "add_one",
    )
    padding = torch.empty(1024, device=device)
    x, y = torch.arange(1024.0, device=device), torch.zeros(1024, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        kernel((4,), (256,), (x, y))
    for _ in range(8):  # handles that were given back are taken again
        kernel((4,), (256,), (torch.zeros(1024, device=device), padding))
    graph.replay()
    assert torch.equal(y.cpu(), torch.arange(1024.0) + 1)


def test_a_report_that_is_raised_in_a_capture(device):
    """It is cleared at once, not by the replays."""
    x, index = torch.zeros(4, device=device), torch.tensor([9], device=device)
    y = torch.zeros(4, device=device)
    torch.opencl.synchronize()
    with torch.opencl.Stream(device) as stream:
        x[index]
        event = stream.record_event()
        graph = torch.accelerator.Graph()
        graph.capture_begin()  # no wait, as __enter__ has
        y.add_(1)
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            event.synchronize()
        graph.capture_end()
        stream.synchronize()
        x[index]
        graph.replay()
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            stream.synchronize()
        assert y.tolist() == [1] * 4


def test_memory_statistics_beside_a_capture(device):
    """New memory of a stream that captures waits for its first use, and another
    thread asks the allocator meanwhile."""
    run_script(
        """
        import threading, time
        torch.opencl.set_device(DEVICE)
        a = torch.randn(512, 512, device=DEVICE)
        a @ a
        torch.opencl.synchronize()
        done = False

        def ask():
            while not done:
                torch.opencl.memory_allocated()

        start = time.monotonic()
        with torch.opencl.Stream(DEVICE):
            while time.monotonic() - start < 0.3:
                a @ a
            graph = torch.accelerator.Graph()
            graph.capture_begin()
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
            graph.capture_end()
        done = True
        thread.join()
        """,
        device,
    )


def test_polling_a_stream(device):
    """A poll is no command: the next one asks for the same marker."""
    x = torch.zeros(1000, device=device)
    stream = torch.opencl.current_stream()
    found = []
    for _ in range(10):
        x.add_(1)
        stream.query()
        time.sleep(0.1)
        found.append(stream.query())
    assert sum(found) > 7
