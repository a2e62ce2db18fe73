"""Ops that only move elements keep every bit of them, NaNs' too.

Programs keep packed data in tensors of half types, which look like any number.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from against_cpu import FLOATS, INTEGERS
from torch.nn import functional

DTYPES = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float8_e5m2: torch.uint8,
    torch.float32: torch.int32,
}
SHAPE = (21, 5, 4, 33)
Tensor = torch.Tensor


def _copy_to_every_second(x: Tensor, mask: Tensor) -> Tensor:
    return x.new_zeros(*SHAPE[:3], 2 * SHAPE[3])[..., ::2].copy_(x)


def _foreach_copy(x: Tensor, mask: Tensor) -> Tensor:
    to = [torch.empty_like(x), torch.empty_like(x[0])]
    torch._foreach_copy_(to, [x, x[1]])
    return torch.cat([to[0], to[1][None]])


def _scatter(x: Tensor, mask: Tensor) -> Tensor:
    index = torch.tensor([2, 0, 1], device=x.device).view(3, 1, 1, 1)
    return x.clone().scatter_(0, index.expand(3, *SHAPE[1:]), x[4:7])


MOVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "transposed": lambda x, mask: x.transpose(0, 3).contiguous(),
    "turned": lambda x, mask: x.movedim(0, -1).clone(
        memory_format=torch.preserve_format
    ),
    "slice": lambda x, mask: x[:, 1:, ::2].contiguous(),
    "channels_last": lambda x, mask: x.contiguous(memory_format=torch.channels_last),
    "expanded": lambda x, mask: x[:1].expand(SHAPE).contiguous(),
    "overlapping": lambda x, mask: x.as_strided((5, 7), (3, 2), 1).clone(),
    "into every second": _copy_to_every_second,
    "cat": lambda x, mask: torch.cat([x, x.flip(0)], 1),
    "cat of transposed": lambda x, mask: torch.cat([x.transpose(0, 1)] * 2, 1),
    "stack": lambda x, mask: torch.stack([x, x], -1),
    "split": lambda x, mask: torch.split_copy(x, 2, 1)[1],
    "repeat": lambda x, mask: x.repeat(2, 1, 1, 2),
    "repeat_interleave": lambda x, mask: x.repeat_interleave(3, 1),
    "roll": lambda x, mask: x.roll(2, 1),
    "index": lambda x, mask: x[torch.tensor([3, 0], device=x.device)],
    "mask": lambda x, mask: x[mask],
    "pad": lambda x, mask: functional.pad(x, (1, 2)),
    "pixel_shuffle": lambda x, mask: functional.pixel_shuffle(x[:, :4], 2),
    "where": lambda x, mask: torch.where(mask, x, x.flip(0)),
    "where of a row": lambda x, mask: torch.where(mask, x[:1], x.transpose(0, 0)),
    "foreach_copy": _foreach_copy,
    "scatter": _scatter,
}


def _bits(dtype: torch.dtype) -> Tensor:
    limits = torch.iinfo(DTYPES[dtype])
    bits = torch.randint(limits.min, limits.max, SHAPE, dtype=DTYPES[dtype])
    # Half of them NaNs or infinite.
    exponent = torch.tensor(float("-inf"), dtype=dtype).view(DTYPES[dtype])
    return torch.where(torch.rand(SHAPE) < 0.5, bits | exponent, bits)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_moves_keep_every_bit(device, name, dtype):
    bits, mask = _bits(dtype), torch.rand(SHAPE) < 0.5
    move = MOVES[name]
    # Of integers, since some of the CPU's ops change NaNs.
    expected = move(bits, mask)
    result = move(bits.view(dtype).to(device), mask.to(device))
    assert result.dtype == dtype
    assert torch.equal(result.cpu().view(DTYPES[dtype]), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_large_transposing_copies_keep_every_bit(device, dtype):
    """By vectors, squares of which are transposed in registers."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(1, 256, 256)
    x = bits.view(dtype).to(device)
    for moved, expected in (
        (x.transpose(1, 2).contiguous(), bits.transpose(1, 2)),
        (
            x.view(2, 128, 256).transpose(0, 2).contiguous(),
            bits.view(2, 128, 256).transpose(0, 2),
        ),
    ):
        assert torch.equal(moved.cpu().view(torch.int16), expected.contiguous())


_MOVED = (*INTEGERS, *FLOATS, torch.complex64, torch.complex128)
_SQUARES = [
    ((16, 16), (0, 1)),
    ((17, 35), (0, 1)),
    ((3, 40, 33), (1, 2)),
    ((33, 3, 40), (0, 2)),
    ((2, 16, 5, 31), (1, 3)),
    ((2, 3, 2, 18, 37), (3, 4)),
    ((65, 15), (0, 1)),
]


@pytest.mark.parametrize("size, dims", _SQUARES, ids=str)
def test_transposing_copies_of_every_dtype(device, size, dims):
    """By squares of a work-group, on GPUs."""
    for dtype in _MOVED:
        if dtype == torch.bool:
            x = torch.rand(size) < 0.5
        elif dtype.is_floating_point or dtype.is_complex:
            x = torch.randn(size, dtype=dtype)
        else:
            x = torch.randint(0, 100, size, dtype=dtype)
        moved = torch.cat([x.view(-1)[:3], x.view(-1)]).to(device)[3:].view(size)
        assert torch.equal(
            moved.transpose(*dims).contiguous().cpu(), x.transpose(*dims)
        ), dtype
        into = torch.zeros_like(x.transpose(*dims).contiguous()).to(device)
        into.transpose(*dims)[:, 1:].copy_(moved[:, 1:])
        assert torch.equal(into.transpose(*dims)[:, 1:].cpu(), x[:, 1:]), dtype
        assert not into.transpose(*dims)[:, :1].any(), dtype


def test_transposing_copies_convert(device):
    x = torch.randn(3, 33, 70)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32):
        result = torch.empty(3, 70, 33, dtype=dtype, device=device)
        result.copy_(x.to(device).transpose(1, 2))
        expected = torch.empty(3, 70, 33, dtype=dtype).copy_(x.transpose(1, 2))
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_foreach_of_float8_computes_nothing(device, dtype):
    x = torch.randn(3, 5).to(dtype)
    for tensor in (x, x.to(device)):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            torch._foreach_add([tensor], 1.0)
