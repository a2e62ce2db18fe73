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


@pytest.mark.parametrize("make", [torch.tril_indices, torch.triu_indices])
def test_triangle_indices_of_large_matrices(device, make):
    is_upper = make is torch.triu_indices
    for size in (30_000, 10**6, 2**32):
        diagonal = size - 4 if is_upper else 4 - size
        result = make(size, size, diagonal, device=device)
        assert torch.equal(result.cpu(), make(size, size, diagonal))
    diagonal = 2**33 - 2 if is_upper else 3 - 2**31
    result = make(2**31, 2**33, diagonal, device=device)
    assert torch.equal(result.cpu(), make(2**31, 2**33, diagonal))


@pytest.mark.parametrize("keep", [torch.tril, torch.triu])
def test_diagonals_far_outside(device, keep):
    x = torch.arange(1.0, 31).view(2, 3, 5)
    for diagonal in (2**63 - 1, 2**63 - 3, -(2**63) + 7, -(2**63), 5, -3):
        found = keep(x.to(device), diagonal)
        rounded = max(-9, min(diagonal, 9))
        assert torch.equal(found.cpu(), keep(x, rounded)), diagonal


def test_arange_is_exact(device):
    if not torch.opencl.get_device_properties(device).has_fp64:
        pytest.skip("no float64")
    for arguments in ((-1000, 1000, 0.1), (2**24 + 0.5, 2**24 + 64, 0.75)):
        exact = torch.arange(*arguments, dtype=torch.float64).float()
        found = torch.arange(*arguments, device=device).cpu()
        torch.testing.assert_close(found, exact, rtol=1.2e-7, atol=1e-9)


def test_arange_of_integers_wraps_around(device):
    arguments = (2.0**40, 2.0**40 + 3)
    found = torch.arange(*arguments, dtype=torch.int32, device=device)
    assert found.tolist() == torch.arange(*arguments, dtype=torch.int32).tolist()


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_range_of_half_types_is_as_long_as_the_cpus(device, dtype):
    for arguments in ((0, 0.7, 0.1), (0, 2.3, 0.1), (-1, 0.3, 0.1)):
        expected = torch.range(*arguments, dtype=dtype)
        assert len(torch.range(*arguments, dtype=dtype, device=device)) == len(expected)


@pytest.mark.parametrize("make", [torch.linspace, torch.logspace])
def test_ends_that_the_dtype_does_not_hold(device, make):
    for end, dtype in ((1e39, torch.float32), (1e6, torch.float16)):
        with pytest.raises(RuntimeError) as expected:
            make(0, end, 5, dtype=dtype)
        with pytest.raises(RuntimeError) as raised:
            make(0, end, 5, dtype=dtype, device=device)
        assert str(raised.value) == str(expected.value)
