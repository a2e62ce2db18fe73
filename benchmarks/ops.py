"""Times single ops, devices in turns, against what each device can do.

    python benchmarks/ops.py --family gemm --devices opencl:0 cpu
    python benchmarks/ops.py --family convolution --filter "resnet50.*3x3|fwd 3x"
    python benchmarks/ops.py --family pointwise norm --dtype float16 --json ops.json
    python benchmarks/ops.py --family reduction softmax --from-cache
    python benchmarks/ops.py --list --filter "dgrad.*channels_last"

GFLOP/s count the operations of the definition, so an algorithm that needs
fewer can pass the peak; GB/s count every operand once, so what stays in caches
can pass the bandwidth. "of roofline" is that rate over the device's own: the FMA peak
that roofline.py finds, or the bandwidth of copy_ on 256 MiB in the same turns, whichever
the op meets first; memory's speed changes within a run. "of mix", of what memory
bounds, is that over the rate of a plain kernel that reads and writes as many bytes to
one as the op. A ratio is above 1 where the device is faster than the last of --devices.
"from cache" is the time a byte takes on an eighth of the data over what it takes on the
whole: near 1, an op does not wait for memory.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache

import dense_cases
import image_cases
import measure
import memory_cases
import optimizer_cases
import torch
from case import Case
from models import NETWORKS
from rich.console import Console
from rich.table import Table
from roofline import Roof, rooflines_of
from streams import moving

MEMORY_FAMILIES = {
    "pooling": memory_cases.pooling,
    "indexing": memory_cases.indexing,
    "norm": memory_cases.norms,
    "softmax": memory_cases.softmaxes,
    "pointwise": memory_cases.pointwise,
    "reduction": memory_cases.reductions,
    "copy": memory_cases.copies,
    "cast": memory_cases.casts,
    "pixel_shuffle": memory_cases.shuffles,
    "image": image_cases.images,
}
DENSE_FAMILIES = ("gemm", "convolution", "depthwise")
# Past the last caches: two of 32 MiB would keep the source of a copy of 64.
_COPY_BYTES = 256 << 20
FAMILIES = (*DENSE_FAMILIES, *MEMORY_FAMILIES, "optimizer")


@dataclass
class Result:
    family: str
    name: str
    uses: str
    flops: float
    read: float
    written: float
    seconds: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    of_roofline: dict[str, float] = field(default_factory=dict)
    of_mix: dict[str, float] = field(default_factory=dict)
    from_cache: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def rate(self, device: str) -> float:
        """GFLOP/s of dense ops, GB/s of others."""
        return (self.flops or self.read + self.written) / self.seconds[device] / 1e9

    @property
    def worst_ratio(self) -> float:
        return min(self.ratios.values(), default=float("inf"))


# Of the whole table, where one looks first.
SORTS = {
    "ratio": lambda result: (result.family, result.worst_ratio),
    "name": lambda result: (result.family, result.name),
    "time": lambda result: -max(result.seconds.values(), default=0),
    "roofline": lambda result: min(result.of_roofline.values(), default=0),
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    parser.add_argument(
        "--family", nargs="+", choices=FAMILIES, default=FAMILIES, metavar="FAMILY"
    )
    parser.add_argument(
        "--filter",
        default="",
        metavar="REGEX",
        help="only cases whose name or networks contain it",
    )
    parser.add_argument("--list", action="store_true", help="print the cases' names")
    measure.add_common_options(parser)
    parser.add_argument("--dtype", choices=measure.DTYPES, default="float32")
    parser.add_argument(
        "--models",
        default=",".join(NETWORKS),
        help="whose layers to take; default: %(default)s",
    )
    parser.add_argument("--batch", type=int, default=16, help="of these layers")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument(
        "--from-cache",
        action="store_true",
        help="also an eighth of the data, of what memory bounds but optimizers",
    )
    parser.add_argument(
        "--seconds", type=float, default=1, help="of measuring a case, all devices"
    )
    parser.add_argument("--sort", choices=SORTS, default="ratio")
    options = parser.parse_args(arguments)
    options.models = options.models.split(",")
    if options.quick:
        options.seconds = 0.2
    return options


def cases_of(options: argparse.Namespace) -> list[Case]:
    """With --from-cache, cases have their eighth."""
    dtype = measure.DTYPES[options.dtype]
    found: list[Case] = []
    if set(options.family) & set(DENSE_FAMILIES):
        layers = dense_cases.layers_of(
            options.models, options.batch, options.image_size
        )
        found += dense_cases.gemm(dtype, layers)
        found += dense_cases.convolutions(dtype, layers)
    for family, make in MEMORY_FAMILIES.items():
        if family in options.family:
            cases = list(make(dtype, 8 if options.quick else 1))
            if options.from_cache:
                scale = 64 if options.quick else 8
                cases = [
                    replace(case, eighth=eighth)
                    for case, eighth in zip(cases, make(dtype, scale), strict=True)
                ]
            found += cases
    if "optimizer" in options.family:
        found += optimizer_cases.optimizers(dtype, options.models)
    pattern = re.compile(options.filter)
    return [
        case
        for case in found
        if case.family in options.family and pattern.search(f"{case.name} {case.uses}")
    ]


@cache
def copying(device: str) -> Callable[[], object]:
    source = torch.ones(_COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def measure_case(
    case: Case, options: argparse.Namespace, rooflines: dict[str, Roof], progress
) -> Result:
    result = Result(
        case.family, case.name, case.uses, case.flops, case.read, case.written
    )
    functions = {}
    places = {}
    mixes = {}
    for device in options.devices:
        progress(device)
        try:
            function = case.make(device)
            function()
            measure.synchronize(device)
            functions[device] = function
        except (RuntimeError, NotImplementedError) as error:
            result.errors[device] = str(error).splitlines()[0]
            continue
        functions[f"copy on {device}"] = copying(device)
        if not case.is_dense and torch.device(device).type == "opencl":
            move, mixes[device] = moving(device, case)
            functions[f"bytes on {device}"] = move
        if case.eighth is not None:
            functions[f"an eighth on {device}"] = case.eighth.make(device)
        places |= {name: device for name in functions if name not in places}
    times = measure.interleave(
        functions, seconds=options.seconds, places=places, progress=progress
    )
    reference = options.devices[-1]
    for device in set(places.values()):
        result.seconds[device] = statistics.median(times[device])
        if case.eighth is not None:
            result.from_cache[device] = statistics.median(
                (small / case.eighth.moved) / (whole / case.moved)
                for small, whole in zip(
                    times[f"an eighth on {device}"], times[device], strict=True
                )
            )
        if rooflines[device].flops or not case.flops:
            result.of_roofline[device] = statistics.median(
                Roof(rooflines[device].flops, 2 * _COPY_BYTES / copied).floor(
                    case.flops, case.moved
                )
                / seconds
                for seconds, copied in zip(
                    times[device], times[f"copy on {device}"], strict=True
                )
            )
        if device in mixes:
            result.of_mix[device] = statistics.median(
                moved / mixes[device] * case.moved / seconds
                for seconds, moved in zip(
                    times[device], times[f"bytes on {device}"], strict=True
                )
            )
        if device != reference and reference in times:
            result.ratios[device] = measure.ratio(times[device], times[reference])
    return result


def colored(value: float) -> str:
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}[/]"


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table_of(results: list[Result], devices: list[str], unit: str) -> Table:
    reference = devices[-1]
    has_mixes = any(result.of_mix for result in results)
    has_eighths = any(result.from_cache for result in results)
    table = Table()
    table.add_column("family")
    table.add_column("case", overflow="fold")
    if any(result.uses for result in results):
        table.add_column("networks", overflow="fold", max_width=24)
    for device in devices:
        table.add_column(f"{device}\nms", justify="right")
        table.add_column(unit, justify="right")
        table.add_column("of\nroof", justify="right")
        if has_mixes:
            table.add_column("of\nmix", justify="right")
        if has_eighths:
            table.add_column("from\ncache", justify="right")
        if device != reference:
            table.add_column(f"{reference} /\n{device}", justify="right")
    for result in results:
        cells = [result.family, result.name]
        if any(result.uses for result in results):
            cells.append(result.uses)
        for device in devices:
            if device in result.seconds:
                cells.append(short(result.seconds[device] * 1e3))
                cells.append(short(result.rate(device)))
                share = result.of_roofline.get(device)
                cells.append("" if share is None else f"{share:.0%}")
            else:
                cells += ["failed", "", ""]
            if has_mixes:
                share = result.of_mix.get(device)
                cells.append("" if share is None else f"{share:.0%}")
            if has_eighths:
                share = result.from_cache.get(device)
                cells.append("" if share is None else f"{share:.2f}")
            if device != reference:
                value = result.ratios.get(device)
                cells.append("" if value is None else colored(value))
        table.add_row(*cells)
    return table


def summary_of(results: list[Result], devices: list[str]) -> Table:
    table = Table(title="geometric means, and how many cases are slower")
    table.add_column("family")
    table.add_column("cases", justify="right")
    others = devices[:-1]
    for device in others:
        table.add_column(f"{devices[-1]} /\n{device}", justify="right")
        table.add_column("slower", justify="right")
        table.add_column("of roofline", justify="right")
    for family in dict.fromkeys(result.family for result in results):
        members = [result for result in results if result.family == family]
        cells = [family, str(len(members))]
        for device in others:
            ratios = [r.ratios[device] for r in members if device in r.ratios]
            shares = [r.of_roofline[device] for r in members if device in r.of_roofline]
            cells.append(colored(measure.geometric_mean(ratios)) if ratios else "")
            cells.append(str(sum(ratio < 1 for ratio in ratios)) if ratios else "")
            cells.append(f"{measure.geometric_mean(shares):.0%}" if shares else "")
        table.add_row(*cells)
    return table


def measure_all(
    cases: list[Case], options: argparse.Namespace, console: Console
) -> dict[str, object]:
    measure.apply_common_options(options)
    results = []
    with measure.progress_bar(console) as progress:
        task = progress.add_task("ops", total=len(cases), doing="rooflines")
        rooflines = rooflines_of(options.devices, options.quick)
        for case in cases:

            def doing(text: str, case: Case = case) -> None:
                progress.update(task, doing=f"{case.family} {case.name}, {text}")

            results.append(measure_case(case, options, rooflines, doing))
            progress.advance(task)
    return {
        "benchmark": "ops",
        "machine": measure.describe_machine(options.devices),
        "settings": {"dtype": options.dtype, "batch": options.batch},
        "devices": options.devices,
        "rooflines": {
            device: asdict(roofline) for device, roofline in rooflines.items()
        },
        "fallbacks": torch.opencl.fallback_stats(),
        "rows": [asdict(result) for result in results],
    }


def show(record: dict[str, object], sort: str, console: Console) -> None:
    results = sorted((Result(**row) for row in record["rows"]), key=SORTS[sort])
    devices = record["devices"]
    for unit, is_dense in (("GFLOP/s", True), ("GB/s", False)):
        shown = [result for result in results if (result.flops > 0) == is_dense]
        if shown:
            console.print(table_of(shown, devices, unit))
    if len(devices) > 1:
        console.print(summary_of(results, devices))
    measure.show_machine(record, console)
    for device, roofline in record["rooflines"].items():
        peak = f"{roofline['flops'] / 1e9:.0f} GFLOP/s, " if roofline["flops"] else ""
        console.print(
            f"roofline of {device}: {peak}{roofline['bandwidth'] / 1e9:.1f} GB/s"
        )
    for result in results:
        for device, error in result.errors.items():
            console.print(f"{result.name} on {device}: {error}", markup=False)
    measure.show_fallbacks(record, console)


def main() -> int:
    options = parse()
    console = measure.console_of(options)
    cases = cases_of(options)
    if not cases:
        console.print(f"no case matches {options.filter!r}", markup=False)
        return 2
    if options.list:
        for case in cases:
            print(f"{case.family}: {case.name}", f"({case.uses})" if case.uses else "")
        return 0
    record = measure_all(cases, options, console)
    show(record, options.sort, console)
    if options.json:
        measure.write_json(options.json, record)
    return 1 if any(row["errors"] for row in record["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
