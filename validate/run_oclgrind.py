"""Runs kernels in oclgrind, which simulates a device and reports accesses out of bounds
and data races between work-items.

    python validate/run_oclgrind.py --classes cpu gpu --out report/oclgrind.json
    python validate/run_oclgrind.py --tests softmax gemm --cases 5
    python validate/run_oclgrind.py --tests op_table --json

Takes the smallest part of the kernel tests: a few cases of each test in validate/ops,
of the op tables one an op. Guard mode is on, so that writes between the tensors of one
buffer are reported, too. Prints what oclgrind reports, by kernel; which tests fail, or
are stopped because they take too long in a simulator; which are left out and why; the
slowest; and the kernels that were never launched. Exits with 1 where there is a report,
a test failed or was stopped, or a run of all tests in both classes did not launch a
kernel, for which oclgrinding/cases.py has no reason. Exits with 2 where arguments are
wrong or oclgrind is not installed (Debian, Ubuntu: apt install oclgrind).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from oclgrinding import cases, simulator
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

_NOT_DONE = ("failed", "stopped")
_SHOWN = 10  # of the slowest tests


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--classes", nargs="+", default=["cpu", "gpu"], choices=("cpu", "gpu")
    )
    stems = cases.stems()
    parser.add_argument(
        "--tests",
        nargs="+",
        default=stems,
        choices=stems,
        metavar="STEM",
        help=f"files test_<STEM>.py: {', '.join(stems)}; all by default",
    )
    parser.add_argument("--cases", type=int, default=1, help="of a test")
    parser.add_argument("--seed", type=int, default=0, help="which cases")
    parser.add_argument("--time-limit", type=int, default=300, help="seconds a case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="everything as JSON")
    parser.add_argument("--json", action="store_true", help="the summary on stdout")
    options = parser.parse_args(arguments)
    if options.cases < 1:
        parser.error("--cases must be at least 1")
    if not simulator.LIBRARY.exists():
        parser.error(f"{simulator.LIBRARY} is missing: apt install oclgrind")
    return options


def is_full(options: argparse.Namespace) -> bool:
    everything = set(options.tests) == set(cases.stems())
    return everything and set(options.classes) == {"cpu", "gpu"}


def status(runs: list[simulator.Run], idle: list[str]) -> int:
    """``idle``: the kernels that had to be launched, and were not."""
    lost = [o for run in runs for o in run.outcomes if o.status in _NOT_DONE]
    return 1 if idle or lost or any(run.reports for run in runs) else 0


def slowest(runs: list[simulator.Run]) -> list[str]:
    outcomes = [(run.device_class, o) for run in runs for o in run.outcomes]
    outcomes.sort(key=lambda pair: pair[1].seconds, reverse=True)
    return [f"{o.seconds:.0f} s: {where} {o.test}" for where, o in outcomes[:_SHOWN]]


def summary(runs: list[simulator.Run]) -> Table:
    table = Table(title="kernels in oclgrind")
    for heading in ("class", "tests", "passed", "reports", "not passed", "kernels"):
        table.add_column(heading, justify="right" if heading != "class" else "left")
    for run in runs:
        table.add_row(
            run.device_class,
            str(len(run.outcomes)),
            str(sum(o.status == "passed" for o in run.outcomes)),
            str(len(run.reports)),
            str(sum(o.status not in ("passed", "skipped") for o in run.outcomes)),
            str(len(run.kernels)),
        )
    return table


def main() -> int:
    options = parse()
    console = Console(stderr=options.json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    runs = []
    with Progress(*columns, console=Console(stderr=True)) as bar:
        for device_class in options.classes:
            run = simulator.Run(device_class)
            runs.append(run)
            task = bar.add_task(f"{device_class}: choosing cases", total=None)
            chosen = cases.choose(
                options.tests, device_class, options.cases, options.seed
            )
            bar.update(task, total=sum(map(len, chosen.values())))
            for stem, ids in chosen.items():
                bar.update(task, description=f"{device_class}: {stem}")
                for outcome in run.tests(ids, options.time_limit):
                    bar.advance(task)
                    if outcome.status not in ("passed", "skipped"):
                        text = f"{device_class} {outcome.status}: {outcome.test}: "
                        console.print(escape(text + outcome.reason), soft_wrap=True)
                for report in run.new_reports():
                    console.print(escape(f"{device_class} {stem}: {report}"))
    launched = set().union(*(run.kernels for run in runs))
    idle = sorted(cases.kernels() - launched - set(cases.LEFT_OUT_KERNELS))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        content = {"runs": [asdict_of(run) for run in runs], "not_launched": idle}
        options.out.write_text(json.dumps(content, indent=1))
    reports = sum(len(run.reports) for run in runs)
    if options.json:
        shares = [
            {
                **asdict_of(run),
                "outcomes": len(run.outcomes),
                "kernels": len(run.kernels),
                "slowest": slowest([run]),
            }
            for run in runs
        ]
        print(json.dumps({"runs": shares, "not_launched": idle}, indent=1))
    else:
        console.print(summary(runs))
        names = ", ".join(idle)
        console.print(f"not launched by these cases ({len(idle)}): {names}")
        for stem in options.tests:
            reasons = {}
            for device_class in options.classes:
                reasons |= cases.left_out(stem, device_class)
            for test, reason in reasons.items():
                console.print(f"left out: test_{stem}.py::{test}: {reason}")
        for kernel, reason in cases.LEFT_OUT_KERNELS.items():
            console.print(f"left out: {kernel}: {reason}")
    for line in slowest(runs):
        console.print(escape(line), soft_wrap=True)
    counts = Counter(o.status for run in runs for o in run.outcomes)
    words = [f"{counts[word]} tests {word}" for word in _NOT_DONE]
    console.print(", ".join([f"{reports} reports", *words]))
    return status(runs, idle if is_full(options) else [])


def asdict_of(run: simulator.Run) -> dict:
    return {
        "device_class": run.device_class,
        "reports": run.reports,
        "kernels": sorted(run.kernels),
        "outcomes": [asdict(outcome) for outcome in run.outcomes],
    }


if __name__ == "__main__":
    sys.exit(main())
