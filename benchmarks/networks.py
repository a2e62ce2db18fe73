"""Times inference and training of networks, devices in turns.

    python benchmarks/networks.py
    python benchmarks/networks.py --models resnet50,vgg16 --modes train --json a.json
    python benchmarks/networks.py --models vit_s_16,swin_t,bert,gpt2,llama --batch 4
    python benchmarks/networks.py --devices opencl:1 cpu --memory-format channels_last
    python benchmarks/networks.py --devices opencl:0 --memory-format both
    python benchmarks/networks.py --from a.json b.json --plot networks.svg

A training step is forward, cross entropy, backward and a step of Adam. A time
is the median over rounds; a ratio compares two devices within a round, is
above 1 where the device is faster than the last of --devices, and its mean over
the networks is geometric. How measuring in turns was checked is said in
measure.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import measure
import torch
from models import NETWORKS, build, data_of
from rich.console import Console
from rich.table import Table

MODES = ("infer", "train")


@dataclass
class Row:
    """Times in seconds of a network in a mode, by device, one a round."""

    model: str
    mode: str
    times: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def median(self, device: str) -> float | None:
        times = self.times.get(device)
        return statistics.median(times) if times else None

    def ratio(self, device: str, to: str) -> float | None:
        """How many times as fast as ``to`` the device is."""
        if not self.times.get(device) or not self.times.get(to):
            return None
        return measure.ratio(self.times[device], self.times[to])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    parser.add_argument(
        "--models",
        default=",".join(NETWORKS),
        help="classification networks of torchvision, vit_s_16, bert, gpt2, llama; "
        "default: %(default)s",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    measure.add_common_options(parser)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument(
        "--memory-format",
        choices=(*measure.LAYOUTS, "both"),
        default="contiguous",
        help="both: each device in either, in turns; the last of --devices in the "
        "contiguous one is what others are compared with",
    )
    parser.add_argument(
        "--dtype",
        choices=measure.DTYPES,
        default="float32",
        help="of weights and pictures",
    )
    parser.add_argument(
        "--autocast",
        choices=("float16", "bfloat16"),
        help="run forward under torch.autocast",
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="of measuring a network and mode"
    )
    parser.add_argument(
        "--min-rounds", type=int, default=3, help="even where --seconds are over"
    )
    parser.add_argument("--plot", metavar="FILE", help="a bar plot (matplotlib)")
    parser.add_argument(
        "--from",
        dest="results",
        nargs="+",
        metavar="FILE",
        help="show what earlier runs wrote with --json instead of measuring",
    )
    options = parser.parse_args(arguments)
    options.models = options.models.split(",")
    if options.quick:
        options.batch, options.image_size = 2, 64
        options.seconds, options.min_rounds = 1, 2
    return options


class Place(NamedTuple):
    device: str
    memory_format: str


def places_of(options: argparse.Namespace) -> dict[str, Place]:
    """Where networks run, by what the table calls it."""
    if options.memory_format != "both":
        return {
            device: Place(device, options.memory_format) for device in options.devices
        }
    return {
        f"{device} {layout}": Place(device, layout)
        for device in options.devices
        for layout in reversed(measure.LAYOUTS)
    }


def step_of(
    name: str, mode: str, place: Place, options: argparse.Namespace
) -> Callable[[], object]:
    """A step of the network, seeded alike everywhere."""
    device = place.device
    torch.manual_seed(0)
    dtype = measure.DTYPES[options.dtype]
    layout = measure.LAYOUTS[place.memory_format]
    model = build(name).to(device, dtype, memory_format=layout)
    given, target = data_of(name, options.batch, options.image_size)
    given, target = given.to(device), target.to(device)
    if given.is_floating_point():
        given = given.to(dtype).contiguous(memory_format=layout)
    kind = torch.device(device).type

    def precision():
        if not options.autocast:
            return nullcontext()
        return torch.autocast(kind, dtype=measure.DTYPES[options.autocast])

    if mode == "infer":
        model.eval()

        def infer() -> torch.Tensor:
            with torch.inference_mode(), precision():
                return model(given)

        return infer

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def train() -> None:
        optimizer.zero_grad()
        with precision():
            output = model(given)
            # Networks with auxiliary heads give a tuple; the first is the main one.
            output = output if isinstance(output, torch.Tensor) else output[0]
            classes = output.float().flatten(0, -2)
            loss = torch.nn.functional.cross_entropy(classes, target)
        loss.backward()
        optimizer.step()

    return train


def measure_network(
    name: str, mode: str, options: argparse.Namespace, progress: Callable[[str], None]
) -> Row:
    row = Row(name, mode)
    steps = {}
    places = places_of(options)
    for title, place in places.items():
        progress(f"{title}: first step")
        try:
            step = step_of(name, mode, place, options)
            step()
            measure.synchronize(place.device)
            steps[title] = step
        except (RuntimeError, NotImplementedError) as error:
            row.errors[title] = str(error).splitlines()[0]
    row.times = measure.interleave(
        steps,
        seconds=options.seconds,
        rounds=(options.min_rounds, 50),
        progress=progress,
        places={title: place.device for title, place in places.items()},
    )
    return row


def means(rows: list[Row], device: str, to: str) -> dict[str, float]:
    """Geometric means of the ratios, by mode, and of all."""
    ratios = {
        mode: [
            value
            for row in rows
            if row.mode == mode and (value := row.ratio(device, to)) is not None
        ]
        for mode in MODES
    }
    ratios["all"] = [value for values in ratios.values() for value in values]
    return {
        mode: measure.geometric_mean(values)
        for mode, values in ratios.items()
        if values
    }


def table_of(rows: list[Row], devices: list[str], title: str) -> Table:
    reference = devices[-1]
    table = Table(title=title)
    table.add_column("network")
    table.add_column("mode")
    for device in devices:
        table.add_column(f"{device}\nms", justify="right")
    for device in devices[:-1]:
        table.add_column(f"{reference} /\n{device}", justify="right")
    for row in rows:
        cells = []
        for device in devices:
            median = row.median(device)
            cells.append("-" if median is None else f"{median * 1e3:.1f}")
        for device in devices[:-1]:
            value = row.ratio(device, reference)
            cells.append("-" if value is None else colored(value))
        table.add_row(row.model, row.mode, *cells)
    by_device = {device: means(rows, device, reference) for device in devices[:-1]}
    for mode in (*MODES, "all"):
        values = [by_device[device].get(mode) for device in devices[:-1]]
        if any(value is not None for value in values):
            cells = ["-" if value is None else colored(value) for value in values]
            table.add_row("geometric mean", mode, *[""] * len(devices), *cells)
    return table


def colored(value: float) -> str:
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}[/]"


def plot(rows: list[Row], devices: list[str], path: str, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    modes = [mode for mode in MODES if any(row.mode == mode for row in rows)]
    figure, panels = pyplot.subplots(1, len(modes), figsize=(6 * len(modes), 4))
    for panel, mode in zip([panels] if len(modes) == 1 else panels, modes, strict=True):
        shown = [row for row in rows if row.mode == mode]
        width = 0.8 / len(devices)
        for number, device in enumerate(devices):
            medians = [row.median(device) or 0 for row in shown]
            places = [place + number * width for place in range(len(shown))]
            bars = panel.bar(
                places, [1e3 * median for median in medians], width, label=device
            )
            panel.bar_label(bars, fmt="%.0f", fontsize=7)
        panel.set_xticks(
            [place + width * (len(devices) - 1) / 2 for place in range(len(shown))],
            [row.model for row in shown],
        )
        panel.set_yscale("log")
        panel.set_ylabel("ms a step")
        panel.set_title(mode)
        panel.legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path)


def measure_all(options: argparse.Namespace, console: Console) -> dict[str, object]:
    measure.apply_common_options(options)
    rows = []
    with measure.progress_bar(console) as progress:
        task = progress.add_task(
            "networks", total=len(options.models) * len(options.modes), doing=""
        )
        for name in options.models:
            for mode in options.modes:

                def doing(text: str, name: str = name, mode: str = mode) -> None:
                    progress.update(task, doing=f"{name} {mode}, {text}")

                rows.append(measure_network(name, mode, options, doing))
                measure.release(options.devices)
                progress.advance(task)
    settings = ("batch", "image_size", "memory_format", "dtype", "autocast")
    return {
        "benchmark": "networks",
        "machine": measure.describe_machine(options.devices),
        "settings": {name: getattr(options, name) for name in settings},
        "devices": list(places_of(options)),
        "fallbacks": torch.opencl.fallback_stats(),
        "rows": [asdict(row) for row in rows],
    }


def read_results(paths: list[str]) -> dict[str, object]:
    """The rows of several runs with the same settings as one record."""
    records = [json.loads(Path(path).read_text()) for path in paths]
    first = records[0]
    for path, record in zip(paths, records, strict=True):
        for key in ("settings", "devices"):
            if record[key] != first[key]:
                raise ValueError(f"{path}: other {key} than {paths[0]}: {record[key]}")
    return {**first, "rows": [row for record in records for row in record["rows"]]}


def main() -> int:
    options = parse()
    console = measure.console_of(options)
    record = (
        read_results(options.results)
        if options.results
        else measure_all(options, console)
    )
    rows = [Row(**row) for row in record["rows"]]
    devices, settings = record["devices"], record["settings"]
    title = (
        f"batch {settings['batch']}, {settings['image_size']}x{settings['image_size']},"
        f" {settings['memory_format']}, "
        + (f"autocast {settings['autocast']}" if settings["autocast"] else "")
        + ("" if settings["autocast"] else settings["dtype"])
    )
    console.print(table_of(rows, devices, title))
    measure.show_machine(record, console)
    for row in rows:
        for device, error in row.errors.items():
            console.print(f"{row.model} {row.mode} on {device}: {error}", markup=False)
    measure.show_fallbacks(record, console)
    if options.json:
        measure.write_json(options.json, record)
    if options.plot:
        plot(rows, devices, options.plot, title)
    return 1 if any(row.errors for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
