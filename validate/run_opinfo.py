"""Judges the device by torch's own databases: op_db, module_db and optim_db.

    python validate/run_opinfo.py --device opencl:0 --out opinfo.json
    python validate/run_opinfo.py --ops 'sort' 'topk' --dtypes float32 int64
    python validate/run_opinfo.py --databases module optim --device opencl:1
    python validate/run_opinfo.py --out opinfo.json --resume

Every case (a name, a question, a dtype) is compared with the CPU in a worker
process: a crash or a hang loses only itself. Prints what failed and a table of
shares; exits with 1 unless everything passed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

# The policy is read when the extension loads: fallbacks are counted, no more.
os.environ["TORCH_OPENCL_FALLBACK"] = "silent"

import torch_opencl  # noqa: F401
from conformance import cases, summary, workers
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_SAVE_SECONDS = 10


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument(
        "--databases", nargs="+", default=[], choices=("op", "module", "optim")
    )
    parser.add_argument(
        "--ops",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="names in the databases, such as 'nn.functional.*'; all by default",
    )
    parser.add_argument(
        "--questions",
        nargs="+",
        default=[],
        metavar="QUESTION",
        help=f"of {', '.join(cases.OP_QUESTIONS)} (ops), train, eval (modules), "
        "single, foreach, fused (optimizers); all by default",
    )
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32"], choices=[*cases.DTYPES, "all"]
    )
    parser.add_argument("--samples", type=int, help="at most so many a case")
    parser.add_argument("--seed", type=int, default=0, help="of inputs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--time-limit", type=float, default=120, help="seconds a case")
    parser.add_argument("--out", type=Path, metavar="FILE", help="outcomes as JSON")
    parser.add_argument(
        "--resume", action="store_true", help="skip what FILE has an outcome for"
    )
    parser.add_argument("--json", action="store_true", help="shares as JSON on stdout")
    options = parser.parse_args(arguments)
    if options.resume and not options.out:
        parser.error("--resume needs --out")
    if "all" in options.dtypes:
        options.dtypes = []
    return options


def main() -> int:
    options = parse()
    console = Console(stderr=options.json)
    wanted = cases.select(
        options.databases, options.ops, options.questions, options.dtypes
    )
    outcomes = {}
    if options.resume and options.out.exists():
        outcomes = summary.load(options.out)
    todo = [case for case in wanted if str(case) not in outcomes]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    saved = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(options.device, total=len(todo))
        for outcome in workers.run(
            todo,
            options.device,
            options.samples,
            options.seed,
            options.jobs,
            options.time_limit,
        ):
            outcomes[outcome.case] = outcome
            bar.advance(task)
            if outcome.status not in ("pass", "skip"):
                message = outcome.message.strip()[:2000]
                text = escape(f"{outcome.status} {outcome.case}: {message}")
                console.print(text, soft_wrap=True, highlight=False)
            if options.out and time.monotonic() - saved > _SAVE_SECONDS:
                summary.save(options.out, options.device, options.seed, outcomes)
                saved = time.monotonic()
    if options.out:
        summary.save(options.out, options.device, options.seed, outcomes)
    asked = [outcomes[str(case)] for case in wanted]
    if options.json:
        shares = {"/".join(k): v for k, v in summary.shares(asked).items()}
        failed = [asdict(o) for o in asked if o.status not in ("pass", "skip")]
        print(json.dumps({"shares": shares, "failed": failed}, indent=1))
    else:
        _print_fallbacks(console, asked)
        console.print(summary.table(asked))
    return 0 if all(o.status in ("pass", "skip") for o in asked) else 1


def _print_fallbacks(console: Console, asked: list[workers.Outcome]) -> None:
    names: dict[str, set[str]] = {}
    for outcome in asked:
        for op in outcome.fallbacks:
            names.setdefault(op, set()).add(outcome.case.split("/")[1])
    for op, users in sorted(names.items(), key=lambda item: -len(item[1])):
        some = ", ".join(sorted(users)[:5])
        console.print(f"on the CPU: {op} ({len(users)}: {some})", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
