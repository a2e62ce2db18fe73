"""Cases of many steps over a few tensors that share memory, shapes and streams: what
is put off, kept or reused between calls shows in them."""

from __future__ import annotations

import random

import torch
from fuzz import metadata
from fuzz.builder import Builder, Stop
from fuzz.layers import draw_convolution
from fuzz.program import Program, Ref
from fuzz.tensors import draw_shape

_DTYPES = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16)
_MOST_STEPS = 14
_UNARY = ("relu", "tanh", "sigmoid", "neg", "abs", "square", "clone", "sin", "positive")
_UNARY_IN_PLACE = (".relu_", ".tanh_", ".neg_", ".abs_", ".sigmoid_", ".zero_")


def sequence(rng: random.Random) -> Program:
    """Any steps one after the other."""
    b = Builder(rng)
    dtype, shape = rng.choice(_DTYPES), draw_shape(rng, 1, 4)
    grad = b.chance(0.15)
    for _ in range(rng.randint(1, 3)):
        b.input(shape, dtype, grad=grad)
    return _grown(b, "sequence", _STEPS, grad)


def bounded(rng: random.Random) -> Program:
    """Batch normalisations, and what may join them or change their tensors."""
    b = Builder(rng)
    shape = (rng.choice((1, 2, 3)), rng.choice((1, 3, 4, 16)))
    shape += tuple(rng.choice((1, 2, 5, 9, 16)) for _ in range(rng.choice((0, 1, 2))))
    dtype = rng.choice(_DTYPES)
    x = b.input(shape, dtype)
    steps = (batch_norm, clamp, clamp, change, unary, write_through_view, forget, view)
    try:
        batch_norm(b, x)
    except Stop:
        return b.program("batch_norm sequence")
    return _grown(b, "batch_norm sequence", steps, False)


def foreach(rng: random.Random) -> Program:
    """Chains of _foreach_ ops over lists, some of whose tensors share memory."""
    b = Builder(rng)
    dtype = rng.choice((torch.float32, torch.float32, torch.float64, torch.float16))
    count = rng.choice((1, 2, 3, 5, 9))
    shapes = [draw_shape(rng, 0, 3) for _ in range(count)]
    layout = b.chance(0.3)
    lists = [
        [b.input(shape, dtype, low=0.5, high=2, layout=layout) for shape in shapes]
        for _ in range(rng.randint(2, 4))
    ]
    if b.chance(0.2):
        lists.append([b.rng.choice(pair) for pair in zip(*lists[:2], strict=True)])
    try:
        for _ in range(rng.randint(3, _MOST_STEPS)):
            if b.chance(0.8):
                _foreach_step(b, lists)
            else:
                tensor = rng.choice(rng.choice(lists))
                rng.choice((change, write_through_view, unary))(b, tensor)
            _switch_stream(b)
    except Stop:
        pass
    return b.program("_foreach_ sequence")


def _foreach_step(b: Builder, lists: list[list[Ref]]) -> None:
    mine, other, third = (b.rng.choice(lists) for _ in range(3))
    scalar = b.rng.choice((0.5, 2, 1.25, -1.0))
    kind = b.rng.randrange(8)
    if kind == 0:
        name = b.rng.choice(("_foreach_mul_", "_foreach_add_", "_foreach_sub_"))
        b.attempt(name, mine, scalar, result=False)
    elif kind == 1:
        name = b.rng.choice(("_foreach_mul_", "_foreach_add_", "_foreach_maximum_"))
        b.attempt(name, mine, other, result=False)
    elif kind == 2:
        name = b.rng.choice(("_foreach_addcmul_", "_foreach_addcdiv_"))
        b.attempt(name, mine, other, third, value=scalar, result=False)
    elif kind == 3:
        b.attempt("_foreach_lerp_", mine, other, 0.25, result=False)
    elif kind == 4:
        name = b.rng.choice(("_foreach_abs_", "_foreach_neg_", "_foreach_reciprocal_"))
        b.attempt(name, mine, result=False)
    elif kind == 5:
        name = b.rng.choice(("_foreach_copy_", "_foreach_div_"))
        b.attempt(name, mine, other, result=False)
    elif kind == 6:
        b.attempt("_foreach_add_", mine, other, alpha=scalar, result=False)
    else:
        scalars = [b.rng.choice((0.5, 2.0, 3.0)) for _ in mine]
        b.attempt("_foreach_mul_", mine, scalars, result=False)


_OPTIMIZERS = {
    "SGD": ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}),
    "Adam": ({}, {"amsgrad": True}, {"weight_decay": 0.1}, {"maximize": True}),
    "AdamW": ({}, {"amsgrad": True}, {"weight_decay": 0.1}),
    "RMSprop": ({}, {"momentum": 0.5, "centered": True}),
    "Adagrad": ({}, {"lr_decay": 0.1}),
    "Adadelta": ({},),
    "NAdam": ({},),
    "RAdam": ({},),
    "Adamax": ({},),
    "ASGD": ({},),
    "Rprop": ({},),
}


def optimizer(rng: random.Random) -> Program:
    """Steps of an optimizer, with writes to its parameters in between."""
    b = Builder(rng)
    name = rng.choice(list(_OPTIMIZERS))
    options = {"lr": 0.01, **rng.choice(_OPTIMIZERS[name])}
    implementation = rng.choice(("foreach", "single", "fused"))
    fused = implementation == "fused" and name in ("SGD", "Adam", "AdamW", "Adagrad")
    options["foreach"] = implementation == "foreach"
    if fused:
        options = {**options, "foreach": False, "fused": True}
    dtype = rng.choice((torch.float32, torch.float32, torch.float64))
    layout = b.chance(0.3)
    parameters = [
        b.input(draw_shape(rng, 0, 3), dtype, layout=layout)
        for _ in range(rng.choice((1, 2, 5)))
    ]
    try:
        made = b.call("action:make_optimizer", name, parameters, **options)
        for _ in range(rng.randint(1, 4)):
            b.call("action:step_optimizer", made, result=False)
            if b.chance(0.4):
                write_through_view(b, rng.choice(parameters))
            if b.chance(0.2):
                unary(b, rng.choice(parameters))
            _switch_stream(b)
        b.call("action:optimizer_state", made)
    except Stop:
        pass
    return b.program(f"optimizer {name}")


def packed_weights(rng: random.Random) -> Program:
    """Convolutions and products of one weight, with writes to it in between."""
    b = Builder(rng)
    if b.chance(0.6):
        x, weight, bias, dims, options = draw_convolution(b, False, False)
        target, args = f"nn.functional.conv{dims}d", (x, weight, bias)
    else:
        sizes = (1, 2, 8, 9, 33, 64, 129)
        m, k, n = (rng.choice(sizes) for _ in range(3))
        dtype, options = rng.choice(_DTYPES), {}
        x, weight = b.input((m, k), dtype), b.input((n, k), dtype)
        target, args = "nn.functional.linear", (x, weight)
    writes = (
        write_in_place,
        write_through_view,
        write_data,
        copy_over,
        set_data_of_equal,
        foreach_write,
    )
    try:
        for _ in range(rng.randint(2, 5)):
            b.call(target, *args, **options)
            if b.chance(0.3):
                b.call(target, *args, **options)
            if b.chance(0.7):
                rng.choice(writes)(b, weight)
            _switch_stream(b)
        b.call(target, *args, **options)
    except Stop:
        pass
    return b.program("packed weights")


def _grown(b: Builder, subject: str, steps: tuple, grad: bool) -> Program:
    try:
        for _ in range(b.rng.randint(2, _MOST_STEPS)):
            tensors = b.tensors()
            if not tensors:
                break
            # The newest is what the next step is likely to meet.
            ref, _ = tensors[-1] if b.chance(0.6) else b.rng.choice(tensors)
            b.rng.choice(steps)(b, ref)
            _switch_stream(b)
    except Stop:
        pass
    return b.program(subject, grad)


def _switch_stream(b: Builder) -> None:
    if b.chance(0.08):
        b.stream = b.rng.choice((None, 1, 2))


def batch_norm(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    if tensor.dim() < 2:
        return
    channels, dtype = tensor.shape[1], tensor.dtype
    mean = b.input((channels,), dtype, layout=False)
    variance = b.input((channels,), dtype, low=0.5, high=2.0, layout=False)
    scales = [None, None]
    if b.chance(0.6):
        scales = [b.input((channels,), dtype, layout=False) for _ in range(2)]
    training = b.chance(0.4)
    b.attempt("nn.functional.batch_norm", ref, mean, variance, *scales, training)


def clamp(b: Builder, ref: Ref) -> None:
    name = b.rng.choice((".relu_", ".clamp_", ".clamp_min_", "hardtanh", "relu6"))
    if name == ".clamp_":
        low, high = b.rng.choice(((0, 6), (-1, 1), (None, 0.5), (0.25, None), (1, -1)))
        b.attempt(name, ref, low, high, result=False)
    elif name == ".clamp_min_":
        b.attempt(name, ref, 0.125, result=False)
    elif name in ("hardtanh", "relu6"):
        b.attempt(f"nn.functional.{name}", ref, inplace=True, result=False)
    else:
        b.attempt(name, ref, result=False)


def change(b: Builder, ref: Ref) -> None:
    metadata.change(b, ref)


def unary(b: Builder, ref: Ref) -> None:
    b.attempt(b.rng.choice(_UNARY), ref)


def unary_in_place(b: Builder, ref: Ref) -> None:
    b.attempt(b.rng.choice(_UNARY_IN_PLACE), ref, result=False)


def binary(b: Builder, ref: Ref) -> None:
    other = _another(b, ref)
    b.attempt(b.rng.choice(("add", "mul", "sub", "maximum")), ref, other)


def binary_in_place(b: Builder, ref: Ref) -> None:
    other = _another(b, ref)
    b.attempt(b.rng.choice((".add_", ".mul_", ".sub_")), ref, other, result=False)


def binary_out(b: Builder, ref: Ref) -> None:
    b.attempt("add", ref, 0.5, out=_another(b, ref), result=False)


def _another(b: Builder, ref: Ref):
    """A tensor of the same dtype, more often of the same shape, or a number."""
    tensor = b.tensor(ref)
    same = [
        other
        for other, value in b.tensors()
        if value.dtype == tensor.dtype and value.shape == tensor.shape
    ]
    if b.chance(0.1):
        same = [other for other, value in b.tensors() if value.dtype == tensor.dtype]
    return b.rng.choice(same)


def scale(b: Builder, ref: Ref) -> None:
    number = b.rng.choice((2, 0.5, -1, 1.5))
    b.attempt(b.rng.choice((".mul_", ".add_")), ref, number, result=False)


def view(b: Builder, ref: Ref) -> Ref | None:
    tensor = b.tensor(ref)
    dims = tensor.dim()
    kinds = ["flatten", "detach", "squeeze", "unsqueeze"]
    if dims:
        kinds += ["narrow", "select", "slice", "expand", "unfold"]
    if dims >= 2:
        kinds += ["transpose", "diagonal", "permute"]
    kind = b.rng.choice(kinds)
    dim = b.rng.randrange(dims) if dims else 0
    size = tensor.shape[dim] if dims else 1
    if kind == "flatten":
        return b.attempt(".view", ref, -1)
    if kind == "detach":
        return b.attempt(".detach", ref)
    if kind == "squeeze":
        return b.attempt("squeeze", ref)
    if kind == "unsqueeze":
        return b.attempt("unsqueeze", ref, dim)
    if kind == "narrow":
        start = b.rng.randint(0, size)
        return b.attempt("narrow", ref, dim, start, b.rng.randint(0, size - start))
    if kind == "select":
        return b.attempt("select", ref, dim, b.rng.randint(0, max(size - 1, 0)))
    if kind == "slice":
        step = slice(b.rng.choice((None, 1)), None, b.rng.choice((1, 2, 3)))
        return b.attempt("action:take", ref, (slice(None),) * dim + (step,))
    if kind == "expand":
        return b.attempt(".expand", ref, (2, *tensor.shape))
    if kind == "unfold" and size:
        return b.attempt(".unfold", ref, dim, min(2, size), 2)
    if kind == "transpose":
        return b.attempt("transpose", ref, dim, b.rng.randrange(dims))
    if kind == "diagonal":
        return b.attempt("diagonal", ref, b.rng.choice((0, 1, -1)), 0, 1)
    return b.attempt("permute", ref, tuple(b.rng.sample(range(dims), dims)))


def write_through_view(b: Builder, ref: Ref) -> None:
    seen = view(b, ref)
    if seen is not None:
        write_in_place(b, seen)
        if b.chance(0.5):
            b.forget(seen)


def write_in_place(b: Builder, ref: Ref) -> None:
    target, *arguments = b.rng.choice(
        ((".mul_", 1.5), (".add_", 0.25), (".zero_",), (".fill_", 0.75), (".neg_",))
    )
    b.attempt(target, ref, *arguments, result=False)


def write_index(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    if tensor.dim() and tensor.shape[0]:
        index = (b.rng.randrange(tensor.shape[0]), ...)
        b.attempt("action:assign", ref, index, 0.5, result=False)


def write_data(b: Builder, ref: Ref) -> None:
    b.attempt("action:write_data", ref, 0.5, result=False)


def copy_over(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    b.attempt(".copy_", ref, b.input(tensor.shape, tensor.dtype), result=False)


def set_data_of_equal(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    other = b.input(tensor.shape, tensor.dtype)
    b.attempt("action:set_data", ref, other, result=False)


def foreach_write(b: Builder, ref: Ref) -> None:
    b.attempt("_foreach_mul_", [ref], 0.5, result=False)


def foreach_pair(b: Builder, ref: Ref) -> None:
    b.attempt("_foreach_add_", [ref, _another(b, ref)], 0.5, result=False)


def reduce(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    name = b.rng.choice(("sum", "mean", "amax", "softmax", "cumsum"))
    if tensor.dim():
        b.attempt(name, ref, b.rng.randrange(tensor.dim()))


def convert(b: Builder, ref: Ref) -> None:
    dtype = b.rng.choice((torch.float64, torch.float32))
    b.attempt(".to", ref, dtype, copy=b.chance(0.5))


def join(b: Builder, ref: Ref) -> None:
    b.attempt("cat", [ref, _another(b, ref)], 0)


def matmul(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim() >= 2 and b.fits_product(ref):
        flipped = b.attempt("transpose", ref, -1, -2)
        if flipped is not None:
            b.attempt("matmul", ref, flipped)


def flip(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim():
        b.attempt("flip", ref, (b.rng.randrange(b.tensor(ref).dim()),))


def copy_view(b: Builder, ref: Ref) -> None:
    b.attempt(".copy_", ref, _another(b, ref), result=False)


def forget(b: Builder, ref: Ref) -> None:
    if len(b.tensors()) > 1:
        b.forget(ref)


_STEPS = (
    unary,
    unary_in_place,
    binary,
    binary,
    binary_in_place,
    binary_out,
    scale,
    scale,
    view,
    view,
    view,
    change,
    change,
    change,
    batch_norm,
    clamp,
    clamp,
    write_in_place,
    write_through_view,
    write_through_view,
    write_index,
    write_data,
    copy_over,
    foreach_pair,
    reduce,
    convert,
    join,
    matmul,
    flip,
    copy_view,
    forget,
)
