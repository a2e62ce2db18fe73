"""Cases of products, convolutions and batch normalisations followed by pointwise ops,
which join their launches on GPUs where nobody holds what lies between."""

from __future__ import annotations

import random

import torch
from fuzz import sequences
from fuzz.builder import Builder, Stop
from fuzz.layers import draw_convolution
from fuzz.program import Program, Ref

_DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
_ACTIVATIONS = ("gelu", "silu", "hardswish", "leaky_relu", "softplus", "elu", "relu")
_SIZES = (1, 2, 5, 8, 17, 33, 64, 130)


def joined(rng: random.Random) -> Program:
    b = Builder(rng)
    try:
        ref = rng.choice((_convolution, _product, _normalized))(b)
        for _ in range(rng.randint(1, 8)):
            held = b.chance(0.25)
            made = _step(b, ref)
            if b.chance(0.1):
                b.stream = rng.choice((None, 1, 2))
            if made is not None and made != ref:
                if not held:
                    b.forget(ref)
                ref = made
    except Stop:
        pass
    return b.program("joined ops")


def _convolution(b: Builder) -> Ref:
    transposed = b.chance(0.2)
    x, weight, bias, dims, options = draw_convolution(b, False, transposed)
    name = "conv_transpose" if transposed else "conv"
    return b.call(f"nn.functional.{name}{dims}d", x, weight, bias, **options)


def _product(b: Builder) -> Ref:
    m, k, n = (b.rng.choice(_SIZES) for _ in range(3))
    dtype = b.rng.choice(_DTYPES)
    x = b.input(b.rng.choice(((m, k), (2, m, k))), dtype)
    bias = b.input((n,), dtype) if b.chance(0.5) else None
    return b.call("nn.functional.linear", x, b.input((n, k), dtype), bias)


def _params(b: Builder, tensor: torch.Tensor) -> list[Ref | None]:
    """Of a batch normalisation: mean, variance, and a weight and a bias, or not."""
    channels, dtype = tensor.shape[1], tensor.dtype
    if dtype in (torch.float16, torch.bfloat16) and b.chance(0.5):
        dtype = torch.float32
    mean, scale, shift = (b.input((channels,), dtype, layout=False) for _ in range(3))
    variance = b.input((channels,), dtype, low=0.5, high=2.0, layout=False)
    scales = [scale, shift] if b.chance(0.7) else [None, None]
    return [mean, variance, *scales]


def _normalized(b: Builder) -> Ref:
    shape = (b.rng.choice((1, 2, 3)), b.rng.choice((1, 3, 16)), b.rng.choice(_SIZES))
    x = b.input(shape, b.rng.choice(_DTYPES))
    training = b.chance(0.5) and shape[0] * shape[2] > 1
    return b.call("nn.functional.batch_norm", x, *_params(b, b.tensor(x)), training)


def _step(b: Builder, ref: Ref) -> Ref | None:
    """The result of an op of `ref`; `ref` after one in place."""
    tensor = b.tensor(ref)
    kind = b.rng.randrange(10)
    if kind == 0:
        return b.attempt(f"nn.functional.{b.rng.choice(_ACTIVATIONS)}", ref)
    if kind == 1:
        sequences.clamp(b, ref)
        return ref
    if kind == 2:
        name = b.rng.choice(("add", "mul", "sub", "maximum"))
        operands = [ref, b.input(tensor.shape, tensor.dtype)]
        b.rng.shuffle(operands)
        return b.attempt(name, *operands)
    if kind == 3:
        name = b.rng.choice((".add_", ".mul_", ".sub_"))
        b.attempt(name, ref, b.input(tensor.shape, tensor.dtype), result=False)
        return ref
    if kind == 4 and tensor.dim() > 1:
        shape = (tensor.shape[1], *(1 for _ in tensor.shape[2:]))
        return b.attempt("mul", ref, b.input(shape, tensor.dtype))
    if kind == 5 and tensor.dim() > 1:
        return b.attempt(
            "nn.functional.batch_norm", ref, *_params(b, tensor), b.chance(0.2)
        )
    if kind == 6:
        number = b.rng.choice((2, 0.5, -1, 2049))
        return b.attempt(b.rng.choice(("add", "mul", "sub", "div")), ref, number)
    if kind == 7:
        operand = b.input(tensor.shape, tensor.dtype)
        b.attempt(".add_", operand, ref, result=False)
        return operand
    if kind == 8:
        b.rng.choice((sequences.change, sequences.binary_out))(b, ref)
        return ref
    return sequences.view(b, ref)
