"""torch.opencl.memory._record_memory_history: who allocated, read by torch's tools."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.cuda import _memory_viz

memory = torch.opencl.memory


@pytest.fixture
def recording(device):
    memory._record_memory_history(stacks="python", clear_history=True)
    yield
    memory._record_memory_history(None)


def _made_here(device) -> torch.Tensor:
    return torch.zeros(1 << 16, device=device)


def test_history_has_sizes_and_the_lines_that_allocated(device, recording) -> None:
    tensor = _made_here(device)
    address = tensor.data_ptr()
    snapshot = memory._snapshot()
    (block,) = (
        block
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["frames"]
        and block["address"] <= address < block["address"] + block["size"]
    )
    assert block["frames"][0]["name"] == "_made_here"
    assert block["frames"][0]["filename"] == __file__
    del tensor
    entries = memory._snapshot(device)["device_traces"][device.index]
    mine = [entry for entry in entries if entry["addr"] == address]
    assert [entry["action"] for entry in mine] == [
        "alloc",
        "free_requested",
        "free_completed",
    ]
    assert all(entry["size"] >= 4 << 16 for entry in mine)
    assert mine[0]["frames"][0]["name"] == "_made_here"
    assert mine[0]["time_us"] <= mine[-1]["time_us"]


def test_torchs_tools_read_a_snapshot(device, recording, tmp_path) -> None:
    tensor = _made_here(device)
    file = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(file))
    del tensor
    snapshot = pickle.loads(file.read_bytes())
    assert "entries" in _memory_viz.trace(snapshot)
    assert "total_reserved" in _memory_viz.segsum(snapshot)
    assert "MemoryViz" in _memory_viz.trace_plot(snapshot)


def test_out_of_memory_is_recorded(device, recording) -> None:
    torch.zeros(1, device=device)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 46, dtype=torch.uint8, device=device)
    entry = memory._snapshot()["device_traces"][device.index][-1]
    assert entry["action"] == "oom" and entry["size"] == 1 << 46
    assert entry["device_free"] > 0


def test_the_oldest_entries_go_first(device) -> None:
    memory._record_memory_history(
        context=None, max_entries=4, stacks="python", clear_history=True
    )
    try:
        tensors = [torch.zeros(1000, device=device) for _ in range(6)]
        entries = memory._snapshot()["device_traces"][device.index]
        assert len(entries) == 4
        assert entries[-1]["addr"] == tensors[-1].data_ptr()
        assert entries[-1]["frames"] == []
    finally:
        memory._record_memory_history(None, clear_history=True)
    torch.zeros(1000, device=device)
    assert memory._snapshot()["device_traces"][device.index] == []


def test_wrong_arguments_are_errors() -> None:
    for keywords in ({"enabled": "some"}, {"context": "none"}, {"stacks": "cpp"}):
        with pytest.raises(ValueError, match="expected"):
            memory._record_memory_history(**keywords)
