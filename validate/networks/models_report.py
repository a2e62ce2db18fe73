"""Results of validate_models.py: kept as JSON, shown as tables."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from networks.step import MOST_FLIPS
from rich.table import Table
from tolerance import FLOOR_EPSILONS, MULTIPLE


@dataclass
class Row:
    """Of one network on one device. Ratios are shares of the limit, of the worst
    tensor of a stage; memory is in bytes. ``more_draws`` are tensors that passed by
    another draw of the CPU's error only."""

    network: str
    family: str
    device: str
    input: str = ""
    parameters: int = 0
    passed: bool = False
    ratios: dict[str, float] = field(default_factory=dict)
    tensors: int = 0
    flips: int = 0
    more_draws: int = 0
    fallbacks: int = 0
    device_seconds: float = 0.0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    peak_memory: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def worst(self) -> float:
        return max(self.ratios.values(), default=float("inf"))


class Report:
    """Rows of any number of runs; a row replaces that of an earlier run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[tuple[str, str], Row] = {}
        self.names: dict[str, str] = {}

    @classmethod
    def load(cls, folder: Path | None) -> Report:
        if folder is None:
            return cls(None)
        folder.mkdir(parents=True, exist_ok=True)
        report = cls(folder / "report.json")
        if report._path.exists():
            document = json.loads(report._path.read_text())
            report.names = document["devices"]
            for entry in document["rows"]:
                row = Row(**entry)
                report._rows[row.network, row.device] = row
        return report

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def of(self, device: str, networks: list[str]) -> list[Row]:
        pairs = ((name, device) for name in networks)
        return [self._rows[pair] for pair in pairs if pair in self._rows]

    def add(self, row: Row) -> None:
        self._rows[row.network, row.device] = row
        if self._path is not None:
            document = {"devices": self.names, "rows": [asdict(r) for r in self.rows]}
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(json.dumps(document, indent=1) + "\n")
            os.replace(temporary, self._path)


def table(rows: list[Row], only_failures: bool = False) -> Table:
    result = Table()
    for heading in (
        "network",
        "input",
        "worst",
        "fallbacks",
        "device s",
        "CPU s",
        "MiB",
        "",
    ):
        result.add_column(heading, overflow="fold")
    for row in rows:
        if only_failures and row.passed:
            continue
        verdict = "[green]pass[/green]" if row.passed else "[red]FAIL[/red]"
        result.add_row(
            row.network,
            row.input,
            f"{row.worst:.0%}",
            str(row.fallbacks),
            f"{row.device_seconds:.1f}",
            f"{row.cpu_seconds:.1f}",
            f"{row.peak_memory / 2**20:.0f}",
            verdict,
        )
    return result


def sentence(rows: list[Row], device: str) -> str:
    passed = sum(row.passed for row in rows)
    fallbacks = sum(row.fallbacks for row in rows)
    tensors = sum(row.tensors for row in rows)
    return (
        f"{device}: {passed} of {len(rows)} networks pass, {fallbacks} fallbacks; "
        f"{_more_draws(rows)} of {tensors} tensors by another draw"
    )


def _more_draws(rows: list[Row]) -> str:
    names = [row.network for row in rows if row.more_draws]
    count = sum(row.more_draws for row in rows)
    return f"{count} ({', '.join(names)})" if names else str(count)


def summary() -> list[str]:
    """What a report shows, in three sentences."""
    return [
        "Each row is a training step of one of torchvision's networks on an OpenCL "
        "device, compared with the CPU.",
        "The worst tensor's error is given as a share of what is allowed, so that "
        "up to 100% passes; what is allowed follows from the CPU's own float32 error "
        "against float64.",
        "A fallback would be an op that ran on the CPU instead of the device.",
    ]


def how() -> list[str]:
    """How a row is made, in paragraphs."""
    return [
        "A network runs forward, loss, backward and one SGD step on the device. The "
        "CPU repeats that in float32 and in float64, along the device's own decisions.",
        "For each output, gradient, updated parameter and buffer, the relative L2 "
        "distance to float64 is compared with a limit. "
        f"The limit is {MULTIPLE:g} times the distance of the CPU's own float32 "
        "result: another order of summation, and another rounding of exp or tanh, stay "
        f"within that. {FLOOR_EPSILONS:g} roundings are added for tensors that the CPU "
        "happens to get nearly exactly. A loss is a single number that may be exact by "
        "luck, so it is also allowed the median error of the CPU's gradients.",
        "Where a tensor is beyond its limit, the CPU's distance for parameters and "
        "inputs that are off by a rounding counts as well. That is another draw of its "
        "error; at most four are made.",
        "A decision is the side of a ReLU, the maximum of a pooling window, a "
        "comparison, a rank, or a box that is suppressed. It may differ from float64's "
        f"by rounding only, and at most {MOST_FLIPS:.0%} of them may. "
        "Random choices, as of anchors, are the device's on both sides; dropout and "
        "stochastic depth are off.",
        "Detection models also run in evaluation. Their batch normalisation is "
        "calibrated by three training forwards, for an untrained network's signals "
        "die otherwise. Networks with more than 250 million parameters have every "
        "eighth tensor's update compared, all others everything.",
        "Times are of a first step, with compiling kernels, and not of an idle machine.",
    ]


def markdown(report: Report) -> str:
    devices = sorted(report.names)
    lines = [
        "# Networks",
        "",
        *summary(),
        "",
        *(
            f"- {sentence([r for r in report.rows if r.device == device], device)} "
            f"({report.names[device]})"
            for device in devices
        ),
        "",
        "Of a device: the worst error, seconds of a first step there and on the CPU, "
        "and the device's peak memory in MiB.",
        "",
        "| network, input | parameters (M) | " + " | ".join(devices) + " |",
        "|---" * (2 + len(devices)) + "|",
    ]
    by_network: dict[str, dict[str, Row]] = {}
    for row in report.rows:
        by_network.setdefault(row.network, {})[row.device] = row
    for network, rows in sorted(by_network.items()):
        some = next(iter(rows.values()))
        cells = [f"{network}, {some.input}", f"{some.parameters / 1e6:.1f}"]
        for device in devices:
            row = rows.get(device)
            cells.append("" if row is None else _cell(row))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", '<details markdown="1">', "<summary>How a row is made</summary>", ""]
    for paragraph in how():
        lines += [paragraph, ""]
    lines += [
        "Written by `validate/validate_models.py --docs`.",
        "",
        "</details>",
    ]
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    if not row.passed:
        reason = row.failures[0] if row.failures else "failed"
        return "**fails**: " + reason.splitlines()[0][:120].replace("|", "/")
    return (
        f"{row.worst:.0%}, {row.device_seconds:.1f} / {row.cpu_seconds:.1f}, "
        f"{row.peak_memory / 2**20:.0f}"
    )
