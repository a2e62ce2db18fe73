"""Measures what the host does for an op, and whether it keeps devices busy.

    python benchmarks/overhead.py
    python benchmarks/overhead.py --devices opencl:1 --models resnet50 --batch 1

The first table is the host's time of an op on tiny tensors, without waiting for
the device; for torch's CPU, which computes in the call, it includes that. "beyond
the driver" is the least time with a library in the driver's place whose calls return
at once (beyond_driver.py; it takes a C compiler). What clEnqueueNDRangeKernel takes
in a program that does nothing else is measured by plain OpenCL, in a process of its
own. On a CPU driver the device's threads compete with the host for the cores.

The second table is of whole networks: launches and waits a step, the host's time
until the step returns, the time until the device is done, and the share of that
in which kernels ran (torch.opencl.profile).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import beyond_driver
import measure
import torch
from case import Run
from networks import MODES, Place, step_of
from plain_opencl import measured
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

_BURST = 256  # launches that every driver queues without waiting


def tiny_ops(device: str) -> dict[str, Run]:
    x = torch.randn(8, 8).to(device)
    y = torch.randn(8, 8).to(device)
    picture = torch.randn(1, 8, 8, 8).to(device)
    weight = torch.randn(8, 8, 3, 3).to(device)
    scale = torch.randn(8).to(device)
    counts = torch.zeros(8, dtype=torch.long, device=device)
    return {
        "empty": lambda: torch.empty(8, device=device),
        "view": lambda: x.view(64),
        "fill_": lambda: x.fill_(1.0),
        "copy_": lambda: x.copy_(y),
        "add_": lambda: x.add_(y),
        "add": lambda: x + y,
        "mul by a number": lambda: x * 0.5,
        "relu": lambda: torch.relu(x),
        "sum": lambda: x.sum(),
        "softmax": lambda: x.softmax(1),
        "cat": lambda: torch.cat((x, y)),
        "index_select": lambda: x.index_select(0, counts),
        "mm": lambda: x @ y,
        "batch_norm": lambda: F.batch_norm(picture, None, None, scale, scale, True),
        "conv2d 3x3": lambda: F.conv2d(picture, weight, padding=1),
    }


def host_time(function: Run, device: str, rounds: int) -> dict[str, float]:
    """Seconds of a call, without waiting for the device in between."""
    function()
    times = []
    for _ in range(rounds):
        measure.synchronize(device)
        start = time.perf_counter()
        for _ in range(_BURST):
            function()
        times.append((time.perf_counter() - start) / _BURST)
    found = {"host": statistics.median(times)}
    if torch.device(device).type == "opencl":
        with torch.opencl.profile() as profile:
            function()
        found["commands"] = profile.launches
    return found


def measure_ops(
    options: argparse.Namespace, progress: Callable[[str], None]
) -> dict[str, dict[str, dict[str, float]]]:
    rounds = 3 if options.quick else 30
    found: dict[str, dict[str, dict[str, float]]] = {}
    for device in options.devices:
        for name, function in tiny_ops(device).items():
            progress(f"{name}, {device}")
            found.setdefault(name, {})[device] = host_time(function, device, rounds)
        measure.synchronize(device)
        if torch.device(device).type == "opencl":
            progress(f"{device} without its driver")
            for name, seconds in beyond_driver.measured(device, options.quick).items():
                found[name][device]["beyond"] = seconds
    return found


def measure_network(
    name: str, mode: str, device: str, options: argparse.Namespace
) -> dict[str, object]:
    step = step_of(name, mode, Place(device, options.memory_format), options)
    for _ in range(2):
        step()
    hosts, walls = [], []
    for _ in range(2 if options.quick else 7):
        measure.synchronize(device)
        waits_before = sum(torch.opencl.wait_stats().values())
        start = time.perf_counter()
        step()
        hosts.append(time.perf_counter() - start)
        waits = sum(torch.opencl.wait_stats().values())
        measure.synchronize(device)
        walls.append(time.perf_counter() - start)
    with torch.opencl.profile() as profile:
        step()
    wall = statistics.median(walls)
    return {
        "model": name,
        "mode": mode,
        "device": device,
        "launches": profile.launches,
        "waits": waits - waits_before,
        "host": statistics.median(hosts),
        "wall": wall,
        "kernel_share": profile.device_seconds / profile.wall,
    }


def ops_table(
    ops: dict[str, dict[str, dict[str, float]]],
    drivers: dict[str, dict[str, float]],
    devices: list[str],
) -> Table:
    table = Table(title="host, us an op")
    table.add_column("op")
    for device in devices:
        table.add_column(device, justify="right")
        if device in drivers:
            table.add_column("beyond\nthe driver", justify="right")
            table.add_column("commands", justify="right")
    for name, found in ops.items():
        cells = []
        for device in devices:
            cells.append(f"{found[device]['host'] * 1e6:.2f}")
            if device in drivers:
                beyond = found[device].get("beyond")
                cells.append("" if beyond is None else f"{beyond * 1e6:.2f}")
                cells.append(str(found[device]["commands"]))
        table.add_row(name, *cells)
    table.add_section()
    for state in ("busy", "idle"):
        cells = []
        for device in devices:
            if device in drivers:
                cells += [f"{drivers[device][state] * 1e6:.1f}", "", "1"]
            else:
                cells.append("")
        table.add_row(f"clEnqueueNDRangeKernel alone, device {state}", *cells)
    return table


def networks_table(rows: list[dict[str, object]], title: str) -> Table:
    table = Table(title=title)
    for heading in ("network", "mode", "device"):
        table.add_column(heading)
    headings = ("launches", "waits", "host\nms", "wall\nms", "host us\na launch")
    for heading in (*headings, "kernels' share\nof wall"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row["model"],
            row["mode"],
            row["device"],
            str(row["launches"]),
            str(row["waits"]),
            f"{row['host'] * 1e3:.2f}",
            f"{row['wall'] * 1e3:.2f}",
            f"{row['host'] / max(1, row['launches']) * 1e6:.1f}",
            f"{row['kernel_share']:.0%}",
        )
    return table


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    parser.add_argument("--models", default="resnet50,mobilenet_v2")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=64)
    options = parser.parse_args(arguments)
    options.models = options.models.split(",")
    options.memory_format, options.dtype = "contiguous", "float32"
    options.autocast = None
    return options


def measure_all(options: argparse.Namespace, console: Console) -> dict[str, object]:
    measure.apply_common_options(options)
    opencl = [d for d in options.devices if torch.device(d).type == "opencl"]
    with console.status("") as status:
        ops = measure_ops(options, status.update)
        drivers = {}
        for device in opencl:
            status.update(f"the driver of {device}")
            drivers[device] = measured(device, "enqueue", options.quick)
        rows = []
        for name in options.models:
            for mode in options.modes:
                for device in opencl:
                    status.update(f"{name} {mode}, {device}")
                    rows.append(measure_network(name, mode, device, options))
    return {
        "benchmark": "overhead",
        "machine": measure.describe_machine(options.devices),
        "settings": {"batch": options.batch, "image_size": options.image_size},
        "devices": options.devices,
        "ops": ops,
        "drivers": drivers,
        "networks": rows,
    }


def main() -> int:
    options = parse()
    console = measure.console_of(options)
    record = measure_all(options, console)
    console.print(ops_table(record["ops"], record["drivers"], options.devices))
    if record["networks"]:
        title = f"a step, batch {options.batch}, {options.image_size} pixels"
        console.print(networks_table(record["networks"], title))
    if options.json:
        measure.write_json(options.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
