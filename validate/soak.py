"""Trains for minutes or hours, and says whether memory, programs and speed stayed.

    python validate/soak.py --minutes 60 --device opencl:1
    python validate/soak.py --minutes 3 --work convolutions threads --out report/
    python validate/soak.py --minutes 0.2 --inject device-leak     finds it, exits with 1

Rounds of training steps with changing shapes, of threads, streams and running out of
memory; the first ones, which build the programs, are not counted. After each, the
process's resident set, memory_allocated, memory_reserved, the
number of programs and the time are noted. The second quarter of the run is compared
with the last one. Writes soak-<device>.json and .png into --out; exits with 0 where
nothing grew and every result was right, 1 otherwise, 2 where arguments are wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch_opencl  # noqa: F401
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from soaking import work
from soaking.judge import MIB, Finding, Recorder, Sample, judge, plot


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, help="so many, however long they take")
    parser.add_argument("--device", default="opencl:0", type=torch.device)
    parser.add_argument(
        "--work", nargs="+", default=list(work.KINDS), choices=work.KINDS
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("report"), metavar="FOLDER")
    parser.add_argument("--json", action="store_true", help="the verdict on stdout")
    parser.add_argument(
        "--inject", choices=work.FAULTS, help="make a fault, which is to be found"
    )
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or (options.rounds is not None and options.rounds <= 0):
        parser.error("--minutes and --rounds must be positive")
    if options.device.type != "opencl":
        parser.error("--device must be an opencl device")
    return options


def run(options: argparse.Namespace, console: Console) -> tuple[list[Sample], str]:
    """Samples, and what was wrong with a result, which ends the run."""
    torch.manual_seed(options.seed)
    device = options.device
    with torch.opencl.device(device):
        steps = work.steps(options.work, options.inject, device)
        recorder = Recorder(device)
        total = options.rounds or options.minutes * 60
        start = time.monotonic()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(str(device), total=total)
            number = spent = 0
            while spent < total:
                try:
                    for step in steps:
                        step(number)
                except Exception as error:
                    text = f"round {number}: {type(error).__name__}: {error}"
                    return recorder.samples, text
                number += 1
                if number <= work.PERIOD:  # not every shape has been seen
                    recorder = Recorder(device)
                    start = time.monotonic()
                    bar.update(task, description=f"{device}: warming up, {number}")
                    continue
                recorder.sample()
                last = recorder.samples[-1]
                rounds = len(recorder.samples)
                spent = rounds if options.rounds else time.monotonic() - start
                bar.update(
                    task,
                    completed=spent,
                    description=f"{device}: {rounds} rounds, {last.rss / MIB:.0f} MiB, "
                    f"{last.ooms} times out of memory",
                )
    return recorder.samples, ""


def table(findings: list[Finding], title: str) -> Table:
    result = Table(title=title)
    result.add_column("figure")
    for heading in ("second quarter", "last quarter", "limit"):
        result.add_column(heading, justify="right")
    result.add_column("")
    for finding in findings:
        result.add_row(
            finding.figure,
            *(
                f"{value:.4g} {finding.unit}"
                for value in (finding.early, finding.late, finding.limit)
            ),
            "[green]pass[/green]" if finding.passed else "[red]FAIL[/red]",
        )
    return result


def main() -> int:
    options = parse()
    console = Console(stderr=options.json)
    samples, error = run(options, Console(stderr=True))
    try:
        findings = judge(samples)
    except ValueError as too_few:
        findings = []
        error = error or str(too_few)
    passed = not error and all(finding.passed for finding in findings)
    properties = torch.opencl.get_device_properties(options.device)
    rounds = len(samples)
    verdict = {
        "device": f"{properties.name}, {properties.platform_version}",
        "passed": passed,
        "error": error,
        "minutes": samples[-1].seconds / 60 if samples else 0,
        "rounds": rounds,
        "ooms": samples[-1].ooms if samples else 0,
        "findings": [{**asdict(f), "passed": f.passed} for f in findings],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = f"soak-{str(options.device).replace(':', '')}"
    report = options.out / f"{stem}.json"
    report.write_text(
        json.dumps(
            {
                **verdict,
                "torch": torch.__version__,
                "work": options.work,
                "seed": options.seed,
                "samples": [asdict(sample) for sample in samples],
            },
            indent=1,
        )
    )
    if samples:
        plot(
            samples, f"{verdict['device']}: {rounds} rounds", report.with_suffix(".png")
        )
    if options.json:
        print(json.dumps(verdict, indent=1))
    else:
        title = f"{rounds} rounds in {verdict['minutes']:.1f} minutes, "
        title += f"{verdict['ooms']} times out of memory"
        console.print(table(findings, title))
    if error:
        console.print(f"[red]{escape(error)}[/red]", soft_wrap=True, highlight=False)
    console.print(f"{'nothing grew' if passed else 'not passed'}; see {report}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
