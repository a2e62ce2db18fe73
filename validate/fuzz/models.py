"""Cases of what models are made of beyond single layers: recurrences, decoding with one
query, quantized weights, wide normalisations, depthwise filters, segments."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from fuzz.builder import Builder
from fuzz.layers import drawn
from fuzz.program import Program, Ref
from fuzz.tensors import FLOATS, draw_values

_HIDDEN = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 130)
_KEYS = (1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 129, 200, 255, 257, 513, 700, 1025)


def model(rng: random.Random) -> Program:
    return drawn(rng, _MODELS)


def _dtype(b: Builder) -> torch.dtype:
    return b.rng.choices(FLOATS, (8, 2, 2, 2))[0]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def recurrence(b: Builder, grad: bool) -> None:
    """Layers of lstm, gru and rnn over a few steps."""
    kind = b.rng.choice(("lstm", "lstm", "gru", "gru", "rnn_tanh", "rnn_relu"))
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    dtype = b.rng.choices(FLOATS, (12, 2, 1, 1))[0]
    steps, batch = b.rng.choice((1, 2, 3, 5, 11)), b.rng.choice((1, 2, 3, 4, 5, 9, 33))
    inputs, hidden = b.rng.choice(_HIDDEN[:-1]), b.rng.choice(_HIDDEN)
    layers = b.rng.choice((1, 1, 1, 2))
    both, batch_first, bias = b.chance(0.3), b.chance(0.4), b.chance(0.7)
    directions = 2 if both else 1
    bound = hidden**-0.5

    def parameter(*shape: int, layout: bool = False) -> Ref:
        options = {"low": -bound, "high": bound, "layout": layout, "grad": grad}
        return b.input(shape, dtype, **options)

    parameters = []
    for number in range(layers * directions):
        below = inputs if number < directions else hidden * directions
        parameters += [parameter(gates * hidden, below, layout=b.chance(0.1))]
        parameters += [parameter(gates * hidden, hidden, layout=b.chance(0.1))]
        if bias:
            parameters += [parameter(gates * hidden), parameter(gates * hidden)]
    shape = (batch, steps, inputs) if batch_first else (steps, batch, inputs)
    x = b.input(shape, dtype, grad=grad)
    state = (layers * directions, batch, hidden)
    first = b.input(state, dtype, low=-1, high=1, layout=b.chance(0.2), grad=grad)
    if kind == "lstm":
        first = [first, b.input(state, dtype, low=-1, high=1, layout=False, grad=grad)]
    training = grad or b.chance(0.2)
    options = (bias, layers, 0.0, training, both, batch_first)
    b.call(kind, x, first, parameters, *options)


def decoding_attention(b: Builder, grad: bool) -> None:
    """Attention of one query, or a few, to the keys of a cache."""
    dtype, batch = _dtype(b), b.rng.choice((1, 2, 3))
    heads = b.rng.choice((1, 2, 4, 6))
    key_heads = b.rng.choice(_divisors(heads))
    queries, keys = b.rng.choice((1, 1, 1, 2, 3)), b.rng.choice(_KEYS)
    size = b.rng.choice((1, 8, 16, 24, 33, 64, 65, 80, 128))
    value_size = b.rng.choice((size, size, size, 40))
    grad = grad and b.chance(0.3)
    query = b.input((batch, heads, queries, size), dtype, grad=grad)
    key = b.input((batch, key_heads, keys, size), dtype, grad=grad, expand=True)
    value = b.input((batch, key_heads, keys, value_size), dtype, grad=grad)
    options: dict = {"enable_gqa": key_heads != heads or b.chance(0.2)}
    if b.chance(0.2):
        options["scale"] = b.rng.choice((0.1, 0.5, 1.0))
    mask = [(queries, keys), (1, keys), (batch, 1, queries, keys), (1, heads, 1, keys)]
    if b.chance(0.3):
        seen = b.rng.random()
        draw = torch.rand(b.rng.choice(mask), generator=_generator(b)) < seen
        draw[..., b.rng.randrange(keys)] = True  # a query that sees nothing is NaN
        options["attn_mask"] = b.given(draw)
    elif b.chance(0.3):
        options["attn_mask"] = b.input(b.rng.choice(mask), dtype)
    elif b.chance(0.2):
        options["is_causal"] = True
    b.call("nn.functional.scaled_dot_product_attention", query, key, value, **options)


def _generator(b: Builder) -> torch.Generator:
    return torch.Generator().manual_seed(b.rng.getrandbits(40))


def _bytes(b: Builder, *shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return draw_values(b.rng, shape, dtype, low=limits.min, high=limits.max)


def quantized(b: Builder, grad: bool) -> None:
    """Products by weights of eight and four bits."""
    rows = b.rng.choice((1, 1, 2, 3, 5, 8, 9, 17, 40))
    dtype = b.rng.choice((torch.float32, torch.bfloat16, torch.float16))
    kind = b.rng.choice(("int8", "int8", "int4", "int4", "int_mm"))
    if kind == "int_mm":
        depth = b.rng.choice((1, 7, 8, 16, 33, 64, 257, 700))
        left = _bytes(b, rows, depth, dtype=b.rng.choice((torch.int8, torch.uint8)))
        right = _bytes(b, depth, b.rng.choice((1, 5, 8, 16, 33, 130)))
        b.call("action:int_mm", b.given(left), b.given(right))
    elif kind == "int8":
        depth = b.rng.choice((1, 7, 15, 16, 31, 64, 100, 257, 1030))
        lines = b.rng.choice((1, 3, 8, 17, 45, 130, 521))
        x = b.input((rows, depth), dtype, layout=False)
        scales = b.input((lines,), dtype, low=0.1, high=1.0, layout=False)
        weight = b.given(_bytes(b, lines, depth), layout=False)
        b.call("action:int8_product", x, weight, scales)
    else:
        group, inner = b.rng.choice((32, 64, 128)), b.rng.choice((2, 4, 8))
        depth = 128 * b.rng.choice((1, 2, 3, 8))
        lines = b.rng.choice((8, 16, 24, 40, 136))
        values = b.given(_bytes(b, lines, depth // 2, dtype=torch.uint8), layout=False)
        shape = (depth // group, lines, 2)
        pairs = b.input(shape, dtype, low=-0.5, high=0.7, layout=False)
        x = b.input((rows, depth), dtype, layout=False)
        b.call("action:int4_product", x, values, pairs, group, inner)


def wide_normalization(b: Builder, grad: bool) -> None:
    """Group and layer norms of rows longer, or more, than those of layers.py."""
    dtype = _dtype(b)
    channels = b.rng.choice((4, 6, 8, 12, 16, 32, 48, 64, 96))
    sides = [b.rng.choice((1, 3, 7, 16, 33, 70)) for _ in range(b.rng.randint(0, 2))]
    batch = b.rng.choice((1, 2, 5, 9))
    while batch * channels * torch.Size(sides).numel() > 60_000:
        sides[sides.index(max(sides))] //= 2
    shape = (batch, channels, *sides)
    x = b.input(shape, dtype, grad=grad)
    if b.chance(0.7):
        scales = [
            b.input((channels,), dtype, grad=grad) if b.chance(0.7) else None
            for _ in range(2)
        ]
        groups = b.rng.choice(_divisors(channels))
        b.call("nn.functional.group_norm", x, groups, *scales)
    else:
        size = shape[b.rng.randrange(1, len(shape)) :]
        weight = b.input(size, dtype, grad=grad) if b.chance(0.7) else None
        bias = b.input(size, dtype, grad=grad) if b.chance(0.5) else None
        b.call("nn.functional.layer_norm", x, tuple(size), weight, bias)


def depthwise_convolution(b: Builder, grad: bool) -> None:
    """Convolutions of a filter a channel, over several tiles."""
    dtype, channels = _dtype(b), b.rng.choice((1, 2, 4, 5, 8, 16, 17, 24, 32))
    outs = channels * b.rng.choice((1, 1, 1, 2, 3))
    sides = [b.rng.choice((1, 3, 7, 8, 15, 16, 17, 31, 33, 40, 65)) for _ in range(2)]
    batch = b.rng.choice((1, 1, 2, 3))
    while batch * channels * sides[0] * sides[1] > 60_000:
        sides[sides.index(max(sides))] //= 2
    size = b.rng.choice((1, 3, 3, 3, 5, 7, 9))
    kernel = (size, size) if b.chance(0.8) else (size, b.rng.choice((1, 3, 5)))
    options = {
        "stride": b.rng.choice((1, 1, 2, 3, (1, 2), (2, 1))),
        "padding": b.rng.choice((0, 1, size // 2, size // 2, size - 1)),
        "dilation": b.rng.choice((1, 1, 1, 2)),
        "groups": channels,
    }
    x = b.input((batch, channels, *sides), dtype, grad=grad)
    weight = b.input((outs, 1, *kernel), dtype, grad=grad, layout=b.chance(0.3))
    bias = b.input((outs,), dtype, grad=grad) if b.chance(0.5) else None
    b.call("nn.functional.conv2d", x, weight, bias, **options)


def weight_norm(b: Builder, grad: bool) -> None:
    shape = [b.rng.choice((1, 2, 3, 5, 16, 17, 33, 64)) for _ in range(4)]
    shape = shape[: b.rng.randint(1, 4)]
    while torch.Size(shape).numel() > 60_000:
        shape[shape.index(max(shape))] //= 2
    dim = b.rng.choice((0, len(shape) - 1))
    lengths = [1] * len(shape)
    lengths[dim] = shape[dim]
    dtype = _dtype(b)
    v, g = b.input(shape, dtype, grad=grad), b.input(lengths, dtype, grad=grad)
    b.call("_weight_norm", v, g, dim)


def segments(b: Builder, grad: bool) -> None:
    """Reductions of runs of rows."""
    dtype = b.rng.choice((torch.float32, torch.float32, torch.float64))
    lengths = [
        b.rng.choice((0, 1, 1, 2, 5, 17, 70)) for _ in range(b.rng.randint(1, 9))
    ]
    rows = sum(lengths)
    shape = (rows, *(b.rng.choice((1, 3, 8, 33)) for _ in range(b.rng.randint(0, 2))))
    data = b.input(shape, dtype, grad=grad)
    reduce = b.rng.choice(("sum", "mean", "max", "min", "prod"))
    options: dict = {"axis": 0, "unsafe": b.chance(0.5)}
    if b.chance(0.5):
        options["initial"] = 1.0
    index_dtype = b.rng.choice((torch.int64, torch.int32))
    if b.chance(0.5):
        options["lengths"] = b.given(torch.tensor(lengths, dtype=index_dtype))
    else:
        ends = torch.tensor([0, *lengths]).cumsum(0).to(index_dtype)
        options["offsets"] = b.given(ends)
    b.call("segment_reduce", data, reduce, **options)


_MODELS: tuple[Callable[[Builder, bool], None], ...] = (
    recurrence,
    recurrence,
    decoding_attention,
    decoding_attention,
    quantized,
    wide_normalization,
    depthwise_convolution,
    weight_norm,
    segments,
)
