"""A case as data: inputs and steps, and what the steps call."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch
from fuzz import actions
from fuzz.tensors import Input
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Ref:
    """The tensor of this name; names of inputs and results are numbers."""

    name: int

    def __str__(self) -> str:
        return f"t{self.name}"

    __repr__ = __str__


@dataclass
class Step:
    """One call.

    ``target`` is an attribute of torch ("nn.functional.relu"), a method of
    tensors (".relu_"), an entry of op_db ("op:softmax") or of its in-place form
    ("op_:add"), or a function of actions.py ("action:forget"). ``stream`` is a
    side stream's number.
    """

    target: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    result: int | None = None
    stream: int | None = None

    def __str__(self) -> str:
        parts = [_brief(value) for value in self.args]
        parts += [f"{key}={_brief(value)}" for key, value in self.kwargs.items()]
        left = "" if self.result is None else f"t{self.result} = "
        where = "" if self.stream is None else f"  # stream {self.stream}"
        return f"{left}{self.target}({', '.join(parts)}){where}"


@dataclass
class Program:
    """What a case is. ``backward`` asks for gradients of the inputs that want
    them; ``judged`` says what of the results is compared (values, or their kind
    only); ``subject`` is the op that it is about."""

    inputs: dict[int, Input]
    steps: list[Step]
    subject: str
    backward: bool = False
    judged: str = "values"

    def __str__(self) -> str:
        lines = [f"t{name} = {value}" for name, value in self.inputs.items()]
        lines += [str(step) for step in self.steps]
        return "\n".join(lines + (["backward"] if self.backward else []))


def references(step: Step) -> set[int]:
    found: set[int] = set()

    def visit(value):
        if isinstance(value, Ref):
            found.add(value.name)
        return value

    tree_map(visit, (step.args, step.kwargs))
    return found


def op_name(op) -> str:
    variant = op.variant_test_name
    return f"{op.name}:{variant}" if variant else op.name


@functools.cache
def ops_by_name() -> dict:
    return {op_name(op): op for op in op_db}


def resolve(target: str):
    """The function that a step calls."""
    if target.startswith("op:"):
        return ops_by_name()[target.removeprefix("op:")]
    if target.startswith("op_:"):
        return ops_by_name()[target.removeprefix("op_:")].get_inplace()
    if target.startswith("action:"):
        return getattr(actions, target.removeprefix("action:"))
    if target.startswith("."):
        return getattr(torch.Tensor, target[1:])
    return functools.reduce(getattr, target.split("."), torch)


def _brief(value) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
