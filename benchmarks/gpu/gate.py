"""What continuous integration checks of the kernels for GPUs.

The programs of a slice compile for gfx1030, sm_86 and dg2 without spills, those by
matrix units for the targets that have some. No kernel has private memory but those
that baseline.json lists with a reason, with no more bytes than there: the list may
only shrink, and an entry that is no longer needed fails, too, until it is removed
(`gpu.lab --update-baseline` does so). Training steps have no more launches than their
floors. Products wait for no load before they multiply, of 16-bit operands, too. A
compiler that is missing is a fault.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from . import floors, tools, units
from .compile import Compiled, Program
from .targets import RECORDED

TARGETS = ("gfx1030", "sm_86", "dg2")
BASELINE = tools.HERE / "baseline.json"
# Of their training; among them they use what all eight networks use.
NETWORKS = ("resnet50", "mobilenet_v2", "bert", "unet", "lstm")
# Of the programs that are alike in these one is compiled: the others differ in
# how operands lie.
TILE = ("TILE_ROWS", "TILE_COLUMNS", "ITEM_ROWS", "ITEM_COLUMNS", "HAS_TOTALS")
TILE += ("IS_IMAGE", "IS_WEIGHT_GRADIENT")
LOADS_AHEAD = ("product_gpu", "product_matrix")
JOBS = 2
UNKNOWN = "not looked into yet"

# By target and kernel ("program:kernel"), bytes of a work-item.
Private = dict[str, dict[str, int]]


def slice_of(programs: Iterable[Program]) -> list[Program]:
    """One product of each tile, and everything else."""
    chosen: dict[object, Program] = {}
    for program in programs:
        defines = dict(re.findall(r"-D\s*(\w+)=(\S+)", program.options))
        tile = tuple(defines.get(name) for name in TILE)
        key = (program.name, tile) if "TILE_ROWS" in defines else program.key
        chosen.setdefault(key, program)
    return list(chosen.values())


def halves_of(programs: Iterable[Program]) -> list[Program]:
    """The float32 products, as products of float16 operands without matrix units."""
    return [
        Program(program.text, program.options.replace("DTYPE=float32", "DTYPE=float16"))
        for program in programs
        if program.name == "product_gpu" and "-D DTYPE=float32" in program.options
    ]


def read_baseline() -> dict[str, dict[str, dict[str, Any]]]:
    """By target and kernel, "bytes" and "reason"."""
    return json.loads(BASELINE.read_text()) if BASELINE.exists() else {}


def bytes_of(baseline: dict[str, dict[str, dict[str, Any]]]) -> Private:
    return {
        target: {name: entry["bytes"] for name, entry in kernels.items()}
        for target, kernels in baseline.items()
    }


def updated(baseline: dict[str, dict[str, dict[str, Any]]], private: Private):
    """The baseline of these bytes, with the reasons that are known."""
    return {
        target: {
            name: {
                "bytes": size,
                "reason": baseline.get(target, {}).get(name, {}).get("reason", UNKNOWN),
            }
            for name, size in kernels.items()
        }
        for target, kernels in private.items()
    }


def private_memory(compiled: Iterable[Compiled], names: Mapping[str, str]) -> Private:
    """The most of each kernel among its programs.

    Args:
        names: of the programs, by key.
    """
    result: Private = {}
    for program in compiled:
        for kernel in program.kernels:
            if kernel.private:
                own = result.setdefault(program.target, {})
                name = f"{names[program.program]}:{kernel.name}"
                own[name] = max(kernel.private, own.get(name, 0))
    return result


def faults(
    compiled: Iterable[Compiled], names: Mapping[str, str], baseline: Private
) -> list[str]:
    """What is wrong, a line each."""
    compiled = list(compiled)
    found = []
    for program in compiled:
        name = names[program.program]
        if program.error:
            found.append(f"{name} does not compile for {program.target}: "
                         f"{program.error[-300:]}")  # fmt: skip
        elif not program.kernels:
            found.append(f"{name} has no kernels for {program.target}")
        found += [
            f"{name}:{kernel.name} spills {kernel.spills} on {program.target}"
            for kernel in program.kernels
            if kernel.spills
        ]
        found += [
            f"{name}:{kernel} waits {number} times between loads and multiplication "
            f"on {program.target}"
            for kernel, number in program.waits.items()
            if number and kernel in LOADS_AHEAD
        ]
    private = private_memory(compiled, names)
    for target in sorted({*private, *baseline}):
        now, known = private.get(target, {}), baseline.get(target, {})
        for name, size in now.items():
            if size > known.get(name, 0):
                found.append(
                    f"{name} has {size} bytes of private memory on {target}; "
                    f"the baseline allows {known.get(name, 0)}"
                )
        for name, size in known.items():
            if now.get(name, 0) < size:
                found.append(
                    f"{name} on {target} has {now.get(name, 0)} bytes of private "
                    f"memory, the baseline {size}: run gpu.lab --update-baseline"
                )
    return found


def launch_faults(launches: Mapping[str, int]) -> list[str]:
    """Training steps with more launches than their floors, a line each."""
    return [
        f"a training step of {network} has {found} launches, {floors.LAUNCHES[network]} "
        "are allowed"
        for network, found in launches.items()
        if found > floors.LAUNCHES[network]
    ]


def main(update: bool) -> int:
    from . import lab
    from .compile import Compilers

    started = time.perf_counter()
    if lacking := tools.missing():
        print("gpu gate: not checked:", *lacking, sep="\n  ")
        return 1
    traces = lab.traces_of(list(NETWORKS), True, ["train"])
    programs, compiled = lab.compile_for(traces, TARGETS, JOBS, slice_of)
    names = {program.key: program.name for program in programs}
    of_amd = {c.program for c in compiled if c.target == "gfx1030"}
    halves = halves_of(p for p in programs if p.key in of_amd)
    names |= {program.key: program.name for program in halves}
    compiled += Compilers().compile(halves, ["gfx1030"], jobs=JOBS)
    for target, own in units.programs().items():
        names |= {program.key: program.name for program in own}
        compiled += Compilers().compile(own, [target], jobs=JOBS)
    baseline = read_baseline()
    if update:
        baseline = updated(baseline, private_memory(compiled, names))
        BASELINE.write_text(json.dumps(baseline, indent=1, sort_keys=True) + "\n")
    wrong = faults(compiled, names, bytes_of(baseline))
    for device in RECORDED:
        own = [trace for trace in traces if trace["device"] == device]
        wrong += launch_faults({t["network"]: len(t["launches"]) for t in own})
    for line in wrong:
        print(line)
    kernels = sum(len(program.kernels) for program in compiled)
    print(
        f"gpu gate: {len(names)} programs, {kernels} kernels for "
        f"{', '.join(dict.fromkeys((*TARGETS, *units.UNITS)))}: {len(wrong) or 'no'} faults; "
        f"{time.perf_counter() - started:.0f} s"
    )
    return 1 if wrong else 0
