"""Cases of torch.compile: a program of a few functional steps, compiled for the device
and run as it is on the CPU."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from fuzz.builder import Builder, Stop
from fuzz.program import Program, Ref, Step, references, resolve
from fuzz.tensors import FLOATS, INTEGERS, draw_broadcast, draw_shape
from torch.utils._pytree import tree_map

_UNARY = (
    *("relu", "tanh", "sigmoid", "neg", "abs", "exp", "sin", "square", "erf", "floor"),
    *("nn.functional.gelu", "nn.functional.silu", "nn.functional.softplus", "isnan"),
    *("expm1", "log1p", "sqrt", "rsqrt", "trunc", "round", "sign", "logical_not"),
    *("nn.functional.mish", "nn.functional.elu", "nn.functional.hardswish"),
)
_BINARY = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "lt", "ge"),
    *("floor_divide", "remainder", "fmod", "pow", "hypot", "copysign", "nextafter"),
)
_REDUCE = ("sum", "mean", "amax", "amin", "softmax", "cumsum", "argmax", "logsumexp")
_INTEGER = ("add", "sub", "mul", "maximum", "minimum", "bitwise_xor", "lt", "eq")
_INTEGER_UNARY = ("abs", "neg", "square", "sign", "bitwise_not")
_INTEGER_REDUCE = ("sum", "amax", "argmin", "cumsum", "prod", "any")
_MOST = 100_000  # elements an index may read
_FACTORS = (3, 255, 1_000_003, 2_147_483_647)
_ROWS = ("var", "std", "log_softmax", "sum", "mean", "amax", "softmax")


@dataclass(frozen=True)
class Graph:
    """Steps over tensors ``inputs``; all their results are returned."""

    inputs: tuple[int, ...]
    steps: tuple[Step, ...]

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        values = dict(zip(self.inputs, tensors, strict=True))
        for step in self.steps:
            args, kwargs = tree_map(
                lambda leaf: values[leaf.name] if isinstance(leaf, Ref) else leaf,
                (step.args, step.kwargs),
            )
            values[step.result] = resolve(step.target)(*args, **kwargs)
        return [values[step.result] for step in self.steps]

    def compiled(self, dynamic: bool):
        """The same, by Inductor."""
        graph = torch.fx.Graph()
        values = {name: graph.placeholder(f"t{name}") for name in self.inputs}
        for step in self.steps:
            args, kwargs = tree_map(
                lambda leaf: values[leaf.name] if isinstance(leaf, Ref) else leaf,
                (step.args, step.kwargs),
            )
            if step.target.startswith("."):
                node = graph.call_method(step.target[1:], args, kwargs)
            else:
                node = graph.call_function(resolve(step.target), args, kwargs)
            values[step.result] = node
        graph.output([values[step.result] for step in self.steps])
        torch._dynamo.reset()
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        return torch.compile(module, dynamic=dynamic)

    def __str__(self) -> str:
        return "[" + "; ".join(map(str, self.steps)) + "]"

    __repr__ = __str__


def compiled(rng: random.Random) -> Program:
    """Floats: pointwise ops, reductions, views and products."""
    b = Builder(rng)
    dtype, grad = rng.choices(FLOATS, (8, 1, 2, 2))[0], b.chance(0.3)
    shape = draw_shape(rng, 1, 4)
    for _ in range(rng.randint(1, 3)):
        b.input(draw_broadcast(rng, shape), dtype, grad=grad, expand=b.chance(0.1))
    _add_steps(b, _STEPS)
    return _program(b, grad)


def compiled_integers(rng: random.Random) -> Program:
    """Integers that wrap, positions, and indices computed from them."""
    b = Builder(rng)
    shape = draw_shape(rng, 1, 4)
    for _ in range(rng.randint(1, 2)):
        b.input(draw_broadcast(rng, shape), rng.choice(INTEGERS), special=0.1)
    b.input(shape, rng.choice(FLOATS))
    _add_steps(b, _INTEGER_STEPS)
    return _program(b, False)


def _add_steps(b: Builder, kinds: tuple) -> None:
    try:
        for _ in range(b.rng.randint(2, 9)):
            tensors = b.tensors()
            ref, _ = tensors[-1] if b.chance(0.5) else b.rng.choice(tensors)
            b.rng.choice(kinds)(b, ref)
    except Stop:
        b.steps.pop()  # what raises is no subject of a compiler


def _program(b: Builder, grad: bool) -> Program:
    """The steps as one call of a compiled graph."""
    steps = tuple(step for step in b.steps if step.result is not None)
    used = set().union(*(references(step) for step in steps)) if steps else set()
    inputs = tuple(name for name in b.inputs if name in used)
    graph, dynamic = Graph(inputs, steps), b.chance(0.2)
    call = Step(
        "action:run_compiled",
        (graph, dynamic, *map(Ref, inputs)),
        result=max((0, *inputs, *(step.result for step in steps))) + 1,
    )
    given = {name: b.inputs[name] for name in inputs}
    return Program(given, [call] if steps else [], "torch.compile", grad)


def _other(b: Builder, ref: Ref):
    if b.chance(0.25):
        return b.rng.choice((2, 0.5, -1.25))
    return b.rng.choice([other for other, _ in b.tensors()])


def unary(b: Builder, ref: Ref) -> None:
    b.attempt(b.rng.choice(_UNARY), ref)


def binary(b: Builder, ref: Ref) -> None:
    b.attempt(b.rng.choice(_BINARY), ref, _other(b, ref))


def reduce(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim():
        b.attempt(b.rng.choice(_REDUCE), ref, b.rng.randrange(b.tensor(ref).dim()))


def reduce_kept(b: Builder, ref: Ref) -> None:
    """What broadcasts with the tensor again."""
    if b.tensor(ref).dim():
        name = b.rng.choice(_ROWS)
        kept = {} if "softmax" in name else {"keepdim": True}
        b.attempt(name, ref, b.rng.randrange(b.tensor(ref).dim()), **kept)


def where(b: Builder, ref: Ref) -> None:
    mask = b.attempt("gt", ref, 0.1)
    if mask is not None:
        b.attempt("where", mask, ref, _other(b, ref))


def view(b: Builder, ref: Ref) -> None:
    dims = b.tensor(ref).dim()
    if dims >= 2 and b.chance(0.5):
        b.attempt("transpose", ref, b.rng.randrange(dims), b.rng.randrange(dims))
    elif dims and b.chance(0.5):
        dim = b.rng.randrange(dims)
        size = b.tensor(ref).shape[dim]
        b.attempt("narrow", ref, dim, size // 3, size - size // 3)
    elif dims:
        b.attempt("flip", ref, (b.rng.randrange(dims),))
    else:
        b.attempt(".unsqueeze", ref, 0)


def join(b: Builder, ref: Ref) -> None:
    shape = b.tensor(ref).shape
    same = [o for o, value in b.tensors() if value.shape == shape]
    if shape:
        b.attempt("cat", [ref, b.rng.choice(same)], b.rng.randrange(len(shape)))


def convert(b: Builder, ref: Ref) -> None:
    """To no half type: Inductor keeps what is rounded and widened again."""
    b.attempt(b.rng.choice((".float", ".double", ".long")), ref)


def product(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim() >= 2:
        flipped = b.attempt("transpose", ref, -1, -2)
        if flipped is not None:
            b.attempt("matmul", ref, flipped)


_STEPS = (
    *(unary, unary, binary, binary, reduce, reduce_kept, reduce_kept, where, view),
    *(join, convert, product),
)


def _is_integer(b: Builder, ref: Ref) -> bool:
    dtype = b.tensor(ref).dtype
    return not dtype.is_floating_point and dtype != torch.bool


def integer_unary(b: Builder, ref: Ref) -> None:
    if _is_integer(b, ref):
        b.attempt(b.rng.choice(_INTEGER_UNARY), ref)


def integer_binary(b: Builder, ref: Ref) -> None:
    integers = [other for other, _ in b.tensors() if _is_integer(b, other)]
    if _is_integer(b, ref):
        b.attempt(b.rng.choice(_INTEGER), ref, b.rng.choice(integers))


def by_number(b: Builder, ref: Ref) -> None:
    """Numbers the dtype has, and no division by zero."""
    if not _is_integer(b, ref):
        return
    info = torch.iinfo(b.tensor(ref).dtype)
    name = b.rng.choice(("add", "mul", "floor_divide", "remainder", "shift"))
    if name == "shift":
        count = b.rng.randrange(info.bits)
        b.attempt(
            b.rng.choice(("bitwise_right_shift", "bitwise_left_shift")), ref, count
        )
    else:
        b.attempt(name, ref, b.rng.choice([f for f in _FACTORS if f <= info.max]))


def integer_reduce(b: Builder, ref: Ref) -> None:
    dims, name = b.tensor(ref).dim(), b.rng.choice(_INTEGER_REDUCE)
    if name == "any" and b.tensor(ref).dtype == torch.uint8:
        return  # Inductor makes it bool
    if dims and _is_integer(b, ref):
        b.attempt(name, ref, b.rng.randrange(dims))


def positions(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim():
        dim = b.rng.randrange(b.tensor(ref).dim())
        b.attempt("action:positions", ref, dim)


def index(b: Builder, ref: Ref) -> None:
    """Rows at positions that were computed."""
    tensor = b.tensor(ref)
    indices = [other for other, value in b.tensors() if value.dtype == torch.int64]
    if not (tensor.dim() and tensor.shape[0] and indices):
        return
    inside = b.attempt("remainder", b.rng.choice(indices), tensor.shape[0])
    if inside is not None and b.tensor(inside).numel() * tensor[0].numel() < _MOST:
        b.attempt("action:take", ref, (inside,))


_INTEGER_STEPS = (
    *(integer_unary, integer_binary, integer_binary, by_number, by_number),
    *(integer_reduce, positions, index, index, view, where),
)
