"""Records one step of a network: its programs, launches and what they touch.

The step runs on recorder.cpp, which executes nothing, in a process of its own
with that library ahead of the system's loader: the device is a GPU, so the
kernels are those of GPUs, at full size. Of every launch the trace has the
arguments, and for a buffer the allocator's block it points into, by which the
model knows how many bytes a launch touches; and the op that launched it, with
the operations of the op's definition.
"""

from __future__ import annotations

import bisect
import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import tools
from .targets import RECORDED

ELEMENT_SIZES = (1, 2, 4, 8)
# Kernels that are enqueued ahead of a pending launch.
AHEAD = ("random_bernoulli", "reduce")


def trace(
    network: str, mode: str, device: str, recorder: Path, to: Path
) -> dict[str, Any]:
    """One step of a network of zoo.py in a process of its own.

    Args:
        device: what the recorder says it is, a key of RECORDED.
        recorder: the folder of recorder.cpp's library.
        to: the file that is written.
    """
    environment = {
        "LD_LIBRARY_PATH": str(recorder),
        "TORCH_OPENCL_DEVICES": "recorder",
        "TORCH_OPENCL_CACHE_SIZE_MIB": "0",
        **RECORDED[device],
    }
    process = subprocess.run(
        [sys.executable, "-m", "gpu.trace", network, mode, str(to)],
        env=tools.environment(**environment),
        capture_output=True,
        text=True,
        timeout=900,
    )
    if process.returncode != 0:
        raise RuntimeError(
            f"no trace of {network} {mode}:\n{process.stderr or process.stdout}"
        )
    found = {"device": device, **json.loads(to.read_text())}
    to.write_text(json.dumps(found))
    return found


def name_of(network: str, mode: str, device: str) -> str:
    """Of the files of a trace."""
    return f"{network}_{mode}_{device}".strip("_")


class Blocks:
    """Which block of the allocator a (buffer, offset) lies in.

    The allocator lists its segments by address and the recorder its buffers by
    number. A new segment is the oldest new buffer of its size.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int]] = []  # buffer, bytes
        self._addresses: dict[int, int] = {}  # of the buffers' segments
        self._segments: dict[int, tuple[list[int], list[int]]] = {}

    def add_buffer(self, number: int, size: int) -> None:
        self._waiting.append((number, size))

    def update(self, snapshot: list[dict[str, Any]]) -> None:
        known = set(self._addresses.values())
        self._segments = {}
        for segment in sorted(snapshot, key=lambda segment: segment["address"]):
            address, size = segment["address"], segment["total_size"]
            if address not in known:
                match = next((w for w in self._waiting if w[1] == size), None)
                if match is None:
                    raise RuntimeError(f"no buffer is the segment of {size} bytes")
                self._waiting.remove(match)
                self._addresses[match[0]] = address
            starts, sizes = [], []
            for block in segment["blocks"]:
                starts.append(block["address"] - address)
                active = block["state"] != "inactive"
                sizes.append(block["requested_size"] if active else 0)
            self._segments[address] = starts, sizes

    def find(self, buffer: int, offset: int) -> tuple[int, int] | None:
        """Start within the buffer and bytes of the block, where one is active."""
        address = self._addresses.get(buffer)
        if address is None:
            return None
        starts, sizes = self._segments.get(address, ([], []))
        index = bisect.bisect_right(starts, offset) - 1
        if index < 0 or offset - starts[index] >= sizes[index]:
            return None
        return starts[index], sizes[index]


class Recording:
    """Takes the recorder's lines, while `begin` to `end` the launches, too."""

    def __init__(self) -> None:
        from torch_opencl import _C

        self._snapshot = _C._memory_snapshot
        self.programs: dict[int, dict[str, str]] = {}
        self.launches: list[dict[str, Any]] = []
        self.buffers: dict[int, int] = {}  # bytes, by number
        self.is_on = False
        self.failure: Exception | None = None
        self._blocks = Blocks()
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self._take)
        library = ctypes.CDLL("libOpenCL.so.1")
        library.recorder_call_back(self._function)

    def _take(self, line: bytes) -> None:
        try:
            self._add(json.loads(line))
        except Exception as error:  # ctypes would only print it
            self.failure = self.failure or error

    def _add(self, record: dict[str, Any]) -> None:
        if "new buffer" in record:
            self.buffers[record["new buffer"]] = record["bytes"]
            if not record["host"]:
                self._blocks.add_buffer(record["new buffer"], record["bytes"])
        elif "program" in record:
            self.programs[record["program"]] = {
                "options": record["options"],
                "text": record["text"],
            }
        elif self.is_on and "flush" not in record:
            if "launch" in record:
                self._blocks.update(self._snapshot(0, False))
                record["arguments"] = self._arguments(record["arguments"])
            self.launches.append(record)

    def _arguments(self, raw: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A buffer is followed by its offset in elements, whose size the
        kernel's text knows: the block for every size there is."""
        result = []
        for index, argument in enumerate(raw):
            if "buffer" in argument:
                after = raw[index + 1].get("hex", "") if index + 1 < len(raw) else ""
                offset = int.from_bytes(bytes.fromhex(after), "little")
                if len(after) != 16:
                    offset = 0
                argument["offset"] = offset
                argument["blocks"] = {
                    size: self._blocks.find(argument["buffer"], offset * size)
                    for size in ELEMENT_SIZES
                }
            result.append(argument)
        return result


def record(network: str, mode: str) -> dict[str, Any]:
    """The third step, when what is kept of weights is there."""
    import torch
    from torch.utils._python_dispatch import (
        TorchDispatchMode,
        _disable_current_modes,
    )
    from torch_opencl import _C
    from torch_opencl.opencl import _flops, profiler

    from . import zoo

    def flops_of(function, args, kwargs, result) -> float:
        if function is torch.ops.aten.convolution_backward.default and not args[7]:
            # torch.utils.flop_counter forgets the groups of the weight's gradient.
            each = 2.0 * args[0].numel() * args[2][0].numel()
            return each * sum(args[10][:2])
        return _flops.flops(function, args, kwargs, result)

    def computes(function) -> bool:
        name = function._overloadpacket.__name__
        others = ("empty", "_view", "_local_scalar_dense")
        return not (function.is_view or any(other in name for other in others))

    recording = Recording()
    ops: list[dict[str, Any]] = []

    class Ops(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self._pending: dict[str, Any] | None = None  # the op whose launch is

        def give(self, begin: int) -> int:
            """The first launch from ``begin`` on that may have been pending to
            the op it was pending of. Others went ahead of it."""
            names = [it.get("launch", "") for it in recording.launches[begin:]]
            ahead = [name in AHEAD for name in names]
            if self._pending is None or all(ahead):
                return begin
            begin += ahead.index(False)
            op, self._pending = self._pending, None
            if op["begin"] == op["end"]:
                op["begin"] = begin
            op["end"] = begin + 1
            return begin + 1

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            before = len(recording.launches)
            result = function(*args, **kwargs)
            begin = self.give(before)
            end = len(recording.launches)
            # A batch normalisation makes the addition that counts it.
            pending = _C._pending_op(0) not in (None, "aten::add_")
            pends = self._pending is None and pending
            # An op that joined has no launch; another library would launch it.
            joins = self._pending is not None and computes(function)
            if end > begin or pends or joins:
                flops = flops_of(function, args, kwargs, result)
                moved = profiler._necessary_bytes(function, args, kwargs, result)
                shapes = profiler._shapes(args)
                ops.append(
                    {
                        "name": function.name(),
                        "shapes": shapes,
                        "flops": flops,
                        "bytes": moved,
                        "begin": begin,
                        "end": end,
                    }
                )
                if pends:
                    self._pending = ops[-1]
            return result

    def run_whole(layer: torch.nn.RNNBase) -> None:
        """Recurrent layers go step by step under a mode: they run without it."""
        forward = layer.forward

        def recorded(x, hx=None):
            begin = len(recording.launches)
            with _disable_current_modes():
                result = forward(x, hx)
            weights = [p for n, p in layer.named_parameters() if "weight" in n]
            steps = x.shape[0] * x.shape[1]
            op = {"name": f"aten::{layer.mode.lower()}", "shapes": [list(x.shape)]}
            op["flops"] = 2.0 * steps * sum(weight.numel() for weight in weights)
            elements = sum(w.numel() for w in weights) + x.numel() + result[0].numel()
            op |= {"bytes": 4.0 * elements, "begin": begin}
            ops.append({**op, "end": len(recording.launches)})
            return result

        layer.forward = recorded

    wanted, batch = zoo.ALL[network], zoo.batch_of(network, mode)
    with torch.device(zoo.DEVICE):
        model = wanted.build()
    model.train(mode == "train")
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            run_whole(module)
    step = wanted.step_of(model, mode)
    for number in range(3):
        inputs = wanted.inputs(batch)
        torch.opencl.synchronize()
        if number < 2:
            step(inputs)
            continue
        recording.is_on = True
        with Ops() as modes:
            step(inputs)
        last = len(recording.launches)
        torch.opencl.synchronize()
        modes.give(last)
        recording.is_on = False
    if recording.failure is not None:
        raise recording.failure
    used = {launch["of"] for launch in recording.launches if "of" in launch}
    return {
        "network": network,
        "mode": mode,
        "batch": batch,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "programs": {str(number): recording.programs[number] for number in used},
        "launches": recording.launches,
        "buffers": {str(number): size for number, size in recording.buffers.items()},
        "ops": ops,
        "fallbacks": dict(torch.opencl.fallback_stats()),
    }


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(record(sys.argv[1], sys.argv[2])))
