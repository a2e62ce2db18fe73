"""Validates a training step of torchvision's networks, all 121 of them.

    python validate/validate_models.py --all --device opencl:0 --out report/
    python validate/validate_models.py --all --device opencl:1 --resume report/
    python validate/validate_models.py --family detection --device opencl:1 --quick
    python validate/validate_models.py --models resnet18,raft_small

Forward, a real loss, backward and an optimizer step on the device, and for
detection the post-processing in evaluation, are compared with the CPU; see
validate/README.md for how. A network is checked in a worker process: one that
fails, hangs or runs out of memory does not stop the run. Every network adds to
report.json; at the end report.html and, with --docs, docs/networks.md are made
of it. Exits with 1 unless every network passed without a fallback.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

# Read when the extension loads: a fallback is counted, and fails the network.
os.environ.setdefault("TORCH_OPENCL_FALLBACK", "silent")

import torch
from isolated import Lost, Worker
from networks import families, html_report, models_report
from networks.models_report import Row
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_DOCS = Path(__file__).resolve().parents[1] / "docs" / "networks.md"
# Of each family, the smallest: what --quick takes.
_QUICK = (
    "squeezenet1_1",
    "mobilenet_v3_small",
    "swin_t",
    "ssdlite320_mobilenet_v3_large",
    "lraspp_mobilenet_v3_large",
    "r3d_18",
    "raft_small",
    "quantized_shufflenet_v2_x0_5",
)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", action="store_true", help="every network")
    what.add_argument("--family", choices=sorted(families.FAMILIES))
    what.add_argument("--models", help="names, separated by commas")
    parser.add_argument("--device", default="opencl:0", help="default: %(default)s")
    parser.add_argument(
        "--quick", action="store_true", help="only the smallest of each family"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for report.json, .html"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="DIR", help="as --out; skip what passed there"
    )
    parser.add_argument("--docs", action="store_true", help="write docs/networks.md")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--time-limit", type=float, default=900, help="s a network")
    parser.add_argument("--json", action="store_true", help="the rows on stdout")
    options = parser.parse_args(arguments)
    options.out = options.resume or options.out
    return options


def chosen(options: argparse.Namespace) -> list[str]:
    names = families.networks(options.family)
    if options.models:
        names = options.models.split(",")
        unknown = set(names) - set(families.networks())
        if unknown:
            raise SystemExit(f"torchvision has no {', '.join(sorted(unknown))}")
    if options.quick:
        names = [name for name in names if name in _QUICK] or names[:1]
    return names


def serve(device: str, seed: int):
    """In the worker: checks the network that is asked for."""
    import gc

    from networks.report import failures
    from networks.step import check

    def answer(name: str) -> Row:
        start = time.monotonic()
        row = Row(name, families.family_of(name), device)
        torch.opencl.reset_fallback_stats()
        torch.opencl.reset_peak_memory_stats(device)
        try:
            problem = families.make(name, seed)
            row.input = "x".join(map(str, problem.inputs.shape))
            row.parameters = sum(p.numel() for p in problem.model.parameters())
            result = check(problem, device)
            row.failures = failures(result)[:10]
            row.fallbacks = sum(result.fallbacks.values())
            row.ratios = {stage.stage: stage.worst.ratio for stage in result.stages}
            row.tensors = sum(len(stage.comparisons) for stage in result.stages)
            row.passed = result.passed
            row.flips = result.flips
            row.more_draws = result.more_draws
            row.device_seconds = result.device_seconds
            row.cpu_seconds = result.cpu_seconds
        except Exception as error:
            row.failures = [f"{type(error).__name__}: {error}"[:2000]]
        row.peak_memory = torch.opencl.max_memory_allocated(device)
        row.seconds = time.monotonic() - start
        gc.collect()
        torch.opencl.empty_cache()
        return row

    return answer


def main() -> int:
    options = parse()
    console = Console(stderr=True)
    report = models_report.Report.load(options.out)
    report.names[options.device] = torch.opencl.get_device_properties(
        options.device
    ).platform
    names = chosen(options)
    done = {
        row.network
        for row in report.rows
        if options.resume and row.device == options.device and row.passed
    }
    worker = Worker(serve, options.device, options.seed)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console)
    task = progress.add_task("", total=len(names), completed=len(done & set(names)))

    def view() -> Group:
        rows = report.of(options.device, names)[-15:]
        return Group(models_report.table(rows), progress)

    with Live(console=console, get_renderable=view, refresh_per_second=2):
        for name in names:
            if name in done:
                continue
            progress.update(task, description=f"{name} on {options.device}")
            try:
                row = worker.ask(name, options.time_limit)
            except Lost as lost:
                row = Row(name, families.family_of(name), options.device)
                row.failures, row.seconds = [f"{lost.kind}: {lost}"], lost.seconds
            report.add(row)
            progress.advance(task)
            if not console.is_terminal:
                verdict = "pass" if row.passed else f"FAIL {row.failures[:2]}"
                console.print(
                    f"{name} {row.seconds:.1f} s {verdict}",
                    markup=False,
                    highlight=False,
                )
    worker.stop()
    rows = report.of(options.device, names)
    if options.json:
        print(json.dumps([vars(row) for row in rows], indent=1))
    else:
        Console().print(models_report.table(rows, only_failures=True))
        Console().print(models_report.sentence(rows, options.device))
    if options.out:
        html_report.write(options.out / "report.html", report)
    if options.docs:
        _DOCS.write_text(models_report.markdown(report))
    return 0 if rows and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
