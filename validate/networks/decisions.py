"""What a run decided, element by element: recorded, and imposed on another run.

ReLU and max pooling are piecewise linear. An element within rounding of a kink
falls on one side in float64 and on the other in float32, on any device, and
that one element moves gradients by far more than rounding does. A gradient is
right when it is the gradient of the piece the device was on. So the float64
reference is run along the device's own decisions, and each decision that
float64 would have taken differently is charged with what it changes in the
op's output, which has to be rounding.

The same goes for everything discrete that networks compute from real numbers:
comparisons, rounding, ranks, non-maximum suppression, and random choices. The ops
themselves are tested elsewhere, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

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


def _max_pool_follow(decision, values, *args):
    chosen = values.flatten(2).gather(2, decision.flatten(2))
    return chosen.view(decision.shape), decision


def _pooled(output, *args):
    return output[1]


def _plain(output, *args):
    return output


def _same(decision, values, *args):
    return decision.to(values.dtype) if decision.is_floating_point() else decision


_RELU = _Op(lambda output, *args: output > 0, _relu_follow)
# Its gradient asks for the input, which _Functions gives.
_HARDTANH = _Op(lambda output, values, *args: _hardtanh_side(output, *args), None)
_MAX_POOL = _Op(_pooled, _max_pool_follow)
_ROUNDING = _Op(_plain, _same)
_OPS = {
    aten.relu.default: _RELU,
    aten.relu_.default: _Op(_RELU.decide, _RELU.follow, in_place=True),
    aten.hardtanh.default: _HARDTANH,
    aten.hardtanh_.default: _HARDTANH,
    aten.max_pool2d_with_indices.default: _MAX_POOL,
    aten.max_pool3d_with_indices.default: _MAX_POOL,
    aten.floor.default: _ROUNDING,
    aten.ceil.default: _ROUNDING,
    aten.round.default: _ROUNDING,
}
# Values and indices along a dimension: the values follow the indices.
_RANKS = (
    aten.topk.default,
    aten.sort.default,
    aten.sort.stable,
    aten.max.dim,
    aten.min.dim,
)


def _first(output) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]


def _is_discrete(func, args, output) -> bool:
    """Whether integers or truth values come of floating-point values or chance."""
    tensors = [leaf for leaf in tree_leaves(output) if torch.is_tensor(leaf)]
    if not tensors or any(t.is_floating_point() for t in tensors):
        return False
    if func in (aten.empty_like.default, aten.zeros_like.default):
        return False
    values = (leaf for leaf in tree_leaves(args) if torch.is_tensor(leaf))
    return torch.Tag.nondeterministic_seeded in func.tags or any(
        value.is_floating_point() for value in values
    )


class Record(TorchDispatchMode):
    """Keeps the decisions of every op run within, in order, on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[tuple[str, torch.Tensor]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        op = _OPS.get(func)
        decision = None
        if op is not None:
            on_host = tree_map(lambda tensor: tensor.detach().cpu(), output)
            decision = op.decide(on_host, *args)
        elif func in _RANKS:
            decision = output[1].cpu()
        elif _is_discrete(func, args, output):
            decision = output.cpu()
        if decision is not None:
            self.decisions.append((str(func), decision.clone()))
        return output


class Follow(TorchDispatchMode):
    """Makes every op run within take recorded decisions.

    ``charges`` holds, for each op that gives floating-point values, the relative
    L2 change of its output; ``flips`` counts what was decided otherwise, of
    ``decided`` elements.
    """

    def __init__(
        self, decisions: list[tuple[str, torch.Tensor]], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self._functions = _Functions(self, dtype)
        self._decisions = iter(decisions)
        self.charges: list[float] = []
        self.flips = 0
        self.decided = 0

    def __enter__(self):
        self._functions.__enter__()
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self._functions.__exit__(*exception)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        op = _OPS.get(func)
        values = args[0].clone() if op is not None and op.in_place else None
        own = func(*args, **(kwargs or {}))
        if op is not None:
            decision = self.take(func, op.decide(own, *args))
            source = args[0] if values is None else values
            followed = op.follow(decision, source, *args[1:])
            self.charge(_first(own), _first(followed))
            return args[0].copy_(followed) if op.in_place else followed
        if func in _RANKS:
            decision = self.take(func, own[1])
            followed = self._at(func, decision, *args)
            self.charge(own[0], followed)
            return followed, decision
        if _is_discrete(func, args, own):
            return self.take(func, own)
        return own

    def take(self, func, own: torch.Tensor) -> torch.Tensor:
        name, decision = next(self._decisions)
        same = name.replace("_.default", ".default") == str(func).replace(
            "_.default", ".default"
        )
        if same and decision.shape != own.shape and own.dim() == 1:
            # One box more or less, or one index.
            self.flips += abs(len(decision) - len(own))
            self.decided += len(decision)
            return decision.clone()
        if not same or decision.shape != own.shape:
            raise RuntimeError(
                f"{func} gives {list(own.shape)} where the device's run had {name} "
                f"with {list(decision.shape)}"
            )
        self.flips += int((own != decision).sum())
        self.decided += decision.numel()
        # A copy: networks write into such tensors.
        return decision.clone()

    def charge(self, own: torch.Tensor, followed: torch.Tensor) -> None:
        if not own.is_floating_point():
            return
        change = torch.linalg.vector_norm(followed - own)
        norm = torch.linalg.vector_norm(own)
        self.charges.append((change / norm).item() if change > 0 else 0.0)

    @staticmethod
    def _at(func, decision, values, *args):
        """The values that the decision names."""
        if values.dim() == 0:
            return values.clone()
        if func in (aten.max.dim, aten.min.dim):
            dim, keepdim = args[0], len(args) > 1 and args[1]
            if keepdim:
                return values.gather(dim, decision)
            return values.gather(dim, decision.unsqueeze(dim)).squeeze(dim)
        place = {aten.topk.default: 1, aten.sort.default: 0}.get(func)
        dim = args[place] if place is not None and len(args) > place else -1
        return values.gather(dim, decision)


class _Functions(TorchFunctionMode):
    """What a following run has to change above autograd: hardtanh and relu6 are
    pieces, and a network that asks for float gets the run's dtype."""

    def __init__(self, follow: Follow, dtype: torch.dtype) -> None:
        super().__init__()
        self._follow = follow
        self._dtype = dtype

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            return args[0].to(self._dtype)
        if func is functional.relu6:
            args, kwargs = (args[0], 0.0, 6.0), {}
        elif func is not functional.hardtanh:
            return func(*args, **kwargs)
        values = args[0]
        low = args[1] if len(args) > 1 else kwargs.get("min_val", -1.0)
        high = args[2] if len(args) > 2 else kwargs.get("max_val", 1.0)
        with _disable_current_modes(), torch.no_grad():
            own = values.clamp(low, high)
            side = _hardtanh_side(own, low, high)
            decision = self._follow.take(aten.hardtanh.default, side)
            below, above = decision == 0, decision == 2
        followed = values.masked_fill(below, low).masked_fill(above, high)
        with _disable_current_modes(), torch.no_grad():
            self._follow.charge(own, followed)
        return followed
