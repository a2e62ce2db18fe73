"""The result of a conformance run: a JSON file, and a table of shares."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from conformance.workers import Outcome
from rich.table import Table


def load(path: Path) -> dict[str, Outcome]:
    """Case -> outcome of an earlier run."""
    return {
        entry["case"]: Outcome(**entry)
        for entry in json.loads(path.read_text())["outcomes"]
    }


def save(path: Path, device: str, seed: int, outcomes: dict[str, Outcome]) -> None:
    """Replaces the file as a whole, so that a run cut short leaves a good one."""
    temporary = path.with_suffix(".tmp")
    document = {
        "device": device,
        "seed": seed,
        "outcomes": [asdict(outcomes[case]) for case in sorted(outcomes)],
    }
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(temporary, path)


def shares(outcomes: list[Outcome]) -> dict[tuple[str, str], dict[str, int]]:
    """(database, dtype) -> numbers of names, of those that pass all that was
    asked, that pass without the CPU, and that are wrong."""
    groups: dict = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        database, name, _, dtype = outcome.case.split("/")
        if outcome.status != "skip":
            groups[database, dtype][name].append(outcome)
    counts = {}
    for key, names in groups.items():
        passed = [
            all(outcome.status == "pass" for outcome in asked)
            for asked in names.values()
        ]
        native = [
            all(outcome.status == "pass" and not outcome.fallbacks for outcome in asked)
            for asked in names.values()
        ]
        counts[key] = {
            "names": len(names),
            "pass": sum(passed),
            "native": sum(native),
            "wrong": len(names) - sum(passed),
        }
    return counts


def table(outcomes: list[Outcome]) -> Table:
    result = Table("database", "dtype", "names", "pass", "native", "not passed")
    for (database, dtype), count in sorted(shares(outcomes).items()):
        result.add_row(
            database,
            dtype,
            str(count["names"]),
            f"{count['pass'] / count['names']:.1%}",
            f"{count['native'] / count['names']:.1%}",
            str(count["wrong"]),
        )
    return result
