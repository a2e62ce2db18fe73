"""Checks a training step of every network on every OpenCL device.

    python validate/run_all.py
    python validate/run_all.py --devices opencl:1 --models resnet18,alexnet

Prints one table and exits with 1 unless everything passed without a fallback to
the CPU. `make validate` runs this.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from networks import models
from networks.problem import make_problem
from networks.report import failures, summary_table, wide_console, write_json
from networks.step import Result, check
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", default="all", help="all, or opencl:0,opencl:1")
    parser.add_argument("--models", default=",".join(models.NETWORKS))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--optimizer", choices=models.OPTIMIZERS, default="sgd")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - for stdout")
    return parser.parse_args(arguments)


def devices(wanted: str) -> list[str]:
    if wanted != "all":
        return wanted.split(",")
    return [f"opencl:{index}" for index in range(torch.opencl.device_count())]


def label(device: str) -> str:
    if not device.startswith("opencl"):
        return device
    platform = torch.opencl.get_device_properties(device).platform
    return f"{device}, {platform}"


def run(
    options: argparse.Namespace, names: list[str], console: Console
) -> list[Result]:
    results = []
    networks = options.models.split(",")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=len(networks) * len(names))
        for network in networks:
            problem, _ = make_problem(
                network,
                batch=options.batch,
                image_size=options.image_size,
                optimizer=options.optimizer,
                seed=options.seed,
            )
            for device in names:
                bar.update(task, description=f"{network}: {device}")
                start = time.perf_counter()
                result = check(problem, device)
                result.seconds = time.perf_counter() - start
                results.append(result)
                bar.advance(task)
    return results


def main() -> int:
    options = parse()
    names = devices(options.devices)
    errors = Console(stderr=True)
    if not names:
        errors.print(
            "no OpenCL device: `python -m torch_opencl.diagnose` says what is missing"
        )
        return 2
    results = run(options, names, errors)
    console = wide_console(stderr=options.json == "-")
    for result in results:
        for line in failures(result):
            text = escape(f"{result.network} on {result.device}: {line}")
            console.print(f"[red]{text}[/red]", soft_wrap=True)
    console.print(summary_table(results))
    for name in names:
        console.print(label(name), markup=False)
    if options.json:
        write_json(options.json, results)
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
