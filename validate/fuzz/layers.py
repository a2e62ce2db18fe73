"""Cases of layers, products and indexing with shapes of their own, some beyond those
of torch's samples."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

import torch
from fuzz.builder import Builder, Stop
from fuzz.program import Program, Ref
from fuzz.tensors import FLOATS, INTEGERS, draw_shape, draw_values

_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33)
_SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17, 23, 28)
_ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 129)


def layer(rng: random.Random) -> Program:
    return drawn(rng, _LAYERS)


def drawn(rng: random.Random, makers: Sequence[Callable]) -> Program:
    """A case of one of ``makers``, with its gradients or without."""
    b = Builder(rng)
    make = rng.choice(makers)
    grad = b.chance(0.5)
    with contextlib.suppress(Stop):
        make(b, grad)
    return b.program(make.__name__, grad)


def _dtype(b: Builder) -> torch.dtype:
    return b.rng.choices(FLOATS, (8, 2, 2, 2))[0]


def _pick(b: Builder, sizes: tuple[int, ...]) -> int:
    return b.rng.choice(sizes)


def _image(b: Builder, dims: int, channels: int, most: int = 60_000) -> tuple:
    batch = b.rng.choice((1, 1, 2, 3))
    sides = [_pick(b, _SIDES) for _ in range(dims)]
    while batch * channels * torch.Size(sides).numel() > most:
        sides[sides.index(max(sides))] //= 2
    return (batch, channels, *(max(side, 1) for side in sides))


def _each(b: Builder, dims: int, choices: tuple):
    """One number for all dimensions, or one each."""
    if b.chance(0.6):
        return b.rng.choice(choices)
    return tuple(b.rng.choice(choices) for _ in range(dims))


def convolution(b: Builder, grad: bool) -> None:
    x, weight, bias, dims, options = draw_convolution(b, grad, transposed=False)
    b.call(f"nn.functional.conv{dims}d", x, weight, bias, **options)


def transposed_convolution(b: Builder, grad: bool) -> None:
    x, weight, bias, dims, options = draw_convolution(b, grad, transposed=True)
    if b.chance(0.3):
        options["output_padding"] = _each(b, dims, (0, 1))
    b.call(f"nn.functional.conv_transpose{dims}d", x, weight, bias, **options)


def draw_convolution(b: Builder, grad: bool, transposed: bool) -> tuple:
    dims = b.rng.choices((1, 2, 3), (2, 8, 1))[0]
    dtype = _dtype(b)
    groups = b.rng.choice((1, 1, 1, 2, 3, 4))
    ins, outs = groups * b.rng.choice((1, 2, 3, 4, 8)), groups * _pick(b, (1, 2, 4, 5))
    if b.chance(0.2):
        groups = ins = _pick(b, _CHANNELS)
        outs = groups * b.rng.choice((1, 1, 2))
    if b.chance(0.05):
        ins += 1
    kernel_size = tuple(b.rng.choice((1, 2, 3, 3, 3, 5)) for _ in range(dims))
    if b.chance(0.6):
        kernel_size = kernel_size[:1] * dims
    left, right = (ins, outs) if transposed else (outs, ins)
    weight = (left, max(right // groups, 1), *kernel_size)
    options = {
        "stride": _each(b, dims, (1, 1, 2, 3)),
        "padding": _each(b, dims, (0, 1, 2)),
        "dilation": _each(b, dims, (1, 1, 1, 2)),
        "groups": groups,
    }
    x = b.input(_image(b, dims, ins), dtype, grad=grad)
    w = b.input(weight, dtype, grad=grad, layout=b.chance(0.5))
    bias = b.input((outs,), dtype, grad=grad) if b.chance(0.5) else None
    return x, w, bias, dims, options


def _has_empty_window(
    sides: Sequence[int], dilation, kernel_size, stride, padding, ceil_mode: bool
) -> bool:
    """Whether a window has no element: its gradient goes elsewhere on torch's CPU,
    which writes outside of the tensor."""
    every = (dilation, kernel_size, stride, padding)
    each = [(n,) * len(sides) if isinstance(n, int) else n for n in every]
    for side, step, taps, by, pad in zip(sides, *each, strict=True):
        room = side + 2 * pad - step * (taps - 1) - 1
        last = (-(-room // by) if ceil_mode else room // by) * by - pad
        for start in range(-pad, last + 1, by):
            places = range(start, start + step * taps, step)
            if start < side and not any(0 <= place < side for place in places):
                return True
    return False


def pooling(b: Builder, grad: bool) -> None:
    dims = b.rng.choices((1, 2, 3), (2, 6, 2))[0]
    x = b.input(_image(b, dims, _pick(b, _CHANNELS)), _dtype(b), grad=grad)
    kind = b.rng.choice(("max", "avg", "adaptive_avg", "adaptive_max"))
    if kind.startswith("adaptive"):
        size = _each(b, dims, (1, 2, 3, 5, 7))
        b.call(f"nn.functional.{kind}_pool{dims}d", x, size)
        return
    options = {
        "kernel_size": _each(b, dims, (1, 2, 3, 4)),
        "stride": _each(b, dims, (1, 2, 3)),
        "padding": _each(b, dims, (0, 0, 1)),
        "ceil_mode": b.chance(0.3),
    }
    if kind == "max":
        dilation = _each(b, dims, (1, 1, 2))
        if not _has_empty_window(b.tensor(x).shape[2:], dilation, **options):
            options["dilation"] = dilation
        options["return_indices"] = b.chance(0.4)
    else:
        options["count_include_pad"] = b.chance(0.5)
    b.call(f"nn.functional.{kind}_pool{dims}d", x, **options)


def normalization(b: Builder, grad: bool) -> None:
    dtype, channels = _dtype(b), _pick(b, _CHANNELS)
    x = b.input(_image(b, b.rng.choice((0, 1, 2, 2, 3)), channels), dtype, grad=grad)
    shape = b.tensor(x).shape
    kind = b.rng.choice(("batch", "layer", "group", "instance", "rms"))
    if kind == "layer" or kind == "rms":
        size = shape[b.rng.randrange(1, len(shape)) :]
        weight = b.input(size, dtype, grad=grad) if b.chance(0.7) else None
        name = f"nn.functional.{kind}_norm"
        if kind == "rms":
            b.call(name, x, tuple(size), weight)
        else:
            bias = b.input(size, dtype, grad=grad) if b.chance(0.7) else None
            b.call(name, x, tuple(size), weight, bias)
        return
    weight = b.input((channels,), dtype, grad=grad) if b.chance(0.7) else None
    bias = b.input((channels,), dtype, grad=grad) if b.chance(0.7) else None
    if kind == "group":
        groups = b.rng.choice([n for n in range(1, channels + 1) if channels % n == 0])
        b.call("nn.functional.group_norm", x, groups, weight, bias)
        return
    mean = b.input((channels,), dtype, layout=False)
    variance = b.input((channels,), dtype, low=0.5, high=2.0, layout=False)
    if kind == "batch":
        training = b.chance(0.5)
        name = "nn.functional.batch_norm"
        b.call(name, x, mean, variance, weight, bias, training)
    else:
        b.call("nn.functional.instance_norm", x, mean, variance, weight, bias)


def product(b: Builder, grad: bool) -> None:
    dtype = _dtype(b)
    m, k, n = (_pick(b, _ROWS) for _ in range(3))
    if b.chance(0.05):
        m, k, n = b.rng.choice(((0, k, n), (m, 0, n), (m, k, 0)))
    batch = tuple(b.rng.choice((1, 2, 3)) for _ in range(b.rng.randint(0, 2)))
    kind = b.rng.choice(("matmul", "addmm", "baddbmm", "linear", "mv", "bmm", "einsum"))
    if kind == "matmul":
        other = batch[b.rng.randint(0, len(batch)) :]
        left = b.input((*batch, m, k), dtype, grad=grad, expand=True)
        b.call("matmul", left, b.input((*other, k, n), dtype, grad=grad, expand=True))
    elif kind == "linear":
        bias = b.input((n,), dtype, grad=grad) if b.chance(0.5) else None
        x = b.input((*batch, m, k), dtype, grad=grad)
        b.call("nn.functional.linear", x, b.input((n, k), dtype, grad=grad), bias)
    elif kind == "mv":
        left = b.input((m, k), dtype, grad=grad)
        b.call("mv", left, b.input((k,), dtype, grad=grad))
    elif kind == "addmm":
        bias = b.input(b.rng.choice(((n,), (m, n), (1, n), (m, 1))), dtype, grad=grad)
        left, right = (
            b.input((m, k), dtype, grad=grad),
            b.input((k, n), dtype, grad=grad),
        )
        scale = {"beta": b.rng.choice((0, 1, 0.5)), "alpha": b.rng.choice((1, -2, 0.5))}
        b.call("addmm", bias, left, right, **scale)
    else:
        left = b.input((3, m, k), dtype, grad=grad, expand=True)
        right = b.input((3, k, n), dtype, grad=grad, expand=True)
        if kind == "bmm":
            b.call("bmm", left, right)
        elif kind == "einsum":
            b.call("einsum", b.rng.choice(("bij,bjk->bik", "bij,bjk->ik")), left, right)
        else:
            b.call("baddbmm", b.input((3, 1, n), dtype, grad=grad), left, right)


def attention(b: Builder, grad: bool) -> None:
    dtype = _dtype(b)
    batch, heads = b.rng.choice((1, 2)), b.rng.choice((1, 2, 3))
    queries, keys = b.rng.choice(_ROWS[:-2]), b.rng.choice(_ROWS[:-2])
    size = b.rng.choice((4, 8, 15, 16, 32, 64))
    parts = [
        b.input((batch, heads, rows, size), dtype, grad=grad)
        for rows in (queries, keys, keys)
    ]
    options = {}
    if b.chance(0.3):
        options["is_causal"] = True
    elif b.chance(0.3):
        options["attn_mask"] = b.input((queries, keys), dtype)
    b.call("nn.functional.scaled_dot_product_attention", *parts, **options)


def resizing(b: Builder, grad: bool) -> None:
    dims = b.rng.choices((1, 2, 3), (1, 4, 1))[0]
    modes = {1: ("nearest", "linear", "nearest-exact", "area")}
    modes[2] = ("nearest", "bilinear", "bicubic", "nearest-exact", "area")
    modes[3] = ("nearest", "trilinear", "nearest-exact", "area")
    x = b.input(_image(b, dims, _pick(b, _CHANNELS[:8]), 8000), _dtype(b), grad=grad)
    mode = b.rng.choice(modes[dims])
    options = {"mode": mode}
    if b.chance(0.5):
        options["size"] = tuple(_pick(b, _SIDES) for _ in range(dims))
    else:
        options["scale_factor"] = b.rng.choice((0.5, 1.5, 2, 2.3, 3))
    if "linear" in mode or mode == "bicubic":
        options["align_corners"] = b.chance(0.5)
        options["antialias"] = dims == 2 and b.chance(0.3)
    b.call("nn.functional.interpolate", x, **options)


def padding(b: Builder, grad: bool) -> None:
    dims = b.rng.randint(1, 3)
    x = b.input(_image(b, dims, _pick(b, _CHANNELS)), _dtype(b), grad=grad)
    mode = b.rng.choice(("constant", "reflect", "replicate", "circular"))
    # With circular, torch leaves parts of a result unwritten that also shrinks.
    sizes = (0, 1, 2, 3) if mode == "circular" else (0, 1, 2, 3, -1)
    amounts = tuple(b.rng.choice(sizes) for _ in range(2 * dims))
    options = {"value": 0.5} if mode == "constant" else {}
    b.call("nn.functional.pad", x, amounts, mode=mode, **options)


def sampling(b: Builder, grad: bool) -> None:
    dims, dtype = b.rng.choice((2, 2, 3)), _dtype(b)
    shape = _image(b, dims, _pick(b, _CHANNELS), 8000)
    out = tuple(_pick(b, _SIDES[:10]) for _ in range(dims))
    grid = b.input((shape[0], *out, dims), dtype, low=-1.3, high=1.3, grad=grad)
    modes = ("bilinear", "nearest", "bicubic") if dims == 2 else ("bilinear", "nearest")
    b.call(
        "nn.functional.grid_sample",
        b.input(shape, dtype, grad=grad),
        grid,
        mode=b.rng.choice(modes),
        padding_mode=b.rng.choice(("zeros", "border", "reflection")),
        align_corners=b.chance(0.5),
    )


def _number_dtype(b: Builder) -> torch.dtype:
    return b.rng.choice((*FLOATS, *INTEGERS, torch.bool))


def indexing(b: Builder, grad: bool) -> None:
    """Valid indices only: others are reported when the host waits."""
    dtype = _dtype(b) if grad else _number_dtype(b)
    shape = draw_shape(b.rng, 1, 4)
    dim = b.rng.randrange(len(shape))
    size = shape[dim]
    if 0 in shape:
        return
    x = b.input(shape, dtype, grad=grad)
    count = _pick(b, (0, 1, 2, 5, 16, 33))
    positions = draw_values(b.rng, (count,), torch.int64, low=0, high=size - 1)
    chosen = (*shape[:dim], count, *shape[dim + 1 :])
    kind = b.rng.choice(("index_select", "gather", "take", "getitem", "scatter"))
    if kind == "index_select":
        b.call("index_select", x, dim, b.given(positions))
    elif kind == "getitem":
        signed = torch.where(positions % 2 == 0, positions, positions - size)
        index = (slice(None),) * dim + (b.given(signed),)
        b.call("action:take", x, index)
    elif kind == "take":
        elements = torch.Size(shape).numel()
        where = draw_values(b.rng, (count,), torch.int64, low=0, high=elements - 1)
        b.call("take", x, b.given(where))
    else:
        index = draw_values(b.rng, chosen, torch.int64, low=0, high=size - 1)
        if kind == "gather":
            b.call("gather", x, dim, b.given(index))
        elif dtype != torch.bool:
            source = b.input(chosen, dtype, grad=grad)
            reduce = b.rng.choice(("sum", "amax", "amin"))
            if grad:
                reduce = "sum"
            b.call("scatter_reduce", x, dim, b.given(index), source, reduce)


def writing(b: Builder, grad: bool) -> None:
    """Of indexed elements, in place."""
    dtype = _dtype(b) if grad else _number_dtype(b)
    shape = draw_shape(b.rng, 1, 4)
    dim = b.rng.randrange(len(shape))
    if not shape[dim]:
        return
    x = b.input(shape, dtype, grad=grad)
    if grad:
        x = b.call(".clone", x)
    count = b.rng.randint(0, min(shape[dim], 40))
    # Each once: the order of two writes to one element is nobody's.
    positions = b.given(torch.tensor(b.rng.sample(range(shape[dim]), count)).long())
    chosen = (*shape[:dim], count, *shape[dim + 1 :])
    source = b.input(chosen, dtype, grad=grad)
    kind = b.rng.choice(("index_copy_", "index_add_", "index_fill_", "masked_fill_"))
    if kind == "index_fill_":
        b.call(".index_fill_", x, dim, positions, 1, result=False)
    elif kind == "masked_fill_":
        mask = b.input(shape[b.rng.randint(0, len(shape)) :], torch.bool)
        b.call(".masked_fill_", x, mask, 1, result=False)
    else:
        b.call(f".{kind}", x, dim, positions, source, result=False)


def joining(b: Builder, grad: bool) -> None:
    dtype = _dtype(b) if grad else _number_dtype(b)
    shape = list(draw_shape(b.rng, 1, 4))
    dim = b.rng.randrange(len(shape))
    parts = []
    for _ in range(b.rng.choice((1, 2, 3, 9))):
        shape[dim] = b.rng.choice((0, 1, 2, 7, 16))
        parts.append(b.input(tuple(shape), dtype, grad=grad, expand=True))
    joined = b.call("cat", parts, dim)
    if b.chance(0.5):
        b.call("flip", joined, (dim,))
    else:
        b.call("roll", joined, b.rng.randint(-3, 3), dim)


def ordering(b: Builder, grad: bool) -> None:
    dtype = torch.float32 if grad else b.rng.choice((*FLOATS, *INTEGERS))
    x = b.input(draw_shape(b.rng, 1, 3), dtype, grad=grad)
    dim = b.rng.randrange(b.tensor(x).dim())
    kind = b.rng.choice(("sort", "topk", "cumsum", "cumprod", "cummax", "logcumsumexp"))
    if kind == "sort":
        b.call("sort", x, dim=dim, descending=b.chance(0.5), stable=True)
    elif kind == "topk":
        # Values alone: of equal elements the CPU picks any.
        size = b.tensor(x).shape[dim]
        found = b.call("topk", x, b.rng.randint(0, size), dim, b.chance(0.5))
        b.call("action:first", found)
        b.forget(found)
    else:
        b.call(kind, x, dim)


def copying(b: Builder, grad: bool) -> None:
    """Between dtypes and layouts."""
    shape = draw_shape(b.rng)
    source = b.input(shape, _number_dtype(b), expand=True, low=0, high=100)
    target = b.input(shape, _number_dtype(b))
    b.call(".copy_", target, source, result=False)
    formats = [torch.contiguous_format, torch.preserve_format]
    if len(shape) == 4:
        formats.append(torch.channels_last)
    b.call(".to", source, _number_dtype(b), memory_format=b.rng.choice(formats))


def losses(b: Builder, grad: bool) -> None:
    dtype = _dtype(b)
    rows, classes = _pick(b, _ROWS), _pick(b, _ROWS)
    sides = tuple(b.rng.choice((1, 2, 5)) for _ in range(b.rng.choice((0, 0, 1, 2))))
    x = b.input((rows, classes, *sides), dtype, grad=grad)
    target = draw_values(b.rng, (rows, *sides), torch.int64, low=0, high=classes - 1)
    options: dict = {"reduction": b.rng.choice(("mean", "sum", "none"))}
    if b.chance(0.4):
        options["weight"] = b.input((classes,), dtype, low=0.1, high=2.0)
    if b.chance(0.3):
        options["ignore_index"] = b.rng.randrange(classes)
    if b.chance(0.3):
        options["label_smoothing"] = 0.1
    b.call("nn.functional.cross_entropy", x, b.given(target), **options)


def softmax(b: Builder, grad: bool) -> None:
    x = b.input(draw_shape(b.rng, 1, 4), _dtype(b), grad=grad)
    name = b.rng.choice(("softmax", "log_softmax", "logsumexp"))
    b.call(name, x, b.rng.randrange(b.tensor(x).dim()))


_LAYERS: tuple[Callable[[Builder, bool], Ref | None], ...] = (
    convolution,
    convolution,
    transposed_convolution,
    pooling,
    normalization,
    product,
    attention,
    resizing,
    padding,
    sampling,
    indexing,
    writing,
    joining,
    ordering,
    copying,
    losses,
    softmax,
)
