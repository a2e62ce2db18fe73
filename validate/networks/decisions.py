"""Which side of a kink each element took: recorded, and imposed on another run.

ReLU and max pooling are piecewise linear. An element within rounding of a kink
falls on one side in float64 and on the other in float32, on any device, and
that one element moves gradients by far more than rounding does. A gradient is
right when it is the gradient of the piece the device was on. So the float64
reference is run along the device's own decisions, and each decision that
float64 would have taken differently is charged with what it changes in the
op's output, which has to be rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


@dataclass(frozen=True)
class _Op:
    """What an op decides, and its output under given decisions."""

    decide: Callable
    follow: Callable
    in_place: bool = False


def _relu_follow(decision, values, *args):
    # The backward pass asks whether the output is positive.
    smallest = torch.finfo(values.dtype).tiny
    return torch.where(decision, values.clamp(min=smallest), 0.0)


def _hardtanh_side(values, low=-1.0, high=1.0):
    return (values > low).to(torch.int8) + (values >= high).to(torch.int8)


def _hardtanh_follow(decision, values, low=-1.0, high=1.0):
    span = (high - low) * torch.finfo(values.dtype).eps
    inside = values.clamp(low + span, high - span)
    return torch.where(decision == 0, low, torch.where(decision == 2, high, inside))


def _max_pool_follow(decision, values, *args):
    chosen = values.flatten(2).gather(2, decision.flatten(2))
    return chosen.view(decision.shape), decision


_RELU = _Op(lambda output, *args: output > 0, _relu_follow)
_HARDTANH = _Op(
    lambda output, values, *args: _hardtanh_side(output, *args), _hardtanh_follow
)
_OPS = {
    aten.relu.default: _RELU,
    aten.relu_.default: _Op(_RELU.decide, _RELU.follow, in_place=True),
    aten.hardtanh.default: _HARDTANH,
    aten.hardtanh_.default: _Op(_HARDTANH.decide, _HARDTANH.follow, in_place=True),
    aten.max_pool2d_with_indices.default: _Op(
        lambda output, *args: output[1], _max_pool_follow
    ),
}


def _first(output) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]


class Record(TorchDispatchMode):
    """Keeps the decisions of every op run within, in order, on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[torch.Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        op = _OPS.get(func)
        if op is not None:
            on_host = (
                output.detach().cpu()
                if isinstance(output, torch.Tensor)
                else tuple(part.detach().cpu() for part in output)
            )
            self.decisions.append(op.decide(on_host, *args).clone())
        return output


class Follow(TorchDispatchMode):
    """Makes every op run within take recorded decisions.

    ``charges`` holds, for each op, the relative L2 change of its output.
    """

    def __init__(self, decisions: list[torch.Tensor]) -> None:
        super().__init__()
        self._decisions = list(decisions)
        self.charges: list[float] = []
        self.flips = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        op = _OPS.get(func)
        if op is None:
            return func(*args, **(kwargs or {}))
        values = args[0].clone() if op.in_place else args[0]
        own = func(*args, **(kwargs or {}))
        decision = self._decisions[len(self.charges)]
        self.flips += int((op.decide(own, *args) != decision).sum())
        followed = op.follow(decision, values, *args[1:])
        change = torch.linalg.vector_norm(_first(followed) - _first(own))
        norm = torch.linalg.vector_norm(_first(own))
        self.charges.append((change / norm).item() if change > 0 else 0.0)
        return args[0].copy_(followed) if op.in_place else followed
