"""Times hundreds of calls that models make, and lists those that are behind.

    python benchmarks/sweep.py --devices opencl:0 opencl:1 cpu
    python benchmarks/sweep.py --family image module --filter "pool|LSTM" --json sweep.json
    python benchmarks/sweep.py --below 0.5

A row is a call or its gradient: the fastest of calls with a wait each, devices in
turns, so launches count. Ratios are above 1 where a device is faster than the last of
--devices. What is behind by less than --latency microseconds is counted, not listed.
To look into a family use ops.py, which knows what an op has to move.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import measure
import sweep_cases
import torch
from rich.console import Console
from rich.table import Table
from sweep_cases import Call

_MOST_TURNS = 50


@dataclass
class Row:
    family: str
    name: str
    is_gradient: bool
    seconds: dict[str, float]

    @property
    def title(self) -> str:
        return f"{self.name} gradient" if self.is_gradient else self.name

    def ratios(self, devices: list[str]) -> dict[str, float]:
        reference = self.seconds[devices[-1]]
        return {name: reference / self.seconds[name] for name in devices[:-1]}

    def behind(self, devices: list[str], below: float) -> float:
        """Seconds that the slowest device takes more than at a ratio of ``below``."""
        slowest = max(self.seconds[name] for name in devices[:-1])
        return slowest - self.seconds[devices[-1]] / below


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    parser.add_argument(
        "--family",
        nargs="+",
        choices=sweep_cases.FAMILIES,
        default=list(sweep_cases.FAMILIES),
        metavar="FAMILY",
    )
    parser.add_argument(
        "--filter", default="", metavar="REGEX", help="only calls whose name has it"
    )
    parser.add_argument("--list", action="store_true", help="print the calls' names")
    measure.add_common_options(parser)
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="of measuring a row, all devices"
    )
    parser.add_argument(
        "--below", type=float, default=1.0, metavar="RATIO", help="what is listed"
    )
    parser.add_argument(
        "--latency", type=float, default=100, help="microseconds; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds = 0.05
    return options


def calls_of(options: argparse.Namespace) -> list[Call]:
    pattern = re.compile(options.filter)
    return [
        call
        for family in options.family
        for call in sweep_cases.FAMILIES[family]()
        if pattern.search(call.name)
    ]


def prepared(call: Call, device: str, is_gradient: bool) -> Callable[[], object] | None:
    """The call, or its gradient, on a device; None where there is no gradient."""
    torch.manual_seed(0)
    inputs = [tensor.to(device) for tensor in call.make_inputs()]
    if not is_gradient:
        return torch.no_grad()(lambda: call.function(*inputs))
    wanted = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    output = call.function(*inputs)
    if not isinstance(output, torch.Tensor) or not output.requires_grad:
        return None
    incoming = torch.randn_like(output)
    return lambda: torch.autograd.grad(
        output, wanted, incoming, retain_graph=True, allow_unused=True
    )


def fastest(
    functions: dict[str, Callable[[], object]], seconds: float
) -> dict[str, float]:
    """Of single calls, in turns that begin when no thread runs."""
    times = dict.fromkeys(functions, float("inf"))
    started = time.perf_counter()
    for turn in range(_MOST_TURNS):
        if turn >= 3 and time.perf_counter() - started > seconds:
            break
        for device, function in functions.items():
            measure.wait_for_idle_threads()
            for _ in range(3):
                times[device] = min(times[device], measure.seconds_of(function, device))
    return times


def measure_all(
    calls: list[Call], options: argparse.Namespace, console: Console
) -> dict[str, object]:
    measure.apply_common_options(options)
    rows: list[Row] = []
    errors: dict[str, str] = {}
    with measure.progress_bar(console) as progress:
        task = progress.add_task("sweep", total=len(calls), doing="")
        for call in calls:
            for is_gradient in (False, True) if call.has_gradient else (False,):
                title = f"{call.name}{' gradient' if is_gradient else ''}"
                progress.update(task, doing=title)
                functions = {}
                try:
                    for device in options.devices:
                        functions[device] = prepared(call, device, is_gradient)
                    if None in functions.values():
                        continue
                    seconds = fastest(functions, options.seconds)
                except (RuntimeError, NotImplementedError) as error:
                    errors[title] = str(error).splitlines()[0]
                    continue
                rows.append(Row(call.family, call.name, is_gradient, seconds))
            progress.advance(task)
    return {
        "benchmark": "sweep",
        "machine": measure.describe_machine(options.devices),
        "devices": options.devices,
        "fallbacks": torch.opencl.fallback_stats(),
        "errors": errors,
        "rows": [asdict(row) for row in rows],
    }


def show(
    record: dict[str, object], options: argparse.Namespace, console: Console
) -> None:
    devices = record["devices"]
    rows = [Row(**row) for row in record["rows"]]
    slow = [row for row in rows if min(row.ratios(devices).values()) < options.below]
    latency = options.latency * 1e-6
    listed = [row for row in slow if row.behind(devices, options.below) > latency]
    table = Table()
    for header in ("family", "call"):
        table.add_column(header)
    for device in devices:
        table.add_column(f"{device}\nms", justify="right")
    for device in devices[:-1]:
        table.add_column(f"{devices[-1]} /\n{device}", justify="right")
    for row in sorted(listed, key=lambda row: min(row.ratios(devices).values())):
        table.add_row(
            row.family,
            row.title,
            *(f"{1e3 * row.seconds[device]:.3g}" for device in devices),
            *(f"{ratio:.2f}" for ratio in row.ratios(devices).values()),
        )
    console.print(table)
    console.print(
        f"{len(rows)} calls and gradients, {len(listed)} below {options.below:g}, "
        f"{len(slow) - len(listed)} more by less than {options.latency:g} us"
    )
    for device in devices[:-1]:
        mean = measure.geometric_mean(row.ratios(devices)[device] for row in rows)
        console.print(f"{devices[-1]} / {device}, geometric mean: {mean:.2f}")
    measure.show_machine(record, console)
    for name, error in record["errors"].items():
        console.print(f"{name}: {error}", markup=False, soft_wrap=True)
    measure.show_fallbacks(record, console)


def main() -> int:
    options = parse()
    console = measure.console_of(options)
    calls = calls_of(options)
    if not calls:
        console.print(f"no call matches {options.filter!r}", markup=False)
        return 2
    if options.list:
        for call in calls:
            print(f"{call.family}: {call.name}")
        return 0
    record = measure_all(calls, options, console)
    show(record, options, console)
    if options.json:
        measure.write_json(options.json, record)
    return 1 if record["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
