"""What the fuzzer can draw: every form, every step of its tables and every op."""

from __future__ import annotations

import functools
import random

import pytest
from fuzz import calls, compiled, complexes, known, layers, metadata, models, sequences
from fuzz.generate import generate
from fuzz.program import Program, ops_by_name

_FORMS = {"op: out=", "op_:", ".set_", "action:set_data", ".transpose_", ".squeeze_"}
_FORMS |= {"action:write_data", ".resize_", "stream", "backward", "sequence"}


def _forms(program: Program) -> set[str]:
    found = {program.subject} | ({"backward"} if program.backward else set())
    for step in program.steps:
        kind = step.target.partition(":")[0] + ":"
        found |= {step.target, kind, *(f"{kind} {name}=" for name in step.kwargs)}
        if step.stream is not None:
            found.add("stream")
    return found


def test_every_form_occurs():
    missing, cases = set(_FORMS), iter(range(400))
    while missing and (case := next(cases, None)) is not None:
        missing -= _forms(generate(case))
    assert not missing


@pytest.mark.parametrize(
    ("make", "module", "table"),
    [
        (sequences.sequence, metadata, "CHANGES"),
        (sequences.sequence, sequences, "_STEPS"),
        (layers.layer, layers, "_LAYERS"),
        (models.model, models, "_MODELS"),
        (complexes.complexes, complexes, "_STEPS"),
        (complexes.fourier, complexes, "_STEPS_AFTER"),
        (compiled.compiled, compiled, "_STEPS"),
    ],
)
def test_every_step_of_a_table_occurs(monkeypatch, make, module, table):
    missing = set(getattr(module, table))

    def noted(step):
        @functools.wraps(step)
        def call(*arguments):
            missing.discard(step)
            return step(*arguments)

        return call

    monkeypatch.setattr(module, table, tuple(map(noted, getattr(module, table))))
    cases = iter(range(400))
    while missing and (case := next(cases, None)) is not None:
        make(random.Random(case))
    assert not missing


# All samples are sparse, or no dtype of the fuzzer is one of the CPU's.
_NEVER_DRAWN = {
    "nn.functional.batch_norm:without_cudnn",
    "sparse.mm:reduce",
    "sparse.sampled_addmm",
    "torch._scaled_mm",
    "torch._scaled_mm_v2",
    "torch.ops.aten._efficient_attention_forward",
    "torch.ops.aten._flash_attention_forward",
}


def _is_drawn(op) -> bool:
    rng = random.Random(op.name)
    for _ in range(10):
        try:
            return bool(calls._of_sample(rng, op).steps)
        except calls.Unsuitable:
            continue
    return False


@pytest.mark.sampled(8)
@pytest.mark.parametrize("part", range(8))
def test_every_op_is_drawn(part):
    names = {n: op for n, op in ops_by_name().items() if op.name not in known.EXCLUDED}
    names = {name: names[name] for name in sorted(names)[part::8]}
    left = {name for name, op in names.items() if not _is_drawn(op)}
    assert left <= _NEVER_DRAWN
