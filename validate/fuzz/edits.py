"""Simplifications of a case, each a word, and the search for the simplest case that
still fails.

A case is made from its number; edits are applied to what was made. So a number and
a list of words say what a minimised case is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from fuzz.program import Program, Ref, references
from fuzz.tensors import CONTIGUOUS


def apply(program: Program, edits: list[str]) -> Program:
    """The program after ``edits``. Steps are numbered as they were made.

    drop:3        without step 3 and what needs its result
    plain:2       input t2 contiguous
    round:2       input t2 of small integers, NaN and infinity left out
    size:17>2     every dimension of inputs of 17 becomes one of 2
    float32       floats of inputs are float32
    no-backward   without gradients
    one-stream    everything on the current stream
    """
    dropped = {int(e.removeprefix("drop:")) for e in edits if e.startswith("drop:")}
    steps = [s for i, s in enumerate(program.steps) if i not in dropped]
    inputs = dict(program.inputs)
    backward = program.backward
    for edit in edits:
        word, _, argument = edit.partition(":")
        if word == "plain":
            inputs[int(argument)] = replace(inputs[int(argument)], layout=CONTIGUOUS)
        elif word == "round":
            given = inputs[int(argument)]
            inputs[int(argument)] = replace(given, values=_rounded(given.values))
        elif word == "size":
            old, new = map(int, argument.split(">"))
            inputs = {
                name: replace(given, values=_resized(given.values, old, new))
                for name, given in inputs.items()
            }
        elif word == "float32":
            inputs = {
                name: replace(given, values=given.values.float())
                if given.values.is_floating_point()
                else given
                for name, given in inputs.items()
            }
        elif word == "no-backward":
            backward = False
            inputs = {
                name: replace(given, requires_grad=False)
                for name, given in inputs.items()
            }
        elif word == "one-stream":
            steps = [replace(step, stream=None) for step in steps]
        elif word != "drop":
            raise ValueError(f"no edit {edit!r}")
    return _without_orphans(replace(program, steps=steps, backward=backward), inputs)


def _without_orphans(program: Program, inputs: dict) -> Program:
    known, steps = set(inputs), []
    for step in program.steps:
        if references(step) <= known:
            steps.append(step)
            if step.result is not None:
                known.add(step.result)
    used = set().union(*(references(step) for step in steps)) if steps else set()
    kept = {name: given for name, given in inputs.items() if name in used}
    return replace(program, steps=steps, inputs=kept)


def _rounded(values: torch.Tensor) -> torch.Tensor:
    if not values.is_floating_point():
        return values
    return values.nan_to_num(1, 2, -2).clamp(-8, 8).mul(2).round().div(2)


def _resized(values: torch.Tensor, old: int, new: int) -> torch.Tensor:
    for dim, size in enumerate(values.shape):
        if size == old:
            values = values.narrow(dim, 0, new)
    return values.contiguous()


def _candidates(program: Program) -> Iterator[str]:
    """Edits worth trying, the coarsest first."""
    if program.backward:
        yield "no-backward"
    if any(step.stream is not None for step in program.steps):
        yield "one-stream"
    for index in reversed(range(len(program.steps))):
        yield f"drop:{index}"
    sizes = {size for given in program.inputs.values() for size in given.values.shape}
    for size in sorted(sizes, reverse=True):
        for smaller in (1, 2, size // 4, size // 2):
            if 0 < smaller < size:
                yield f"size:{size}>{smaller}"
    for name, given in program.inputs.items():
        if given.layout != CONTIGUOUS:
            yield f"plain:{name}"
    floats = [g for g in program.inputs.values() if g.values.is_floating_point()]
    if any(given.values.dtype != torch.float32 for given in floats):
        yield "float32"
    for name, given in program.inputs.items():
        if given.values.is_floating_point():
            yield f"round:{name}"


def minimise(
    program: Program, still_fails: Callable[[list[str]], bool], seconds: float
) -> list[str]:
    """Edits that leave a case that fails; each was tried once, in order."""
    edits: list[str] = []
    end = time.monotonic() + seconds
    for edit in _candidates(program):
        if time.monotonic() > end:
            break
        try:
            simpler = apply(program, [*edits, edit])
        except Exception:  # a size that the input no longer has
            continue
        if simpler.steps and still_fails([*edits, edit]):
            edits.append(edit)
    return edits


def listing(program: Program) -> str:
    """A program as lines, with the values of small inputs."""
    lines = []
    for name, given in program.inputs.items():
        text = f"{Ref(name)} = {given}"
        if given.values.numel() <= 8:
            text += f"  # {given.values.tolist()}"
        lines.append(text)
    lines += [str(step) for step in program.steps]
    return "\n".join(lines + (["backward"] if program.backward else []))
