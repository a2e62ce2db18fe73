"""A case from its number, and nothing else."""

from __future__ import annotations

import random

from fuzz import calls, compiled, complexes, joined, layers, models, sequences
from fuzz.program import Program

_KINDS = {
    calls.database: 30,
    calls.elementwise: 18,
    layers.layer: 22,
    models.model: 16,
    complexes.complexes: 8,
    complexes.fourier: 5,
    sequences.sequence: 12,
    sequences.bounded: 5,
    sequences.foreach: 5,
    sequences.optimizer: 3,
    sequences.packed_weights: 5,
    joined.joined: 6,
    compiled.compiled: 3,
    compiled.compiled_integers: 2,
}


def generate(case: int) -> Program:
    rng = random.Random(case)
    make = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    return make(rng)
