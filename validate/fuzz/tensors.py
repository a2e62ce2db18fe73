"""Tensors of a case: shapes, dtypes, values and layouts, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from ops.against_cpu import move

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)

# Around the sizes at which kernels change: vectors, work-groups, blocks.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127)
_LONG = (128, 129, 255, 256, 257, 509, 512, 1021, 1024, 1031, 4099)
_MOST_ELEMENTS = 20_000

_SPECIAL = (
    float("nan"),
    float("inf"),
    -float("inf"),
    -0.0,
    0.0,
    1.0,
    -1.0,
    1e-40,
    -1e-40,
    1e30,
    -1e30,
    65504.0,
    6e-8,
    0.5,
    2.5,
)


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its storage.

    ``order`` is the memory order of dimensions, the outermost first; ``steps``
    the distance of neighbours in units of a dense layout; ``margins`` elements
    behind each dimension that belong to a larger tensor; ``offset`` elements in
    front; ``expanded`` dimensions of stride 0.
    """

    order: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    margins: tuple[int, ...] = ()
    offset: int = 0
    expanded: tuple[int, ...] = ()


CONTIGUOUS = Layout()


@dataclass
class Input:
    """A tensor of a case: contiguous values on the CPU, and how they shall lie."""

    values: torch.Tensor
    layout: Layout = CONTIGUOUS
    requires_grad: bool = False

    def build(
        self, device: torch.device, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """The tensor on ``device``; floats take ``dtype`` if that is given."""
        laid = lay(self.values, self.layout)
        if dtype is not None and laid.is_complex():
            laid = lay(self.values.to(torch.complex128), self.layout)
            dtype = None
        return move(laid, device, dtype).requires_grad_(self.requires_grad)

    def __str__(self) -> str:
        name = str(self.values.dtype).removeprefix("torch.")
        text = f"{name}{list(self.values.shape)}"
        if self.layout != CONTIGUOUS:
            strides = lay(self.values, self.layout).stride()
            text += f" strides {list(strides)} offset {self.layout.offset}"
        return text + (" requires_grad" if self.requires_grad else "")


def lay(values: torch.Tensor, layout: Layout) -> torch.Tensor:
    """``values`` in that layout; gaps hold NaN, or 77."""
    if layout == CONTIGUOUS or values.dim() != max(len(layout.order), values.dim()):
        return values
    dims = values.dim()
    order = layout.order or tuple(range(dims))
    if len(order) != dims:
        return values
    steps = layout.steps or (1,) * dims
    margins = layout.margins or (0,) * dims
    strides, distance = [0] * dims, 1
    for dim in reversed(order):
        size = 1 if dim in layout.expanded else values.shape[dim]
        strides[dim] = 0 if dim in layout.expanded else distance * steps[dim]
        distance *= max(size, 1) * steps[dim] + margins[dim]
    is_number = values.is_floating_point() or values.is_complex()
    gap = float("nan") if is_number else values.dtype != torch.bool and 77
    memory = torch.full((layout.offset + distance,), gap, dtype=values.dtype)
    source = values
    for dim in layout.expanded:
        source = source.narrow(dim, 0, min(1, source.shape[dim]))
    memory.as_strided(source.shape, strides, layout.offset).copy_(source)
    return memory.as_strided(values.shape, strides, layout.offset)


def draw_layout(
    rng: random.Random, shape: Sequence[int], expand: bool = False
) -> Layout:
    """A layout for ``shape``; ``expand`` allows strides of 0."""
    dims = len(shape)
    kind = rng.choice(
        (
            "contiguous",
            "permuted",
            "channels_last",
            "strided",
            "sliced",
            "offset",
            "all",
        )
    )
    if kind == "contiguous" or 0 in shape:
        return CONTIGUOUS
    parts: dict = {}
    if kind in ("permuted", "all"):
        parts["order"] = tuple(rng.sample(range(dims), dims))
    elif kind == "channels_last" and dims >= 3:
        parts["order"] = (0, *range(2, dims), 1)
    if kind in ("strided", "all"):
        parts["steps"] = tuple(rng.choice((1, 1, 2, 3)) for _ in shape)
    if kind in ("sliced", "all"):
        parts["margins"] = tuple(rng.choice((0, 0, 1, 5)) for _ in shape)
    if kind in ("sliced", "offset", "all"):
        parts["offset"] = rng.choice((1, 2, 3, 4, 7, 16, 33))
    if expand and dims and rng.random() < 0.25:
        parts["expanded"] = (rng.randrange(dims),)
    return Layout(**parts)


def draw_shape(rng: random.Random, least: int = 0, most: int = 5) -> tuple[int, ...]:
    dims = rng.randint(least, most)
    shape: list[int] = []
    elements = 1
    for _ in range(dims):
        sizes = _SIZES + (_LONG if rng.random() < 0.15 else ())
        fitting = [size for size in sizes if elements * size <= _MOST_ELEMENTS]
        size = 0 if rng.random() < 0.03 else rng.choice(fitting or [1])
        shape.append(size)
        elements *= max(size, 1)
    rng.shuffle(shape)
    return tuple(shape)


def draw_broadcast(rng: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts with ``shape``; once in a while one that does not."""
    other = [1 if rng.random() < 0.25 else size for size in shape]
    if rng.random() < 0.25:
        other = other[rng.randint(0, len(other)) :]
    if other and rng.random() < 0.03:
        other[rng.randrange(len(other))] += 1
    return tuple(other)


def draw_values(
    rng: random.Random,
    shape: Sequence[int],
    dtype: torch.dtype,
    special: float = 0.0,
    low: float | None = None,
    high: float | None = None,
) -> torch.Tensor:
    """Contiguous values. A share ``special`` of them are NaN, infinities, zeros of
    either sign, denormals and extremes."""
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return _integers(generator, shape, dtype, special, low, high)
    if dtype.is_complex:
        parts = torch.randn(*shape, 2, generator=generator, dtype=torch.float64)
        values = torch.view_as_complex(parts)
    elif low is None:
        values = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
    else:
        values = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
        values = low + (high - low) * values
    if low is None:
        values = _of_some_size(rng, values, dtype)
    values = values.to(dtype)
    if special:
        return with_special(values, generator, special)
    return values


def _of_some_size(
    rng: random.Random, values: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Most as they are; some far below or above one, or close together far from zero."""
    kind = rng.choices(("same", "scaled", "shifted"), (8, 1, 1))[0]
    if kind == "same":
        return values
    most = 3 if dtype == torch.float16 else 6
    if kind == "shifted":
        return values + 10.0 ** rng.randint(1, most)
    return values * 10.0 ** rng.randint(-most, most)


def with_special(
    values: torch.Tensor, generator: torch.Generator, share: float
) -> torch.Tensor:
    """The floats ``values``, a share of which is replaced."""
    table = torch.tensor(_SPECIAL, dtype=torch.float64).to(values.dtype)
    picked = torch.randint(len(table), values.shape, generator=generator)
    mask = torch.rand(values.shape, generator=generator) < share
    return torch.where(mask, table[picked], values)


def _integers(generator, shape, dtype, special, low, high) -> torch.Tensor:
    info = torch.iinfo(dtype)
    if low is None:
        low, high = max(info.min, -9), 9
    values = torch.randint(int(low), int(high) + 1, tuple(shape), generator=generator)
    if special:
        table = torch.tensor([info.min, info.max, 0, 1, info.max - 1, info.min + 1])
        picked = torch.randint(len(table), values.shape, generator=generator)
        mask = torch.rand(values.shape, generator=generator) < special
        values = torch.where(mask, table[picked], values)
    return values.to(dtype)
