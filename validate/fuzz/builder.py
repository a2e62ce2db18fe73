"""Builds a program step by step, running each step on the CPU as it goes."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence

import torch
from conformance.judge import Draws
from fuzz.execute import CPU, Machine
from fuzz.program import Program, Ref, Step
from fuzz.tensors import CONTIGUOUS, Input, draw_layout, draw_values

_MOST_OF_PRODUCT = 1_000_000


class Stop(Exception):
    """The last step raises: nothing can follow."""


class Builder:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: dict[int, Input] = {}
        self.steps: list[Step] = []
        self.stream: int | None = None
        self.draws_numbers = False
        self._next = 0
        self._machine = Machine({}, CPU)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def given(
        self,
        values: torch.Tensor,
        layout: bool = True,
        grad: bool = False,
        expand: bool = False,
    ) -> Ref:
        """An input with these values, lying somehow if ``layout``."""
        drawn = draw_layout(self.rng, values.shape, expand) if layout else CONTIGUOUS
        name = self._name()
        differentiable = values.is_floating_point() or values.is_complex()
        self.inputs[name] = Input(values, drawn, grad and differentiable)
        self._machine.add(name, self.inputs[name])
        return Ref(name)

    def input(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        special: float = 0.0,
        low: float | None = None,
        high: float | None = None,
        **placement,
    ) -> Ref:
        values = draw_values(self.rng, tuple(shape), dtype, special, low, high)
        return self.given(values, **placement)

    def call(self, target: str, *args, result: bool = True, **kwargs) -> Ref | None:
        """Adds a step.

        Raises:
            Stop: it raised on the CPU; it stays, as the last one.
        """
        name = self._name() if result else None
        self.steps.append(Step(target, args, kwargs, name, self.stream))
        try:
            self._do(self.steps[-1])
        except Exception as error:
            raise Stop(str(error)) from error
        return None if name is None else Ref(name)

    def attempt(self, target: str, *args, result: bool = True, **kwargs) -> Ref | None:
        """The same, but most of the steps that raise are taken back."""
        try:
            return self.call(target, *args, result=result, **kwargs)
        except Stop:
            if self.chance(0.1):
                raise
            self.steps.pop()
            return None

    def fits_product(self, ref: Ref) -> bool:
        """Whether the product of the matrices with themselves is not too large."""
        *batches, rows, _ = self.tensor(ref).shape
        return torch.Size(batches).numel() * rows**2 <= _MOST_OF_PRODUCT

    def forget(self, ref: Ref) -> None:
        self.steps.append(Step("forget", (ref,)))
        self._machine.forget(ref.name)

    def tensor(self, ref: Ref) -> torch.Tensor:
        return self._machine.values[ref.name]

    def tensors(self) -> list[tuple[Ref, torch.Tensor]]:
        """The tensors that exist now."""
        return [
            (Ref(name), value)
            for name, value in self._machine.values.items()
            if torch.is_tensor(value)
        ]

    def program(self, subject: str, backward: bool = False) -> Program:
        judged = "kind" if self.draws_numbers else "values"
        return Program(self.inputs, self.steps, subject, backward, judged)

    def _name(self) -> int:
        self._next += 1
        return self._next - 1

    def _do(self, step: Step) -> None:
        with warnings.catch_warnings(), Draws() as draws:
            warnings.simplefilter("ignore")
            try:
                self._machine.do(step)
            finally:
                self.draws_numbers |= draws.seen
