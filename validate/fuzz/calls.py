"""Cases of one op: torch's own samples in any layout and form, and pointwise ops
and reductions of any shape."""

from __future__ import annotations

import itertools
import random

import numpy
import torch
from conformance.judge import UNINITIALISED
from fuzz import metadata
from fuzz.builder import Builder, Stop
from fuzz.known import EXCLUDED
from fuzz.program import Program, Ref, op_name, ops_by_name
from fuzz.tensors import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    draw_broadcast,
    draw_shape,
    draw_values,
    with_special,
)
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    ReductionOpInfo,
    UnaryUfuncInfo,
)
from torch.utils._pytree import tree_map

_DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
_WEIGHTS = {torch.float32: 8, torch.complex64: 1, torch.complex128: 1}
_MOST_SAMPLES = 60
_ELEMENTWISE = (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)
# Where batches of `out` have gaps torch's CPU writes outside of it.
_WITH_TRIANGLES = ("tril", "triu", "lu", "lu_unpack", "qr", "cholesky", "cholesky_ex")


class Unsuitable(Exception):
    """The sample is no case; another one is drawn."""


def database(rng: random.Random) -> Program:
    """An op of op_db on one of its samples."""
    while True:
        op = _draw_op(rng, list(ops_by_name().values()))
        try:
            return _of_sample(rng, op)
        except Unsuitable:
            continue


def elementwise(rng: random.Random) -> Program:
    """A pointwise op or a reduction of any shape."""
    ops = [op for op in ops_by_name().values() if isinstance(op, _ELEMENTWISE)]
    while True:
        op = _draw_op(rng, ops)
        try:
            return _of_shape(rng, op)
        except Unsuitable:
            continue


def _draw_op(rng: random.Random, ops: list):
    return rng.choice([op for op in ops if op.name not in EXCLUDED])


def _draw_dtype(rng: random.Random, op) -> torch.dtype:
    supported = op.supported_dtypes("cpu")
    dtypes = [dtype for dtype in _DTYPES if dtype in supported]
    if not dtypes:
        raise Unsuitable
    weights = [_WEIGHTS.get(dtype, 2) for dtype in dtypes]
    return rng.choices(dtypes, weights)[0]


def _seed_everything(rng: random.Random) -> None:
    """Samples draw from the global generators."""
    seed = rng.getrandbits(31)
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def _of_sample(rng: random.Random, op) -> Program:
    dtype = _draw_dtype(rng, op)
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    grad = grad and rng.random() < 0.4
    _seed_everything(rng)
    samples = op.sample_inputs("cpu", dtype, requires_grad=grad)
    samples = list(itertools.islice(samples, _MOST_SAMPLES))
    if not samples:
        raise Unsuitable
    sample = rng.choice(samples)
    b = Builder(rng)
    special = 0.15 if isinstance(op, _ELEMENTWISE) and b.chance(0.3) else 0.0
    laid = b.chance(0.6)

    def register(value):
        if isinstance(value, torch.Generator):
            raise Unsuitable
        if not torch.is_tensor(value):
            is_device = isinstance(value, str) and value == "cpu"
            return torch.device(value) if is_device else value
        if value.layout != torch.strided or value.is_quantized:
            raise Unsuitable
        values = value.detach().resolve_conj().resolve_neg().contiguous().clone()
        if special and values.is_floating_point():
            generator = torch.Generator().manual_seed(rng.getrandbits(40))
            values = with_special(values, generator, special)
        expand = values.is_floating_point() and b.chance(0.1)
        return b.given(values, laid, value.requires_grad, expand)

    args = tree_map(register, (sample.input, *sample.args))
    kwargs = tree_map(register, dict(sample.kwargs))
    return _in_some_form(b, op, args, kwargs, grad, sample.broadcasts_input)


def _of_shape(rng: random.Random, op) -> Program:
    dtype = _draw_dtype(rng, op)
    b = Builder(rng)
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    grad = grad and b.chance(0.4)
    special = 0.1 if b.chance(0.4) and not grad else 0.0
    if op.name == "lcm":  # of the least integer it ends the process on torch's CPU
        special = 0.0
    shape = draw_shape(rng)
    args: tuple
    kwargs: dict = {}
    _seed_everything(rng)
    if isinstance(op, BinaryUfuncInfo):
        args = _two_operands(b, op, dtype, shape, special, grad)
    else:
        low, high = getattr(op, "domain", None) or (None, None)
        if low is None or high is None or not dtype.is_floating_point:
            low = high = None
        if op.name == "polygamma":  # torch's CPU counts up from numbers below 0
            low, high = -1000.0, 1000.0
        placement = {"grad": grad, "expand": b.chance(0.1)}
        args = (b.input(shape, dtype, special, low, high, **placement),)
        if isinstance(op, UnaryUfuncInfo):
            kwargs = dict(op.sample_kwargs("cpu", dtype, b.tensor(args[0]))[0])
            if any(torch.is_tensor(value) for value in kwargs.values()):
                raise Unsuitable
        elif shape and b.chance(0.8):
            kwargs = _reduced(b, op, len(shape))
    return _in_some_form(b, op, args, kwargs, grad, False)


def _two_operands(b: Builder, op, dtype, shape, special, grad) -> tuple:
    other = draw_broadcast(b.rng, shape)
    if b.chance(0.5):
        shape, other = other, shape
    second = dtype
    if b.chance(0.25) and not grad:
        second = b.rng.choice(_DTYPES)
    without_zero = op.rhs_make_tensor_kwargs.get("exclude_zero", False)
    number = special
    if without_zero and not (dtype.is_floating_point or dtype.is_complex):
        number = 0.0
    left = b.input(shape, dtype, number, grad=grad)
    if b.chance(0.15) and op.supports_rhs_python_scalar:
        right = b.rng.choice((2, 3, 0.5, -1.25, True, 7))
        return left, right
    if "_polynomial_" in op.name and not second.is_floating_point:
        number = 0.0  # torch's CPU counts to its degree
    values = draw_values(b.rng, other, second, number)
    if without_zero and not values.is_floating_point():
        values[values == 0] = 1
    return left, b.given(values, grad=grad)


def _reduced(b: Builder, op, dims: int) -> dict:
    dim: object = b.rng.randrange(-dims, dims)
    if op.supports_multiple_dims and b.chance(0.5):
        dim = tuple(b.rng.sample(range(dims), b.rng.randint(1, dims)))
    kwargs = {"dim": dim}
    if b.chance(0.5):
        kwargs["keepdim"] = b.chance(0.7)
    return kwargs


def _in_some_form(
    b: Builder, op, args: tuple, kwargs: dict, grad: bool, broadcasts: bool
) -> Program:
    name = op_name(op)
    form = b.rng.choice(("functional", "functional", "in_place", "out"))
    result = None
    try:
        if form == "out" and op.supports_out and not grad:
            result = _with_out(b, op, args, kwargs)
        elif form == "in_place" and op.get_inplace() is not None and not broadcasts:
            first = args[0]
            if grad and isinstance(first, Ref):
                first = b.call(".clone", first)
            b.call(f"op_:{name}", first, *args[1:], result=False, **kwargs)
            result = first
        else:
            result = b.call(f"op:{name}", *args, **kwargs)
        if isinstance(result, Ref) and torch.is_tensor(b.tensor(result)) and not grad:
            while b.chance(0.25):
                metadata.change(b, result)
    except Stop:
        pass
    if op.name in UNINITIALISED:
        b.draws_numbers = True
    return b.program(name, grad)


def _with_out(b: Builder, op, args: tuple, kwargs: dict):
    """out= of the right shape, of another or empty, lying somehow."""
    expected = b.call(f"op:{op_name(op)}", *args, **kwargs)
    b.steps.pop()
    values = b._machine.values.pop(expected.name)
    wrong = b.chance(0.15)
    lies_anyhow = op.name.removeprefix("linalg.") not in _WITH_TRIANGLES

    def poison(value):
        if not torch.is_tensor(value):
            raise Unsuitable
        shape = tuple(value.shape)
        if wrong:
            shape = b.rng.choice(((0,), (*shape, 2), (3,)))
        dtype = value.dtype
        if b.chance(0.1):
            dtype = b.rng.choice(_DTYPES)
        fill = float("nan") if dtype.is_floating_point else 1
        return b.given(torch.full(shape, fill, dtype=dtype), layout=lies_anyhow)

    out = tree_map(poison, values)
    b.call(f"op:{op_name(op)}", *args, **kwargs, out=out, result=False)
    return out
