"""Tensors that are made from numbers: ranges and positions of triangles."""

from __future__ import annotations

import pytest
import torch
from tolerance import assert_matches

TYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8]


@pytest.mark.parametrize("make", [torch.tril_indices, torch.triu_indices])
def test_triangle_indices(device, make):
    for rows, columns in ((1, 1), (3, 5), (5, 3), (4, 4), (0, 3), (3, 0), (67, 2)):
        for diagonal in (-70, -4, -3, -2, -1, 0, 1, 2, 3, 5, 70):
            expected = make(rows, columns, diagonal)
            result = make(rows, columns, diagonal, device=device)
            assert torch.equal(result.cpu(), expected), (rows, columns, diagonal)


@pytest.mark.parametrize("make", [torch.tril_indices, torch.triu_indices])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_triangle_indices_dtypes(device, make, dtype):
    result = make(5, 4, 1, dtype=dtype, device=device)
    assert result.dtype == dtype
    assert torch.equal(result.cpu(), make(5, 4, 1, dtype=dtype))


@pytest.mark.parametrize("dtype", [*TYPES, torch.float16])
@pytest.mark.parametrize("base", [10.0, 2.0, 0.5])
def test_logspace(device, base, dtype):
    for start, end, steps in (
        (0, 2, 3),
        (0.5, 2.5, 17),
        (1, 0, 4),
        (1, 2, 1),
        (1, 2, 0),
    ):
        result = torch.logspace(start, end, steps, base, dtype=dtype, device=device)
        expected = torch.logspace(start, end, steps, base, dtype=dtype)
        if not dtype.is_floating_point:
            assert torch.equal(result.cpu(), expected)
            continue
        exact = torch.logspace(start, end, steps, base, dtype=torch.float64)
        assert_matches(result, exact, expected)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("dtype", TYPES)
def test_range(device, dtype):
    for arguments in ((0, 5), (1, 8, 2), (0, 5, 1.5), (9, 2, -3), (3, 3)):
        expected = torch.range(*arguments, dtype=dtype)
        if dtype == torch.uint8 and arguments[-1] < 0:
            continue
        result = torch.range(*arguments, dtype=dtype, device=device)
        torch.testing.assert_close(result.cpu(), expected)


def test_ranges_into_strided_outputs(device):
    out = torch.zeros(10, device=device)
    torch.logspace(0, 1, 5, out=out[::2])
    expected = torch.zeros(10)
    torch.logspace(0, 1, 5, out=expected[::2])
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.range(0, 5, 0, device=d),
        lambda d: torch.range(0, 5, -1, device=d),
        lambda d: torch.range(0, float("inf"), device=d),
        lambda d: torch.logspace(0, 5, -1, device=d),
        lambda d: torch.tril_indices(-1, 3, device=d),
        lambda d: torch.triu_indices(3, -1, device=d),
        lambda d: torch.triu_indices(3, 1, dtype=torch.float32, device=d),
    ],
)
def test_errors_are_the_cpus(device, call):
    with pytest.raises(Exception) as expected:
        call(torch.device("cpu"))
    with pytest.raises(type(expected.value)) as raised:
        call(device)
    assert str(raised.value) == str(expected.value)
