"""What continuous integration checks of the kernels for GPUs.

All programs of the traced networks compile for gfx1030, sm_86 and dg2 without
spills. No kernel has private memory but those that baseline.json lists, with no
more bytes than there: the list may only shrink, and an entry that is no longer
needed fails, too, until it is removed (`gpu.lab --update-baseline` does so).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping

from . import tools
from .compile import Compiled, Program

TARGETS = ("gfx1030", "sm_86", "dg2")
BASELINE = tools.HERE / "baseline.json"
# Small enough for minutes, and among them they use what all eight use but for
# vit_b_16, gpt and vgg16, whose programs these have.
NETWORKS = ("resnet50", "mobilenet_v2", "bert", "unet", "lstm")

# By target and kernel ("program:kernel"), bytes of a work-item.
Private = dict[str, dict[str, int]]


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


def main(update: bool) -> int:
    from . import lab
    from .compile import Compilers

    started = time.perf_counter()
    programs: list[Program] = lab.programs_of(lab.traces_of(list(NETWORKS), True))
    names = {program.key: program.name for program in programs}
    compiled = Compilers().compile(programs, TARGETS)
    if update:
        known = json.dumps(private_memory(compiled, names), indent=1, sort_keys=True)
        BASELINE.write_text(known + "\n")
    if not BASELINE.exists():
        print("gpu gate: no baseline.json, run gpu.lab --update-baseline first")
        return 1
    wrong = faults(compiled, names, json.loads(BASELINE.read_text()))
    for line in wrong:
        print(line)
    kernels = sum(len(program.kernels) for program in compiled)
    print(
        f"gpu gate: {len(programs)} programs, {kernels} kernels for "
        f"{', '.join(TARGETS)}: {len(wrong) or 'no'} faults; "
        f"{time.perf_counter() - started:.0f} s"
    )
    return 1 if wrong else 0
