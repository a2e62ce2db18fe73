"""Compares two builds of torch_opencl, burst by burst in turns.

    python benchmarks/revisions.py --before ../older
    python benchmarks/revisions.py --before ../older --of networks --match vgg16
    python benchmarks/revisions.py --before ../older --of ops --seconds 5 --json a.json

Each build is a checkout in which `make build` ran, and is loaded by a process of its
own; both run this checkout's benchmarks. A ratio is of two bursts, one after the
other, and above 1 where the build after is slower. Where memory lies differs from one
process to the next and moves short calls by some percent, so the processes are started
anew several times: the table has the median of all ratios, and the least and the
greatest median of a start. A row is called slower or faster where all starts agree.
Comparing a build with itself shows what this machine can tell apart.

overhead   the host's time of an op on tiny tensors beyond the driver (overhead.py):
           one number a start, the least of its bursts. Disturbances only add to it, so
           its ratio is that of the lower quartiles; give it --starts 40
networks   a step of inference and of training, the device's work included
ops        the layers and shapes of ops.py, the device's work included
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import beyond_driver
import measure
import torch_opencl
from case import Run
from rich.progress import Progress
from rich.table import Table


def works_of(kind: str, device: str) -> dict[str, Callable[[], Run]]:
    """What is to be compared, by name; each is made when its turn comes."""
    if kind == "ops":
        import ops

        cases = ops.cases_of(ops.parse([]))
        return {f"{c.family} {c.name}": lambda c=c: c.make(device) for c in cases}
    import networks

    options = networks.parse([])
    place = networks.Place(device, options.memory_format)
    return {
        f"{name} {mode}": lambda name=name, mode=mode: networks.step_of(
            name, mode, place, options
        )
        for name in options.models
        for mode in networks.MODES
    }


def serve(kind: str, device: str) -> None:
    """Answers lines of JSON on standard input: names, a work to make, calls to time."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    works = works_of(kind, device)
    function: Run = lambda: None  # noqa: E731
    for line in sys.stdin:
        request = json.loads(line)
        answer: object = None
        if request["do"] == "list":
            answer = {"file": torch_opencl.__file__, "works": list(works)}
        elif request["do"] == "make":
            del function
            measure.release([device])
            function = works[request["work"]]()
            answer = measure.burst_of(function, device)
        elif request["do"] == "time":
            calls = request["calls"]
            for _ in range(int(calls * measure.WARMING_SHARE)):
                function()
            answer = measure.seconds_of(function, device, calls)
        # Threads that still spin would slow the other build's burst.
        measure.wait_for_idle_threads()
        print(json.dumps(answer), file=answers, flush=True)


def environment_of(checkout: Path) -> dict[str, str]:
    paths = [str(checkout.resolve() / "python"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


class Build:
    """A process that has loaded the build of a checkout."""

    def __init__(self, checkout: Path, options: argparse.Namespace) -> None:
        command = [sys.executable, __file__, "--serve", "--of", options.of]
        self._process = subprocess.Popen(
            [*command, "--device", options.device],
            env={**os.environ, **environment_of(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        loaded = self.request(do="list")
        self.works: list[str] = loaded["works"]
        if not Path(loaded["file"]).is_relative_to(checkout.resolve()):
            raise SystemExit(f"{loaded['file']} was loaded, not that of {checkout}")

    def request(self, **what: object):
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a build's process ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def builds(options: argparse.Namespace) -> Iterator[tuple[Build, Build]]:
    started: list[Build] = []
    try:
        for checkout in (options.before, options.after):
            started.append(Build(checkout, options))
        yield started[0], started[1]
    finally:
        for build in started:
            build.close()


def joined(starts: list[list[float]]) -> list[float]:
    return list(itertools.chain.from_iterable(starts))


def lower_quartile(values: list[float]) -> float:
    return statistics.quantiles(values, n=4, method="inclusive")[0]


@dataclass
class Row:
    """Seconds of a call by build, one a round, in lists by start."""

    work: str
    before: list[list[float]] = field(default_factory=list)
    after: list[list[float]] = field(default_factory=list)

    def starts(self) -> list[float]:
        """The median ratio of each start."""
        pairs = zip(self.after, self.before, strict=True)
        return [measure.ratio(before, after) for after, before in pairs]

    def ratio(self) -> float:
        before, after = joined(self.before), joined(self.after)
        if 1 < len(before) == len(self.before):
            return lower_quartile(after) / lower_quartile(before)
        return measure.ratio(before, after)

    def verdict(self, limit: float) -> str:
        starts = self.starts()
        if min(starts) > 1 + limit:
            return "slower"
        return "faster" if max(starts) < 1 / (1 + limit) else ""


def compare(row: Row, pair: tuple[Build, Build], seconds: float) -> None:
    """Times of one work in both builds, for one start."""
    calls = max(build.request(do="make", work=row.work) for build in pair)
    times: tuple[list[float], list[float]] = ([], [])
    started = time.perf_counter()
    while len(times[0]) < 3 or time.perf_counter() - started < seconds:
        # Which build comes first changes, so that neither always follows the other.
        first = len(times[0]) % 2
        for which in (first, 1 - first):
            times[which].append(pair[which].request(do="time", calls=calls))
    row.before.append(times[0])
    row.after.append(times[1])


def table_of(rows: list[Row], options: argparse.Namespace) -> Table:
    table = Table(title=f"{options.of} on {options.device}, after / before")
    for column in ("work", "before us", "after us", "ratio", "of starts", "rounds", ""):
        table.add_column(column, justify="left" if column == "work" else "right")
    for row in rows:
        medians = [statistics.median(joined(t)) for t in (row.before, row.after)]
        starts = row.starts()
        table.add_row(
            row.work,
            *(f"{median * 1e6:.2f}" for median in medians),
            f"{row.ratio():.3f}",
            f"{min(starts):.3f}-{max(starts):.3f}",
            str(len(joined(row.before))),
            row.verdict(options.limit),
        )
    mean = measure.geometric_mean(row.ratio() for row in rows)
    table.add_row("geometric mean", "", "", f"{mean:.3f}")
    return table


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument(
        "--after", type=Path, metavar="CHECKOUT", default=here, help="default: this one"
    )
    parser.add_argument(
        "--of", choices=("overhead", "networks", "ops"), default="overhead"
    )
    parser.add_argument("--match", default="", help="works whose name has it, a regex")
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument(
        "--seconds", type=float, default=5, help="of a work and start, both builds"
    )
    parser.add_argument("--starts", type=int, default=3, help="of both processes")
    parser.add_argument(
        "--limit", type=float, default=0.02, help="what is called slower or faster"
    )
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - for stdout")
    parser.add_argument("--quick", action="store_true", help="small and inaccurate")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return options
    if options.before is None:
        parser.error("--before is required")
    for checkout in (options.before, options.after):
        if not list(checkout.glob("python/torch_opencl/_C*")):
            parser.error(f"{checkout} is no checkout in which `make build` ran")
    if options.quick:
        options.seconds, options.starts = 0.5, 2
    return options


def compare_overhead(options: argparse.Namespace, progress: Progress) -> list[Row]:
    rows: dict[str, Row] = {}
    task = progress.add_task("comparing", total=options.starts, doing="overhead")
    for start in range(options.starts):
        for which in ("before", "after") if start % 2 else ("after", "before"):
            environment = environment_of(getattr(options, which))
            found = beyond_driver.measured(options.device, options.quick, environment)
            for work, seconds in found.items():
                if re.search(options.match, work):
                    row = rows.setdefault(work, Row(work))
                    getattr(row, which).append([seconds])
        progress.advance(task)
    return list(rows.values())


def compare_works(options: argparse.Namespace, progress: Progress) -> list[Row]:
    rows: dict[str, Row] = {}
    task = progress.add_task("comparing", total=None, doing="")
    for start in range(options.starts):
        with builds(options) as pair:
            works = [w for w in pair[0].works if re.search(options.match, w)]
            progress.update(task, total=options.starts * len(works))
            for work in works:
                progress.update(task, doing=f"{work}, start {start + 1}")
                compare(rows.setdefault(work, Row(work)), pair, options.seconds)
                progress.advance(task)
    return list(rows.values())


def main() -> int:
    options = parse()
    if options.serve:
        serve(options.of, options.device)
        return 0
    console = measure.console_of(options)
    with measure.progress_bar(console) as progress:
        by_kind = compare_overhead if options.of == "overhead" else compare_works
        rows = by_kind(options, progress)
    console.print(table_of(rows, options))
    if options.json:
        record = {
            "benchmark": "revisions",
            "of": options.of,
            "machine": measure.describe_machine([options.device, "cpu"]),
            "builds": {w: str(getattr(options, w)) for w in ("before", "after")},
            "rows": [
                {**asdict(row), "ratio": row.ratio(), "starts": row.starts()}
                for row in rows
            ],
        }
        measure.write_json(options.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
