"""What a check found, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from networks.step import Result
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def wide_console(stderr: bool = False) -> Console:
    """As wide as the terminal; in a log, as wide as the tables need."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=132)


def verdict(passed: bool) -> str:
    return "[green]pass[/green]" if passed else "[red]FAIL[/red]"


def stage_table(result: Result) -> Table:
    table = Table(title=f"{result.network} on {result.device}")
    table.add_column("stage")
    table.add_column("tensors", justify="right")
    table.add_column("worst tensor", overflow="fold")
    for heading in ("error", "CPU float32's", "limit"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for stage in result.stages:
        worst = stage.worst
        table.add_row(
            stage.stage,
            str(len(stage.comparisons)),
            worst.name,
            f"{worst.error:.2e}",
            f"{worst.baseline:.2e}",
            f"{worst.limit:.2e}",
            verdict(stage.passed),
        )
    return table


def failures(result: Result) -> list[str]:
    lines = [result.error] if result.error else []
    lines += [f"fallback to the CPU: {op} ({n}x)" for op, n in result.fallbacks.items()]
    for stage in result.stages:
        lines += [f"{stage.stage}: {c}" for c in stage.comparisons if not c.passed]
    return lines


def print_result(console: Console, result: Result, dropouts: int) -> None:
    if result.stages:
        console.print(stage_table(result))
    for line in failures(result):
        console.print(f"[red]{escape(line)}[/red]", soft_wrap=True)
    console.print(
        "error: relative L2 distance to float64 on the CPU, which takes the "
        f"device's side at {result.flips} ReLU and pooling elements within rounding "
        "of a kink"
    )
    if dropouts:
        console.print(
            f"{dropouts} dropout layers had their probability set to 0: the CPU and "
            "the device draw different random numbers"
        )
    console.print(
        f"fallbacks to the CPU: {sum(result.fallbacks.values())}; "
        f"{verdict(result.passed)}"
    )


def summary_table(results: list[Result]) -> Table:
    """One row a network and device; the share of the limit that was used."""
    stages = list(dict.fromkeys(s.stage for r in results for s in r.stages))
    table = Table(title="error as a share of what is allowed, worst tensor")
    for heading in ("network", "device", *stages, "fallbacks", "seconds", ""):
        table.add_column(heading)
    for result in results:
        by_stage = {stage.stage: stage for stage in result.stages}
        shares = [
            f"{by_stage[stage].worst.ratio:.0%}" if stage in by_stage else "-"
            for stage in stages
        ]
        table.add_row(
            result.network,
            result.device,
            *shares,
            str(sum(result.fallbacks.values())),
            f"{result.seconds:.1f}",
            verdict(result.passed),
        )
    return table


def write_json(path: str, results: list[Result]) -> None:
    """To a file, or to standard output for "-"."""
    records = [{**asdict(result), "passed": result.passed} for result in results]
    text = json.dumps(records, indent=1)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n")
