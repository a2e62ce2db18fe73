"""Times the launches of a recorded step on a real device, one by one.

    export PYTHONPATH=benchmarks
    python -m gpu.lab --networks resnet50 --steps trace
    python -m gpu.replay build/gpu/traces/resnet50_train.json --device NVIDIA
    python -m gpu.replay TRACE.json --kernels product_gpu --define HAS_TOTALS=0
    python -m gpu.replay TRACE.json --json replay.json

Needs pyopencl and numpy only, neither torch nor this project: a trace can be timed on
another machine, and a change of a kernel by --define, without a build. Buffers are as
large as in the trace and hold random numbers. Kernels whose addresses come from data
are left out, since random numbers are no indices.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import pyopencl as cl
from rich.console import Console
from rich.progress import track
from rich.table import Table

# Kernels that read no indices.
KERNELS = (
    r"^(product|gemm|attention|winograd|depthwise|batch_norm|layer_norm|softmax|reduce"
    r"|pointwise|multi_tensor|max_pool$|recurrence|random)"
)
_NOISE = 1 << 22  # numbers, repeated


@dataclass
class Timed:
    """A launch of a trace and its median time in microseconds."""

    index: int
    kernel: str
    groups: int
    microseconds: float


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path, help="of python -m gpu.lab --steps trace")
    parser.add_argument(
        "--device",
        default="",
        metavar="TEXT",
        help="part of a platform's or device's name; default: the first device",
    )
    parser.add_argument(
        "--kernels", default=KERNELS, metavar="REGEX", help="default: %(default)s"
    )
    parser.add_argument(
        "--define",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="instead of the values that programs were built with",
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=25, help="of the table")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="each launch, as JSON"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds has to be at least 1")
    for define in options.define:
        if not re.fullmatch(r"\w+=\S+", define):
            parser.error(f"--define takes NAME=VALUE, not {define!r}")
    return options


def find_device(text: str) -> cl.Device:
    """
    Raises:
        SystemExit: no device has ``text`` in its or its platform's name.
    """
    names = []
    for platform in cl.get_platforms():
        for device in platform.get_devices():
            name = f"{platform.name} {device.name}"
            if text.lower() in name.lower():
                return device
            names.append(name)
    raise SystemExit(f"no OpenCL device matches {text!r}: {names}")


def with_defines(options: str, defines: list[str]) -> str:
    """Build options in which ``NAME=VALUE`` stands for each value of that name."""
    for define in defines:
        name = define.partition("=")[0]
        options = re.sub(rf"(-D ?){name}=\S+", rf"\g<1>{define}", options)
    return options


def set_arguments(
    kernel: cl.Kernel, arguments: list[dict[str, Any]], buffers: dict[int, cl.Buffer]
) -> None:
    """Those of a launch in a trace, with the buffers by their numbers there."""
    for place, argument in enumerate(arguments):
        if "hex" in argument:
            value = numpy.frombuffer(bytes.fromhex(argument["hex"]), numpy.uint8)
        else:
            value = buffers.get(argument["buffer"])
        kernel.set_arg(place, value)


class Replay:
    """A trace's buffers and programs on a device."""

    def __init__(
        self, trace: dict[str, Any], device: cl.Device, defines: list[str]
    ) -> None:
        self._trace = trace
        self._defines = defines
        self._context = cl.Context([device])
        self.queue = cl.CommandQueue(
            self._context, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self._kernels: dict[tuple[int, str], cl.Kernel] = {}
        noise = numpy.random.default_rng(0).standard_normal(_NOISE, numpy.float32)
        self.buffers = {
            int(number): self._buffer(size, noise)
            for number, size in trace["buffers"].items()
        }
        self.queue.finish()

    def _buffer(self, size: int, noise: numpy.ndarray) -> cl.Buffer:
        buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)
        for begin in range(0, size, noise.nbytes):
            part = noise.view(numpy.uint8)[: size - begin]
            cl.enqueue_copy(self.queue, buffer, part, dst_offset=begin)
        return buffer

    def _kernel(self, program: int, name: str) -> cl.Kernel:
        key = program, name
        if key not in self._kernels:
            entry = self._trace["programs"][str(program)]
            options = with_defines(entry["options"], self._defines)
            built = cl.Program(self._context, entry["text"]).build(options)
            self._kernels[key] = cl.Kernel(built, name)
        return self._kernels[key]

    def time(self, index: int, rounds: int) -> Timed:
        """The launch number ``index``: one to warm up, then ``rounds``."""
        launch = self._trace["launches"][index]
        kernel = self._kernel(launch["of"], launch["launch"])
        set_arguments(kernel, launch["arguments"], self.buffers)
        events = [
            cl.enqueue_nd_range_kernel(
                self.queue, kernel, launch["global"], launch["local"]
            )
            for _ in range(rounds + 1)
        ]
        self.queue.finish()
        times = [event.profile.end - event.profile.start for event in events[1:]]
        groups = numpy.divide(launch["global"], launch["local"]).prod()
        median = statistics.median(times) / 1e3
        return Timed(index, launch["launch"], int(groups), median)


def table_of(timed: list[Timed], title: str, rows: int) -> Table:
    by_kernel: dict[str, list[float]] = defaultdict(list)
    for launch in timed:
        by_kernel[launch.kernel].append(launch.microseconds)
    whole = sum(launch.microseconds for launch in timed) or 1.0
    table = Table(title=title)
    for heading in ("kernel", "share", "launches", "ms", "us a launch"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    slowest = sorted(by_kernel.items(), key=lambda item: -sum(item[1]))
    for kernel, times in slowest[:rows]:
        table.add_row(
            kernel,
            f"{sum(times) / whole:.1%}",
            str(len(times)),
            f"{sum(times) / 1e3:.3f}",
            f"{statistics.mean(times):.1f}",
        )
    return table


def main() -> int:
    options = parse()
    trace = json.loads(options.trace.read_text())
    if "buffers" not in trace:
        raise SystemExit(
            f"{options.trace}: trace it again (--again), it has no buffers"
        )
    device = find_device(options.device)
    wanted = [
        index
        for index, launch in enumerate(trace["launches"])
        if re.search(options.kernels, launch.get("launch", "")) is not None
    ]
    if not wanted:
        raise SystemExit(f"{options.trace}: no kernel matches {options.kernels!r}")
    replay = Replay(trace, device, options.define)
    console = Console(stderr=True)
    timed, refused = [], {}
    for index in track(wanted, "launches", console=console, transient=True):
        try:
            timed.append(replay.time(index, options.rounds))
        except cl.LogicError as error:  # of an argument
            refused.setdefault(trace["launches"][index]["launch"], str(error))
    if not timed:
        raise SystemExit(f"{options.trace}: {device.name} refuses all: {refused}")
    left_out = len(trace["launches"]) - len(timed)
    milliseconds = sum(launch.microseconds for launch in timed) / 1e3
    title = (
        f"{trace['network']} {trace['mode']}, batch {trace['batch']}, {device.name}: "
        f"{milliseconds:.2f} ms in {len(timed)} launches, {left_out} left out"
    )
    Console().print(table_of(timed, title, options.rows))
    for kernel, reason in refused.items():
        console.print(f"left out: {kernel}: {reason}")
    if options.json:
        settings = {"device": device.name, "define": options.define}
        record = {**settings, "launches": [asdict(launch) for launch in timed]}
        options.json.write_text(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
