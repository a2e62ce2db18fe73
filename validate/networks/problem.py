"""A network with its inputs: what a check starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from networks.images import load_batch
from networks.models import (
    build,
    disable_dropout,
    loss_of,
    named_outputs,
    pretrained,
)


def _classify(model, inputs, target):
    outputs = named_outputs(model(inputs))
    return outputs, loss_of(outputs, target)


@dataclass
class Problem:
    """Every run starts from a copy of ``model``.

    ``run(model, inputs, target)`` gives named outputs and the loss of a training
    forward, ``evaluate(model, inputs)`` named outputs in evaluation.
    """

    network: str
    model: torch.nn.Module
    inputs: torch.Tensor
    target: object
    optimizer: str = "sgd"
    run: Callable = _classify
    evaluate: Callable | None = None
    dropouts: int = 0


def make_problem(
    name: str,
    weights: str = "none",
    images: Sequence[Path] = (),
    batch: int = 2,
    image_size: int = 224,
    optimizer: str = "sgd",
    seed: int = 0,
) -> tuple[Problem, int]:
    """A network with seeded inputs (or pictures), and its count of dropouts."""
    model = build(name, weights, seed)
    dropouts = disable_dropout(model)
    generator = torch.Generator().manual_seed(seed)
    if images:
        inputs = load_batch(list(images), pretrained(name))
    else:
        shape = (batch, 3, image_size, image_size)
        inputs = torch.randn(shape, generator=generator)
    target = torch.randint(1000, (len(inputs),), generator=generator)
    return Problem(name, model, inputs, target, optimizer), dropouts
