"""Arithmetic that torch.compile makes part of index expressions, and whole quotients."""

from __future__ import annotations

import pytest
import torch

pytestmark = [pytest.mark.gpu_class, pytest.mark.usefixtures("fresh_inductor")]


def _places(x: torch.Tensor, count: int | None = None) -> torch.Tensor:
    return torch.arange(x.shape[0] if count is None else count, device=x.device)


def _triangles(x):
    i = _places(x)
    return x + i * (i + 1) // 2


def _sums(x):
    i = _places(x, 200)
    return x[:100, None] + i[:100, None] * 30_000_000 + i[None, :7]


def _hashes(x):
    return x[((_places(x, 10_000) * 1_000_003) ^ _places(x, 10_000)) % x.shape[0]]


def _hashes_of_data(x):
    return x[(_places(x) * 73_856_093 + x * x) % x.shape[0]]


# A function of a tensor of so many integers; more than 32 bits on the way to its result.
_OF_64_BITS = {
    "index": (lambda x: x[(_places(x, 10_000) * 1_000_003) % x.shape[0]], 1000),
    "square": (lambda x: x + _places(x) ** 2, 60_000),
    "triangle": (_triangles, 70_000),
    "rest": (lambda x: x + _places(x) ** 2 % 97, 60_000),
    "sum": (_sums, 200),
    "lanes": (lambda x: x[(_places(x, 10_007) * 1_000_000_007) % x.shape[0]], 1000),
    "hashes": (_hashes, 1000),
    "hashes of data": (_hashes_of_data, 4001),
    "power": (lambda x: x + _places(x) ** 9, 60),
    "wrapped": (lambda x: x[(_places(x) * (2**62 + 5)) % x.shape[0]], 1000),
    "range": (lambda x: x + torch.arange(0, 10**12, 10**9, device=x.device), 1000),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", _OF_64_BITS)
def test_indices_of_64_bits(device, name, dynamic):
    function, count = _OF_64_BITS[name]
    x = torch.randint(-99, 99, (count,))
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(x.to(device)).cpu(), function(x))


def _squares(x):
    i = _places(x).int()
    return x + (i * i) // 7


# What the dtype of an arange does not hold.
_CONVERSIONS = {
    "uint8": lambda x: x + _places(x).to(torch.uint8).long(),
    "int8": lambda x: x + torch.maximum(_places(x).to(torch.int8), x.to(torch.int8)),
    "bool": lambda x: x + _places(x).bool().long(),
    "int32": _squares,
    "float16": lambda x: x + _places(x).half().long(),
    "float32": lambda x: x + ((_places(x) + 2**24).float() + 1).long(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", _CONVERSIONS)
def test_places_wrap_around(device, name, dynamic):
    function, x = _CONVERSIONS[name], torch.randint(-9, 9, (70_000,))
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(x.to(device)).cpu(), function(x))


_ANY = [1, -0.1, 6, torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 5, -5]
_QUOTIENTS = {
    "tensors": lambda x, y: x[:, None] // y,
    "a number": lambda x, y: x // 0.1,
    "of a number": lambda x, y: torch.floor_divide(1.0, x),
    "integers": lambda x, y: torch.div(
        x, y.nan_to_num(3).long(), rounding_mode="floor"
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", _QUOTIENTS)
def test_floor_of_quotients(device, name, dtype):
    """1 // 0.1 is 9, not the floor of 10."""
    x = torch.tensor(_ANY, dtype=dtype)
    y = torch.tensor([0.1, torch.inf, 0.6, 2, 3, 1, 7, -1, -0.3, 3], dtype=dtype)
    expected = _QUOTIENTS[name](x, y)
    result = torch.compile(_QUOTIENTS[name])(x.to(device), y.to(device)).cpu()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_next_numbers(device, dtype):
    x = torch.randn(40).to(dtype)
    result = torch.compile(torch.nextafter)(x.to(device), (x + 1).to(device))
    assert torch.equal(result.cpu(), torch.nextafter(x, x + 1))
