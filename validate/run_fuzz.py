"""Random programs on an OpenCL device, judged by the CPU.

    python validate/run_fuzz.py --device opencl:0 --seconds 600
    python validate/run_fuzz.py --device opencl:1 --cases 3000 --seed 7
    python validate/run_fuzz.py --device opencl:0 --case 12345
    TORCH_OPENCL_DEVICE_CLASS=gpu python validate/run_fuzz.py --cases 10000

A case is a program of inputs and calls made from one number: an op of torch's
database in some dtype, layout and form, a pointwise op or a layer of any shape, or a
sequence of calls over tensors that share memory. Each runs in a worker process; a
crash or a hang is an outcome like another. What fails is minimised and printed with
the line that repeats it. Exits with 1 when anything failed.

--case runs one case, --edit the simplifications that are printed with it, --list
shows its calls without running them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

# The policy is read when the extension loads: ops without kernels pass by the CPU.
os.environ.setdefault("TORCH_OPENCL_FALLBACK", "silent")
# Compute units, by which kernels divide their work.
os.environ.setdefault("POCL_PTHREAD_MIN_THREADS", "8")

import torch
from fuzz import edits, generate, workers
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

# Numbers of cases of neighbouring seeds do not overlap.
_CASES_OF_A_SEED = 1_000_000


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="opencl:0", help="or all: one after the other"
    )
    parser.add_argument("--seconds", type=float, help="a device; 60 by default")
    parser.add_argument("--cases", type=int, help="at most so many a device")
    parser.add_argument(
        "--seed",
        type=int,
        default=int(os.environ.get("TORCH_OPENCL_TEST_SEED", 0)),
        help="another seed, other cases (TORCH_OPENCL_TEST_SEED, or 0)",
    )
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--edit", nargs="*", default=[], help="simplifications of it")
    parser.add_argument("--list", action="store_true", help="show --case, no more")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--time-limit", type=float, default=120, help="seconds a case")
    parser.add_argument(
        "--minimise", type=float, default=60, metavar="SECONDS", help="0: do not"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    options = parser.parse_args(arguments)
    if options.list and options.case is None:
        parser.error("--list needs --case")
    if options.edit and options.case is None:
        parser.error("--edit needs --case")
    if options.device == "all" and options.case is not None:
        parser.error("--case needs one --device")
    if options.seconds is None and options.cases is None:
        options.seconds = 60.0
    return options


def numbers(options: argparse.Namespace) -> Iterator[int]:
    """Cases to run, as long as there is time."""
    end = time.monotonic() + (options.seconds or float("inf"))
    first = options.seed * _CASES_OF_A_SEED
    for index in itertools.count():
        if time.monotonic() > end or index == options.cases:
            return
        yield first + index


def repetition(outcome: workers.Outcome, device: str) -> str:
    """The line that runs a case again."""
    gpu = os.environ.get("TORCH_OPENCL_DEVICE_CLASS")
    prefix = f"TORCH_OPENCL_DEVICE_CLASS={gpu} " if gpu else ""
    line = f"{prefix}python validate/run_fuzz.py --device {device}"
    line += f" --case {outcome.case}"
    if outcome.edits:
        line += " --edit " + " ".join(f"'{edit}'" for edit in outcome.edits)
    return line


def show(outcome: workers.Outcome, device: str, console: Console) -> None:
    message = outcome.message.strip()[:1500]
    text = (
        f"{outcome.status}: {outcome.subject}: {message}\n{outcome.text}\n"
        f"  {repetition(outcome, device)}\n"
    )
    console.print(escape(text), soft_wrap=True, highlight=False)


def one(options: argparse.Namespace, console: Console) -> int:
    if options.list:
        program = edits.apply(generate.generate(options.case), options.edit)
        print(edits.listing(program))
        return 0
    worker = workers.Worker(workers.serve, options.device)
    outcome = workers.ask(worker, options.case, options.edit, options.time_limit)
    worker.stop()
    if options.json:
        print(json.dumps(asdict(outcome), indent=1))
    else:
        show(outcome, options.device, console)
    return 1 if outcome.failed else 0


def fuzz(options: argparse.Namespace, device: str, console: Console) -> dict:
    """Runs all cases on a device; the summary."""
    failures, counts, reasons = [], Counter(), Counter()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(device, total=None)
        for outcome in workers.run(
            numbers(options),
            device,
            options.jobs,
            options.time_limit,
            options.minimise,
        ):
            counts[outcome.status] += 1
            if outcome.status == "skip":
                reasons[outcome.message.split(":")[0]] += 1
            if outcome.failed:
                failures.append(outcome)
                show(outcome, device, console)
            status = ", ".join(f"{count} {name}" for name, count in counts.items())
            bar.update(task, description=f"{device}: {status}")
    return {
        "device": device,
        "seed": options.seed,
        "cases": counts.total(),
        "outcomes": dict(counts),
        "skipped": dict(reasons),
        "failed": [asdict(outcome) for outcome in failures],
    }


def main() -> int:
    options = parse()
    console = Console(stderr=options.json)
    if options.case is not None:
        return one(options, console)
    devices = [options.device]
    if options.device == "all":
        devices = [f"opencl:{index}" for index in range(torch.opencl.device_count())]
        if not devices:
            console.print(
                "no OpenCL device: `python -m torch_opencl.diagnose` says why"
            )
            return 2
    summaries = [fuzz(options, device, console) for device in devices]
    if options.json:
        print(json.dumps(summaries, indent=1))
    for summary in summaries:
        shown = {**summary, "failed": len(summary["failed"])}
        for name, value in shown.items():
            console.print(escape(f"{name}: {value}"), soft_wrap=True, highlight=False)
    return 1 if any(summary["failed"] for summary in summaries) else 0


if __name__ == "__main__":
    sys.exit(main())
