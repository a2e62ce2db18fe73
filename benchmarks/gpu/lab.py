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
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import tools

if TYPE_CHECKING:
    from .compile import Compiled, Program

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
    """A trace a network, mode and device (of targets.RECORDED), kept under
    build/gpu/traces."""
    from . import trace, zoo
    from .targets import RECORDED

    recorder = tools.build_recorder()
    folder = tools.BUILD / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    result = []
    for network in networks:
        for mode in modes:
            if not zoo.batch_of(network, mode):
                continue
            for device in RECORDED:
                name = trace.name_of(network, mode, device)
                file = folder / f"{name}.json"
                if again or not file.exists():
                    say(f"tracing {name}")
                    trace.trace(network, mode, device, recorder, file)
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


def compile_for(
    traces: list[dict[str, Any]],
    targets: Sequence[str],
    jobs: int,
    chosen: Callable[[list[Program]], list[Program]] = lambda programs: programs,
) -> tuple[list[Program], list[Compiled]]:
    """Each device's programs, or those chosen of them, for its targets."""
    from .compile import Compilers
    from .targets import RECORDED, recorded_as

    programs: dict[str, Program] = {}
    compiled: list[Compiled] = []
    for device in RECORDED:
        own = chosen(programs_of([t for t in traces if t["device"] == device]))
        names = [name for name in targets if recorded_as(name) == device]
        say(f"{len(own)} programs, {len(names)} targets: {' '.join(names)}")
        progress = _quietly(len(own))
        compiled += Compilers().compile(own, names, progress=progress, jobs=jobs)
        programs |= {program.key: program for program in own}
    return list(programs.values()), compiled


def main() -> int:
    options = parse()
    started = time.perf_counter()
    if not options.no_install:
        tools.install(compilers_only=options.gate)
    if options.gate or options.update_baseline:
        from . import gate

        return gate.main(options.update_baseline)
    from . import measured, report
    from .targets import TARGETS
    from .zoo import ALL

    if options.measure or options.card:
        return measured.main(options)
    networks = options.networks or list(ALL)
    traces = traces_of(networks, options.again)
    if options.steps == ["trace"]:
        return 0
    targets = options.targets or list(TARGETS)
    programs, compiled = compile_for(traces, targets, os.cpu_count() or 1)
    if options.steps == ["trace", "compile"]:
        return 0
    references = report.references(programs, compiled)
    record = report.collect(traces, programs, compiled, references, options.steps)
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
