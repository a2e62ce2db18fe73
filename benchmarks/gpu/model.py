"""Predicts the time of launches on cards that are not there.

A launch takes the longest of four things, and a gap:

- its operations, at the rate of its kernel's hottest loop: multiply-adds per
  issued instruction, or words of local memory, whichever allows less; in whole
  rounds of work-groups over the card's units; less where too few waves are
  resident to hide latencies;
- its instructions once for each work-item: what kernels without products
  compute, loops counted once;
- the bytes that it has to move, over memory's bandwidth;
- the sectors that it asks the caches for, at CACHE times that bandwidth.

`Constants` were fitted to published measurements (published.py says how well);
everything else is the vendors' figures and the compilers' output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from .cards import Card
from .isa import Loop
from .targets import TARGETS, Kernel
from .work import Work

CACHE = 4.0
# What indexed private memory in an Arc's kernel costs; a guess.
PRIVATE = 0.5


@dataclass(frozen=True)
class Constants:
    """Shares of what is possible that kernels and memory reach in practice."""

    compute: float = 0.6
    memory: float = 0.7


@dataclass
class Shape:
    """What the model knows of a kernel for a card's target.

    Attributes:
        rate: multiply-adds per issued instruction of its hottest loop.
        words: of local memory for a multiply-add.
        instructions: of the whole kernel.
        waves: of a work-group.
        resident: waves a unit can hold of it.
        sectors: bytes requested over those of the sectors that are asked of L2.
    """

    rate: float = 0.7
    words: float = 0.0
    instructions: int = 0
    waves: int = 4
    resident: int = 32
    sectors: float = 1.0
    slowdown: float = 1.0


@dataclass
class Prediction:
    """Seconds of a launch, and which of the four things it waits for."""

    seconds: float
    bound: str


def shape_of(
    kernel: Kernel,
    target: str,
    loop: Loop | None,
    instructions: int,
    sectors: float = 1.0,
) -> Shape:
    """
    Args:
        loop: of the target, or of gfx1030 where the target has no disassembler.
    """
    shape = Shape(instructions=instructions, sectors=sectors)
    if loop is not None:
        shape.rate, shape.words = loop.fma_per_issue, loop.words_per_fma
    simd = max(kernel.simd, 1)
    shape.waves = max(1, ceil((kernel.group or 256) / simd))
    limits = TARGETS[target]
    per_unit = {"amd": limits.waves * 2, "nvidia": limits.waves, "intel": 128}
    occupancy = 1.0 if kernel.occupancy is None else kernel.occupancy
    shape.resident = max(1, int(per_unit[limits.family] * occupancy))
    if limits.family == "intel" and (kernel.private or kernel.spills):
        shape.slowdown = 1 / PRIVATE
    return shape


def share_of_peak(shape: Shape, card: Card) -> float:
    """Of the card's operations that the kernel's loop allows."""
    share = min(1.0, shape.rate / card.width)
    if shape.words:
        share = min(share, card.local_words / shape.words)
    return share / shape.slowdown


def predict(work: Work, shape: Shape, card: Card, constants: Constants) -> Prediction:
    rounds = ceil(work.groups / card.units)
    # Groups that share a unit while the launch runs.
    resident = min(rounds * shape.waves, shape.resident)
    hidden = min(1.0, resident / card.waves)
    unit = card.tera * 1e12 / card.units
    candidates = {}
    if work.flops:
        each = work.flops / work.groups
        rate = unit * share_of_peak(shape, card) * constants.compute * hidden
        candidates["operations"] = rounds * each / rate
    else:
        issued = work.items / max(work.groups, 1) * shape.instructions
        rate = unit / 2 / max(card.width, 1) * constants.compute * hidden
        candidates["instructions"] = rounds * issued / rate
    # A unit alone cannot draw all of memory's bandwidth.
    reached = constants.memory * min(1.0, 2.0 * work.groups / card.units)
    if work.program < 0:
        reached = constants.memory
    bandwidth = card.giga * 1e9 * reached
    candidates["bytes"] = work.bytes / bandwidth
    candidates["sectors"] = work.requested / shape.sectors / (bandwidth * CACHE)
    bound = max(candidates, key=lambda name: candidates[name])
    seconds = candidates[bound] + card.launch
    return Prediction(seconds, bound if candidates[bound] > card.launch else "launch")


def total(predictions: Iterable[Prediction]) -> float:
    return sum(prediction.seconds for prediction in predictions)
