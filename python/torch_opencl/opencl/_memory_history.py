"""``torch.opencl.memory._record_memory_history`` and its snapshots, which
torch's viewer of memory reads: https://pytorch.org/memory_viz."""

from __future__ import annotations

import bisect
import pickle
import sys
from typing import Any

from .. import _C
from ._lazy import _lazy_init
from .devices import Device, _device_index

_CONTEXTS = (None, "state", "alloc", "all")


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
) -> None:
    """Records allocations of tensors with stack traces, as
    ``torch.cuda.memory._record_memory_history`` does, on all devices.

    Args:
        enabled: None ends recording; "state" keeps traces of what is allocated now;
            "all" keeps a history besides.
        context: which traces: None, "state" (of what is allocated now), "alloc" (of
            every allocation of the history) or "all" (of frees, too).
        stacks: "python", or "all" for frames of C++, too. They are found when a
            snapshot is made, which may take minutes.
        max_entries: of the history; the oldest go first.
        device: has no effect, as in torch.cuda.
        clear_history: forget what was recorded before.

    Raises:
        ValueError: an argument is none of these.
    """
    if enabled not in (None, "state", "all"):
        raise ValueError("expected state to be 'state', 'all', or None")
    if context not in _CONTEXTS:
        raise ValueError("expected context to be 'state', 'alloc', 'all', or None")
    if stacks not in ("python", "all"):
        raise ValueError("expected stacks to be 'python', or 'all'")
    _lazy_init()
    _C._record_memory_history(
        enabled is not None,
        enabled == "all",
        context or "",
        stacks == "all",
        max_entries,
        clear_history,
    )


def _snapshot(device: Device = None) -> dict[str, Any]:
    """The allocator's segments and blocks now, and what was recorded: a dictionary
    of the form of ``torch.cuda.memory._snapshot``. Buffers that ops need only while
    they run are blocks without frames.

    Args:
        device: of the history only; all devices by default.
    """
    from .memory import memory_snapshot

    segments = memory_snapshot()
    live = _C._memory_live_frames()
    addresses = sorted(live)
    for segment in segments:
        segment["segment_pool_id"] = (0, 0)
        segment["is_expandable"] = False
        segment["frames"] = []
        for block in segment["blocks"]:
            # In guard mode a tensor's memory begins after its block.
            at = bisect.bisect_left(addresses, block["address"])
            end = block["address"] + block["size"]
            here = at < len(addresses) and addresses[at] < end
            block["frames"] = live[addresses[at]] if here else []
    traces: list[list[dict]] = [[] for _ in range(_C._device_count())]
    for entry in _C._memory_history():
        traces[entry.pop("device")].append(entry)
    if device is not None:
        index = _device_index(device)
        traces = [
            trace if number == index else [] for number, trace in enumerate(traces)
        ]
    return {
        "segments": segments,
        "device_traces": traces,
        "external_annotations": [],
        "allocator_settings": {"expandable_segments": False},
    }


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes :func:`_snapshot` to a file that torch's viewer of memory opens."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
