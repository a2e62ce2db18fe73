"""The GPU laboratory: how this project's kernels for GPUs are, with no GPU at hand.

    make gpu-lab                            # everything; report/gpu.html, docs/gpu.md
    make gpu-gate                           # what continuous integration checks
    export PYTHONPATH=benchmarks
    python -m gpu.lab --networks resnet50 bert --steps trace compile
    python -m gpu.lab --measure opencl:0 --card "RX 6600 XT"

docs/gpu.md says what the numbers mean. With a GPU among the devices, or with
--measure, the networks are timed on it and stand beside what was predicted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import tools

ROOT = tools.HERE.parents[1]
STEPS = ("trace", "compile", "sectors", "peer", "model", "report")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--targets", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument(
        "--again", action="store_true", help="trace what was traced before, too"
    )
    parser.add_argument(
        "--no-install", action="store_true", help="use what is installed"
    )
    parser.add_argument("--gate", action="store_true", help="check, write nothing")
    parser.add_argument("--update-baseline", action="store_true", help="of the gate")
    parser.add_argument("--measure", metavar="DEVICE", help="default: a GPU, if any")
    parser.add_argument("--card", help="that --measure is compared with")
    parser.add_argument("--quick", action="store_true", help="small batches, measured")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def traces_of(
    networks: list[str], again: bool, modes: Sequence[str] = ("infer", "train")
) -> list[dict[str, Any]]:
    """A trace a network and mode, kept under build/gpu/traces."""
    from . import trace, zoo

    recorder = tools.build_recorder()
    folder = tools.BUILD / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    result = []
    for network in networks:
        for mode in modes:
            if not zoo.batch_of(network, mode):
                continue
            file = folder / f"{network}_{mode}.json"
            if again or not file.exists():
                say(f"tracing {network} {mode}")
                trace.trace(network, mode, recorder, file)
            result.append(json.loads(file.read_text()))
    return result


def programs_of(traces: list[dict[str, Any]]):
    """The distinct programs of all traces, in the order of their names."""
    from .compile import Program

    found = {
        program.key: program
        for trace in traces
        for entry in trace["programs"].values()
        for program in [Program(entry["text"], entry["options"])]
    }
    return sorted(found.values(), key=lambda program: (program.name, program.key))


def main() -> int:
    options = parse()
    started = time.perf_counter()
    if not options.no_install:
        tools.install(compilers_only=options.gate)
    if options.gate or options.update_baseline:
        from . import gate

        return gate.main(options.update_baseline)
    from . import measured, report
    from .compile import Compilers
    from .targets import TARGETS
    from .zoo import ALL

    if options.measure or options.card:
        return measured.main(options)
    networks = options.networks or list(ALL)
    traces = traces_of(networks, options.again)
    if options.steps == ["trace"]:
        return 0
    programs = programs_of(traces)
    say(f"{len(programs)} programs, {len(options.targets or TARGETS)} targets")
    compiled = Compilers().compile(
        programs,
        options.targets or list(TARGETS),
        progress=_quietly(len(programs)),
        jobs=os.cpu_count() or 1,
    )
    if options.steps == ["trace", "compile"]:
        return 0
    record = report.collect(traces, programs, compiled, options.steps)
    measured.add_real_gpu(record)
    report.write(record, ROOT)
    say(f"wrote report/gpu.html, gpu.json and docs/gpu.md; {_minutes(started)}")
    return 0


def _quietly(programs: int):
    last = [0.0]

    def progress(text: str) -> None:
        if time.perf_counter() - last[0] > 20:
            last[0] = time.perf_counter()
            say(f"compiling {text} of {programs} programs")

    return progress


def _minutes(started: float) -> str:
    return f"{(time.perf_counter() - started) / 60:.1f} minutes"


if __name__ == "__main__":
    sys.exit(main())
