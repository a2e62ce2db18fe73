"""The laboratory's work-groups of recorded launches, without the simulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from gpu import floors, report, sampled, work
from gpu.compile import Program
from gpu.targets import Argument, Kernel
from gpu.work import value

NAMES = ("left_memory", "left_offset", "depth", "depth_of_part")
KERNEL = Kernel(
    "product_gpu", arguments=[Argument(n, "int", False, False) for n in NAMES]
)
PROGRAM = Program("kernel void product_gpu() {}", "-D STEP=16")


def _launch(depth: int) -> dict:
    number = depth.to_bytes(4, "little").hex()
    memory = {"buffer": 3, "offset": 0, "blocks": {}}
    arguments = [memory, {"hex": "0" * 16}, {"hex": number}, {"hex": number}]
    sizes = {"global": [128 * 30, 7], "local": [128, 1]}
    return {"launch": "product_gpu", "of": 0, "arguments": arguments, **sizes}


def _sample(depth: int) -> sampled.Sample:
    requested = 210 * depth * 4.0 * (64 + 64)
    asked = work.Work("p:product_gpu", 0, 0, 0, requested, 210, 210 * 128, "mm")
    return sampled.sample_of(5, _launch(depth), PROGRAM, KERNEL, asked)


def test_a_work_group_from_the_middle_and_the_first_steps() -> None:
    sample = _sample(640)
    assert sample.local == [128, 1]
    assert (sample.groups, sample.steps) == (210, 40)
    assert [value(arguments[3]) for arguments in sample.runs] == [32, 64]
    assert [value(arguments[2]) for arguments in sample.runs] == [640, 640]
    for line in (
        "#define get_group_id(d) (get_group_id(d) + SAMPLED_OF(d, 14, 3, 0))",
        "#define get_global_id(d) (get_global_id(d) + SAMPLED_OF(d, 1792, 3, 0))",
        "#define get_num_groups(d) ((size_t)SAMPLED_OF(d, 30, 7, 1))",
        "#define get_global_size(d) ((size_t)SAMPLED_OF(d, 3840, 7, 1))",
    ):
        assert line in sample.text
    assert sample.text.endswith(PROGRAM.text)
    assert (_sample(64).steps, len(_sample(64).runs)) == (0, 1)
    assert _sample(64).name != sample.name


def test_what_a_launch_asks_for() -> None:
    """Operands with the depth, a bias and the result once; sectors of 32 bytes."""
    lines = []
    for steps in sampled.STEPS:
        reads = [1, *(64 + each * steps for each in (512, 256, 256))]
        record = {"global reads": reads, "global writes": [1, 512, 512, 512]}
        lines.append(json.dumps(record))
    found = sampled.found_of(_sample(640), "\n".join(lines))
    taken, least = 64 + 512 * 40 + 512, 64 + 256 * 40 + 512
    assert found.share == pytest.approx(least / taken)
    assert found.of_requested == pytest.approx(least * 32 / (640 * 4 * 128))
    sample = _sample(64)
    whole = sampled.found_of(sample, lines[1])
    assert whole.share == pytest.approx((64 + 256 * 4 + 512) / (64 + 512 * 4 + 512))
    assert sampled.found_of(sample, "") is None  # the simulator refused it
    silent = {"global reads": [0, 0, 0, 0], "global writes": [0, 0, 0, 0]}
    assert sampled.found_of(sample, json.dumps(silent)) is None


def test_the_launch_of_a_program_that_asks_for_most() -> None:
    launches = [_launch(64), _launch(640), {"command": "copy", "bytes": 4}]
    program = {"text": PROGRAM.text, "options": PROGRAM.options}
    trace = {"launches": launches, "programs": {"0": program}}
    works = [
        work.Work("p:product_gpu", 0, 0, 0, requested, 210, 210 * 128, "mm")
        for requested in (1e6, 2e6, 3e6)
    ]
    (chosen,) = sampled.choose(trace, works, {(0, "product_gpu"): KERNEL})
    assert (chosen.index, chosen.requested) == (1, 2e6)


def test_shares_of_a_step_and_their_floor() -> None:
    programs = {0: PROGRAM, 1: Program("kernel void reduce() {}", "")}
    found = {
        (PROGRAM.key, "product_gpu"): sampled.Found(0.5, 2.0),
        (programs[1].key, "reduce"): sampled.Found(1.0, 1.0),
    }
    asked = report.Sectors([], found)
    works = [
        work.Work("p:product_gpu", 0, 0, 8e6, 8e6, 64, 64, ""),
        work.Work("r:reduce", 1, 0, 1e6, 1e6, 64, 64, ""),
        work.Work("copy", -1, 0, 1e6, 1e6, 1, 1, ""),
    ]
    assert asked.useful(works, programs) == {"product_gpu": 0.5, "reduce": 1.0}
    assert asked.reaching(PROGRAM.key, "product_gpu") == 0.5
    assert asked.reaching(PROGRAM.key, "pointwise") == 1.0
    step = {"share of bytes": {"product_gpu": 0.8, "reduce": 0.001}}
    step["useful sectors"] = asked.useful(works, programs)
    small = [{"kernel": "product_gpu", "global_share": 0.2}]
    judged = floors._sectors({"steps": [step], "sectors": small})
    assert [(floor.what, floor.found) for floor in judged] == [
        ("useful sectors, product_gpu", "50%")
    ]
