"""Cases of complex numbers: their views, lazy conjugates and negatives, arithmetic and
Fourier transforms."""

from __future__ import annotations

import random

import torch
from fuzz import metadata
from fuzz.builder import Builder, Stop
from fuzz.program import Program, Ref
from fuzz.tensors import draw_shape

_MOST_STEPS = 8
_NORMS = (None, "backward", "ortho", "forward")
_LENGTHS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 30, 31, 60, 64, 97, 100, 128, 210, 251, 256)
_UNARY = (
    *("neg", "abs", "angle", "sgn", "exp", "square", "reciprocal", "sqrt", "log"),
    *("sin", "cosh", "tanh", "sigmoid", "clone", "positive", "isfinite", "log1p"),
)
_CUT = ("angle", "sqrt", "log", "log1p")
_IN_PLACE = (".neg_", ".conj_physical_", ".zero_", ".square_", ".tanh_", ".exp_")


def complexes(rng: random.Random) -> Program:
    """Steps over complex tensors and their views."""
    b = Builder(rng)
    dtype = rng.choice((torch.complex64, torch.complex64, torch.complex128))
    shape, grad = draw_shape(rng, 1, 3), b.chance(0.3)
    for _ in range(rng.randint(1, 2)):
        b.input(shape, dtype, grad=grad, expand=b.chance(0.1))
    steps = tuple(step for step in _STEPS if not grad or step not in _WRITES)
    try:
        for _ in range(rng.randint(2, _MOST_STEPS)):
            tensors = b.tensors()
            ref, _ = tensors[-1] if b.chance(0.6) else rng.choice(tensors)
            rng.choice(steps)(b, ref)
    except Stop:
        pass
    return b.program("complex sequence", grad)


def fourier(rng: random.Random) -> Program:
    """A transform of real or complex numbers, along one dimension or more."""
    b = Builder(rng)
    grad = b.chance(0.3)
    double = b.chance(0.25)
    real = torch.float64 if double else torch.float32
    dtype = torch.complex128 if double else torch.complex64
    names = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    name, ending = rng.choice(names), rng.choice(("", "", "", "2", "n"))
    takes_real = name in ("rfft", "ihfft")
    dims = rng.randint(2 if ending == "2" else 1, 3)
    shape = [rng.choice((1, 2, 3, 5)) for _ in range(dims)]
    shape[rng.randrange(dims)] = rng.choice(_LENGTHS)
    kind = real if takes_real or b.chance(0.15) else dtype
    x = b.input(shape, kind, grad=grad, expand=b.chance(0.1))
    try:
        if kind.is_complex and b.chance(0.2):
            x = b.call(".conj", x)
        options: dict = {"norm": rng.choice(_NORMS)}
        if ending == "":
            options["dim"] = rng.randrange(-dims, dims)
            if b.chance(0.4):
                options["n"] = rng.choice(_LENGTHS)
        elif b.chance(0.5):
            count = 2 if ending == "2" else rng.randint(1, dims)
            options["dim"] = tuple(rng.sample(range(dims), count))
            if b.chance(0.4):
                options["s"] = tuple(rng.choice(_LENGTHS[:9]) for _ in range(count))
        y = b.call(f"fft.{name}{ending}", x, **options)
        if b.chance(0.3):
            rng.choice(_STEPS_AFTER)(b, y)
    except Stop:
        pass
    return b.program("fourier", grad)


def view(b: Builder, ref: Ref) -> None:
    tensor, name = b.tensor(ref), "conj"
    if tensor.is_complex():
        name = b.rng.choice(
            ("conj", "conj", "real", "imag", "mT", "mH", "view_as_real")
        )
    if name in ("real", "imag", "mT", "mH"):
        if name in ("real", "imag") or tensor.dim() >= 2:
            b.attempt("action:attribute", ref, name)
    else:
        b.attempt(name, ref)


def slice_(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim():
        step = b.rng.choice((1, 2, 3))
        b.attempt("action:take", ref, (slice(b.rng.choice((0, 1)), None, step),))


def negative(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    if tensor.is_complex() or tensor.is_floating_point():
        b.attempt("_neg_view", ref)


def resolved(b: Builder, ref: Ref) -> None:
    b.attempt(b.rng.choice((".resolve_conj", ".resolve_neg", ".contiguous")), ref)


def unary(b: Builder, ref: Ref) -> None:
    name = b.rng.choice(_UNARY)
    if name not in _CUT or not _near_cut(b.tensor(ref)):
        b.attempt(name, ref)


def binary(b: Builder, ref: Ref) -> None:
    name = b.rng.choice(("add", "sub", "mul", "mul", "div", "eq", "pow"))
    other = _of_shape(b, ref)
    if b.chance(0.3):
        other = b.rng.choice((2, -0.5, 1j, 1.5 - 0.5j))
    b.attempt(name, ref, other)


def _of_shape(b: Builder, ref: Ref, same_dtype: bool = False) -> Ref:
    tensor = b.tensor(ref)
    found = [(o, value) for o, value in b.tensors() if value.shape == tensor.shape]
    if same_dtype:
        found = [pair for pair in found if pair[1].dtype == tensor.dtype]
    return b.rng.choice(found)[0]


def _near_cut(tensor: torch.Tensor) -> bool:
    """Whether a function with a branch cut along the negative reals shows anything:
    not where an imaginary part is a rounding, or a zero of some sign."""
    if not tensor.is_complex():
        return False
    tensor = tensor.detach()
    return bool(((tensor.real < 0) & (tensor.imag.abs() < -1e-4 * tensor.real)).any())


def reduce(b: Builder, ref: Ref) -> None:
    name = b.rng.choice(("sum", "mean", "cumsum", "prod", "linalg.vector_norm"))
    dims = b.tensor(ref).dim()
    if dims and name != "linalg.vector_norm":
        b.attempt(name, ref, b.rng.randrange(dims))
    else:
        b.attempt("linalg.vector_norm", ref)


def product(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim() >= 2 and b.fits_product(ref):
        name = b.rng.choice(("mT", "mH"))
        other = b.attempt("action:attribute", _of_shape(b, ref, same_dtype=True), name)
        if other is not None:
            b.attempt("matmul", ref, other)
    elif b.tensor(ref).dim() == 1:
        b.attempt(
            b.rng.choice(("dot", "vdot", "outer")),
            ref,
            _of_shape(b, ref, same_dtype=True),
        )


def move(b: Builder, ref: Ref) -> None:
    name = b.rng.choice(("cat", "flip", "where", "roll"))
    if not b.tensor(ref).dim():
        return
    if name == "cat":
        b.attempt("cat", [ref, _of_shape(b, ref)], 0)
    elif name == "where":
        mask = b.input(b.tensor(ref).shape, torch.bool)
        b.attempt("where", mask, ref, _of_shape(b, ref))
    elif name == "flip":
        b.attempt("flip", ref, (0,))
    else:
        b.attempt("roll", ref, 1, 0)


def write(b: Builder, ref: Ref) -> None:
    b.attempt(b.rng.choice(_IN_PLACE), ref, result=False)


def write_other(b: Builder, ref: Ref) -> None:
    name = b.rng.choice((".copy_", ".add_", ".mul_"))
    b.attempt(name, ref, _of_shape(b, ref), result=False)


def write_number(b: Builder, ref: Ref) -> None:
    name = b.rng.choice((".fill_", ".add_", ".mul_"))
    b.attempt(name, ref, b.rng.choice((0.5, 2, 1j, 1 - 2j)), result=False)


def change(b: Builder, ref: Ref) -> None:
    metadata.change(b, ref)


_WRITES = (write, write_other, write_number, change)
_STEPS_AFTER = (view, unary, reduce, binary)
_STEPS = (
    *(view, view, view, slice_, negative, resolved, unary, unary, binary, binary),
    *(reduce, product, move, *_WRITES),
)
