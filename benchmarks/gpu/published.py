"""Checks the model against a published table of an OpenCL library of 2021.

The table is that of dlprimitives.org of 26 October 2021: training steps of batch
16 at 224 x 224, with Adam, in milliseconds, of its own framework. The model is
fed with the library's published design, not with this project's kernels:
products and convolutions by 8 x 8 tiles of registers without columns in memory,
3 x 3 convolutions of unit stride by Winograd's F(2x2, 3x3) forward and for data
gradients, and one launch for each other op of a step.

The two constants of the model are fitted to these numbers, so what is judged is
the error on a card that was left out of the fit.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .cards import CARDS, Card
from .model import Constants, Shape, predict
from .work import Work

NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16", "mobilenet_v2")
MILLISECONDS = {
    "RX 6600 XT": (36.954, 65.241, 194.398, 308.763, 99.862),
    "RTX 2060S": (39.829, 67.960, 187.398, 439.053, 90.229),
    "GTX 1080": (38.804, 71.147, 264.286, 374.168, 134.650),
}
TILE = 128
# 64 multiply-adds for 16 words read by four instructions, and the loop.
DENSE = Shape(rate=0.9, words=16 / 64, instructions=0, waves=8, resident=16)
PLAIN = Shape(rate=1, instructions=8, waves=8, resident=32)
_DEPTHWISE = 9 * 16.0
# Statistics are a pass of their own: of three tensors' bytes two are read again.
_PASSES = {"native_batch_norm": 1.5, "native_batch_norm_backward": 5 / 3}


@dataclass
class Row:
    card: str
    network: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over published, less one."""
        return self.predicted / self.published - 1


def works(trace: dict[str, Any]) -> list[tuple[Work, Shape]]:
    """The launches by which that library would do a trace's ops."""
    result = []
    for op in trace["ops"]:
        name = op["name"].split("::")[-1].split(".")[0]
        if not op["flops"]:
            moved = op["bytes"] * _PASSES.get(name, 1.0)
            groups = int(op["bytes"] // 12 // 256) + 1
            result.append((_work(name, 0, moved, groups), PLAIN))
        elif "convolution" in name:
            result += _convolution(op, backward="backward" in name)
        else:
            result.append((_product(name, op["flops"], op["bytes"]), DENSE))
    result.append((_adam(trace), PLAIN))
    return result


def _work(name: str, flops: float, moved: float, groups: int) -> Work:
    return Work(name, 0, flops, moved, moved, max(1, groups), groups * 256, name)


def _product(name: str, flops: float, moved: float, outputs: float = 0) -> Work:
    """Tiles by the result's size; where it is not known, by the bytes."""
    groups = int((outputs or moved / 12) // TILE**2) + 1
    work = _work(name, flops, moved, groups)
    # Each operation of a tile's row is fed by its column once.
    work.requested = max(moved, flops / 2 * 4 * 2 / TILE)
    return work


def _sizes(shape: str) -> list[int]:
    return [int(size) for size in shape.split("x")]


def _convolution(op: dict[str, Any], backward: bool) -> list[tuple[Work, Shape]]:
    # Shapes are the tensors of the call: (gradient,) input, weight, ...
    shapes = [_sizes(s) for s in op["shapes"] if re.fullmatch(r"\d+(x\d+)+", s)]
    images = [shape for shape in shapes if len(shape) == 4]
    weight = images[-1]
    parts = op["flops"] / 2 if backward else op["flops"]
    moved = op["bytes"] / 2 if backward else op["bytes"]
    if weight[1] == 1 and weight[0] > 1:  # depthwise
        plain = Shape(rate=0.3, instructions=int(_DEPTHWISE), waves=4, resident=32)
        groups = int(moved / 8 / 256) + 1
        return [(_work("depthwise", 0, moved, groups), plain)] * (2 if backward else 1)
    unit_stride = backward and images[0][2:] == images[1][2:]
    if not backward:
        # Of a call without the result: its size follows from its operations.
        pixels = op["flops"] / 2 / math.prod(weight)
        unit_stride = abs(pixels - images[0][0] * math.prod(images[0][2:])) < 1
    is_winograd = weight[2:] == [3, 3] and unit_stride and weight[1] >= 8
    less = 2.25 if is_winograd else 1
    outputs = parts / 2 / math.prod(weight[1:])
    forward = (_product("convolution", parts / less, moved, outputs), DENSE)
    if not backward:
        return [forward]
    gradient = (_product("weight gradient", parts, moved, math.prod(weight)), DENSE)
    # Split over the images: the library sums partial gradients.
    gradient[0].groups *= images[0][0]
    return [forward, gradient]


def _adam(trace: dict[str, Any]) -> Work:
    """One pass over weights, gradients and both moments."""
    moved = trace["parameters"] * 4.0 * 7
    return _work("Adam", 0, moved, int(trace["parameters"] // 256) + 1)


# A network's launches, each with how often it occurs.
Steps = dict[str, list[tuple[Work, Shape, int]]]


def steps_of(traces: dict[str, dict[str, Any]]) -> Steps:
    steps: Steps = {}
    for network in NETWORKS:
        if network in traces:
            counted: dict[str, tuple[Work, Shape, int]] = {}
            for work, shape in works(traces[network]):
                *_, count = counted.get(repr((work, shape)), (0,))
                counted[repr((work, shape))] = work, shape, count + 1
            steps[network] = list(counted.values())
    return steps


def predict_all(steps: Steps, constants: Constants, names: Iterable[str]) -> list[Row]:
    rows = []
    for name in names:
        card: Card = CARDS[name]
        for network, published in zip(NETWORKS, MILLISECONDS[name], strict=True):
            if network in steps:
                seconds = sum(
                    count * predict(work, shape, card, constants).seconds
                    for work, shape, count in steps[network]
                )
                rows.append(Row(name, network, published, seconds * 1e3))
    return rows


def error_of(rows: list[Row]) -> float:
    """The mean of the errors' sizes."""
    return statistics.fmean(abs(row.error) for row in rows)


def fit(steps: Steps, names: Iterable[str]) -> Constants:
    """The constants with the least mean square of logarithms, on a grid."""
    names = list(names)

    def loss(constants: Constants) -> float:
        rows = predict_all(steps, constants, names)
        return sum(math.log(row.predicted / row.published) ** 2 for row in rows)

    grid = [
        Constants(compute / 100, memory / 100)
        for compute in range(20, 101, 5)
        for memory in range(20, 101, 5)
    ]
    return min(grid, key=loss)


@dataclass
class Validation:
    """
    Attributes:
        constants: fitted to all cards.
        rows: of each card, by constants that were fitted to the others.
    """

    constants: Constants
    rows: list[Row]

    @property
    def error(self) -> float:
        return error_of(self.rows)


def validate(traces: dict[str, dict[str, Any]]) -> Validation:
    """
    Args:
        traces: of training, by network.
    """
    steps = steps_of(traces)
    rows = []
    for name in MILLISECONDS:
        others = [other for other in MILLISECONDS if other != name]
        rows += predict_all(steps, fit(steps, others), [name])
    return Validation(fit(steps, MILLISECONDS), rows)
