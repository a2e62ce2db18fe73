"""Runs work-groups of recorded launches in the simulator that counts sectors.

The buffers, arguments and sizes are those of the trace; one work-group from the middle
of the launch runs, and stands for all. A product runs twice, with a few steps of its
depth: what they differ by is what each further step asks memory for. Kernels whose
addresses come from data are left out, as in replay.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import pyopencl as cl

from . import sectors, tools
from .compile import Program
from .replay import KERNELS, set_arguments
from .targets import Kernel
from .work import Work, programs_of, value

STEPS = (2, 4)  # of a product's depth
SECONDS = 120  # a launch
# One work-group says nothing of how much the others have to do.
UNEVEN = ("multi_tensor",)
# A work-group that runs is the one it would be in the whole launch.
IDS = """
#define SAMPLED_OF(d, x, y, z) ((d) == 0 ? (x) : (d) == 1 ? (y) : (z))
#define get_group_id(d) (get_group_id(d) + SAMPLED_OF(d, {first}))
#define get_global_id(d) (get_global_id(d) + SAMPLED_OF(d, {items}))
#define get_num_groups(d) ((size_t)SAMPLED_OF(d, {groups}))
#define get_global_size(d) ((size_t)SAMPLED_OF(d, {sizes}))
#line 1
"""


@dataclass
class Sample:
    """A launch that is to run, and how much of it does.

    Attributes:
        index: in the trace's launches.
        runs: the arguments of each.
        groups: work-groups of the launch, of which one runs.
        steps: of a product's depth in the launch; 0 where all of it runs.
    """

    index: int
    key: str
    kernel: str
    requested: float
    text: str
    options: str
    local: list[int]
    runs: list[list[dict[str, Any]]]
    groups: int
    steps: float

    @property
    def name(self) -> str:
        """Of the file that keeps the result."""
        plugin = (tools.HERE / "sectors.cpp").read_text()
        parts = [plugin, self.text, self.options, self.kernel, self.local, self.runs]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


@dataclass
class Found:
    """What a launch asks memory for.

    Attributes:
        share: useful part of the sectors that its waves ask for.
        of_requested: bytes of the sectors that miss L1, over those that work.py
            counts.
    """

    share: float
    of_requested: float


def sample_of(
    index: int, launch: dict[str, Any], program: Program, kernel: Kernel, work: Work
) -> Sample:
    whole = [-(-g // n) for g, n in zip(launch["global"], launch["local"], strict=True)]
    first = [(count - 1) // 2 for count in whole]
    local = launch["local"]

    def three(values: list[int], other: int) -> str:
        return ", ".join(map(str, [*values, other, other][:3]))

    ids = IDS.format(
        first=three(first, 0),
        items=three([f * n for f, n in zip(first, local, strict=True)], 0),
        groups=three(whole, 1),
        sizes=three(launch["global"], 1),
    )
    arguments = [dict(argument) for argument in launch["arguments"]]
    for argument in arguments:
        argument.pop("blocks", None)
    runs, steps = [arguments], 0.0
    names = [argument.name for argument in kernel.arguments]
    step = re.search(r"\bSTEP=(\d+)", program.options)
    if "depth_of_part" in names and step:
        place = names.index("depth_of_part")
        part = value(arguments[place])
        if part > STEPS[-1] * int(step[1]):
            runs, steps = [], part / int(step[1])
            for count in STEPS:
                size = len(arguments[place]["hex"]) // 2
                cut = (count * int(step[1])).to_bytes(size, "little").hex()
                with_cut = [*arguments[:place], {"hex": cut}, *arguments[place + 1 :]]
                runs.append(with_cut)
    return Sample(
        index,
        program.key,
        launch["launch"],
        work.requested,
        ids + program.text,
        program.options,
        local,
        runs,
        prod(whole),
        steps,
    )


def choose(
    trace: dict[str, Any], works: list[Work], arguments: dict[tuple[int, str], Kernel]
) -> list[Sample]:
    """Of each program of a trace the launch that asks for most."""
    best: dict[tuple[int, str], int] = {}
    for index, launch in enumerate(trace["launches"]):
        if re.search(KERNELS, launch.get("launch", "")):
            key = launch["of"], launch["launch"]
            if works[index].requested > works[best.get(key, index)].requested:
                best[key] = index
            best.setdefault(key, index)
    programs = programs_of(trace)
    result = []
    for key, index in best.items():
        program, launch = programs[key[0]], trace["launches"][index]
        result.append(sample_of(index, launch, program, arguments[key], works[index]))
    return result


def found_of(sample: Sample, lines: str) -> Found | None:
    """From what the plugin wrote, a line a run; None where nothing was asked for, or
    nothing ran."""
    totals = []
    for line in lines.splitlines():
        record = json.loads(line)
        both = record["global reads"], record["global writes"]
        totals.append([sum(total[i] for total in both) for i in (1, 2, 3)])
    if not totals:
        return None
    if sample.steps:
        less, more = totals
        further = (sample.steps - STEPS[1]) / (STEPS[1] - STEPS[0])
        pairs = zip(less, more, strict=True)
        totals = [[b + (b - a) * further for a, b in pairs]]
    taken, least, reached = (total * sample.groups for total in totals[0])
    if not taken:
        return None
    needed = least * sectors.BYTES
    if sample.requested and sample.kernel not in UNEVEN:
        needed = sample.requested
    return Found(least / taken, reached * sectors.BYTES / needed)


def simulate(
    samples: list[Sample], buffers: dict[str, int], folder: Path, process: str
) -> None:
    """Runs what was not run before; a file each under ``folder``.

    Args:
        process: a name for what the process needs while it runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [s for s in samples if not (folder / f"{s.name}.json").exists()]
    if not waiting:
        return
    own = folder / process
    environment = sectors.environment(own, OCLGRIND_GLOBAL_MEM_SIZE=str(1 << 36))
    jobs = own / "jobs.json"
    record = {"buffers": buffers, "samples": [asdict(s) for s in waiting]}
    jobs.write_text(json.dumps(record))
    command = [sys.executable, "-m", "gpu.sampled", str(jobs)]
    tools.checked(command, "oclgrind", timeout=SECONDS * len(waiting), env=environment)


def run_jobs(jobs: Path) -> None:
    record = json.loads(jobs.read_text())
    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    buffers: dict[int, cl.Buffer] = {}
    lines = Path(os.environ["SECTORS_FILE"])

    def allocate(arguments: list[dict[str, Any]]) -> None:
        for number in {raw["buffer"] for raw in arguments if "buffer" in raw}:
            size = record["buffers"].get(str(number))
            if size is not None and number not in buffers:
                buffers[number] = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)

    seen = 0
    for entry in record["samples"]:
        sample = Sample(**entry)
        result = jobs.parents[1] / f"{sample.name}.json"
        try:
            built = cl.Program(context, sample.text).build(sample.options)
            kernel = cl.Kernel(built, sample.kernel)
        except cl.Error:  # the simulator has no sub-groups
            result.write_text("")
            continue
        for arguments in sample.runs:
            allocate(arguments)
            set_arguments(kernel, arguments, buffers)
            cl.enqueue_nd_range_kernel(queue, kernel, sample.local, sample.local)
            queue.finish()
        written = lines.read_text().splitlines()[seen:]
        if len(written) != len(sample.runs):
            raise RuntimeError(f"the plugin saw no run of {sample.kernel}")
        seen += len(written)
        result.write_text("\n".join(written))


def read(samples: list[Sample], folder: Path) -> dict[tuple[str, str], Found]:
    """By the program's key and the kernel's name."""
    result = {}
    for sample in samples:
        lines = (folder / f"{sample.name}.json").read_text()
        if found := found_of(sample, lines):
            result[sample.key, sample.kernel] = found
    return result


if __name__ == "__main__":
    run_jobs(Path(sys.argv[1]))
