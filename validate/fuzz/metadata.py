"""Steps that change what a tensor looks like and none of its elements."""

from __future__ import annotations

from fuzz.builder import Builder
from fuzz.program import Ref


def squeeze(b: Builder, ref: Ref) -> None:
    ones = [d for d, size in enumerate(b.tensor(ref).shape) if size == 1]
    arguments = (b.rng.choice(ones),) if ones and b.chance(0.7) else ()
    b.attempt(".squeeze_", ref, *arguments, result=False)


def unsqueeze(b: Builder, ref: Ref) -> None:
    dim = b.rng.randint(-1, b.tensor(ref).dim())
    b.attempt(".unsqueeze_", ref, dim, result=False)


def transpose(b: Builder, ref: Ref) -> None:
    dims = b.tensor(ref).dim()
    name = b.rng.choice((".transpose_", ".swapaxes_", ".swapdims_"))
    if dims >= 2:
        first, second = b.rng.randrange(dims), b.rng.randrange(dims)
        b.attempt(name, ref, first, second, result=False)


def transposed_matrix(b: Builder, ref: Ref) -> None:
    if b.tensor(ref).dim() <= 2:
        b.attempt(".t_", ref, result=False)


def as_strided(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    if tensor.dim() and tensor.numel():
        size = list(tensor.shape)
        dim = b.rng.randrange(tensor.dim())
        size[dim] = max(1, size[dim] // 2)
        b.attempt(
            ".as_strided_",
            ref,
            tuple(size),
            tuple(tensor.stride()),
            tensor.storage_offset(),
            result=False,
        )


def set_to(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    others = [
        other
        for other, value in b.tensors()
        if value.dtype == tensor.dtype and other != ref
    ]
    if others:
        target = b.rng.choice((".set_", "action:set_data"))
        b.attempt(target, ref, b.rng.choice(others), result=False)


def shrink(b: Builder, ref: Ref) -> None:
    tensor = b.tensor(ref)
    if tensor.dim() and tensor.shape[0] > 1:
        size = (b.rng.randint(1, tensor.shape[0]), *tensor.shape[1:])
        b.attempt(".resize_", ref, size, result=False)


def grow(b: Builder, ref: Ref) -> None:
    """What it grows by is written at once: it may hold anything."""
    tensor = b.tensor(ref)
    if tensor.dim() and tensor.is_contiguous():
        size = (tensor.shape[0] + b.rng.randint(1, 4), *tensor.shape[1:])
        if b.attempt(".resize_", ref, size, result=True) is not None:
            b.attempt(".fill_", ref, 2, result=False)


CHANGES = (
    squeeze,
    unsqueeze,
    unsqueeze,
    transpose,
    transpose,
    transposed_matrix,
    as_strided,
    set_to,
    set_to,
    shrink,
    grow,
)


def change(b: Builder, ref: Ref) -> None:
    b.rng.choice(CHANGES)(b, ref)
