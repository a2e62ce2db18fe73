"""Running sums, products, extremes and logarithms of sums of exponentials."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, PLAIN_LAYOUTS, check, check_error

SCANS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "logcumsumexp": torch.logcumsumexp,
    "cummax": lambda x, d: tuple(torch.cummax(x, d)),
    "cummin": lambda x, d: tuple(torch.cummin(x, d)),
}
EXTREMES = [torch.cummax, torch.cummin]


@pytest.mark.parametrize("layout", PLAIN_LAYOUTS)
@pytest.mark.parametrize("name", SCANS)
def test_layouts(device, name, layout):
    for dim in (0, 1, -1):
        check(lambda x: SCANS[name](x, dim), [layout(torch.randn(3, 5, 7))], device)  # noqa: B023


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SCANS)
def test_dtypes(device, name, dtype):
    check(lambda x: SCANS[name](x, 0), [torch.randn(13, 5)], device, dtype)


@pytest.mark.parametrize("name", SCANS)
def test_sizes(device, name):
    for size in ((), (1,), (0,), (3, 0), (0, 3), (1, 131), (131, 1)):
        check(lambda x: SCANS[name](x, 0), [torch.randn(size)], device)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64]
)
@pytest.mark.parametrize(
    "size,dim",
    [
        ((5, 1003), 1),
        ((300, 17), 1),
        ((1003, 37), 0),
        ((3, 70, 1030), 1),
        ((2, 5, 16), 1),
        ((40, 3, 16), 0),
        ((2050, 64), 0),
    ],
)
def test_sums_by_vectors(device, size, dim, dtype):
    check(lambda x: torch.cumsum(x, dim), [torch.randn(size)], device, dtype)
    x = torch.randn(size).to(dtype)
    x.view(-1)[x.numel() // 2] = float("inf")
    x.view(-1)[-x.numel() // 3] = float("nan")
    there = x.to(device)
    expected = x.cumsum(dim)
    result = there.cumsum_(dim).cpu()
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())


@pytest.mark.parametrize("scan", EXTREMES)
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool]
)
def test_extremes_of_integers(device, scan, dtype):
    x = torch.randint(0, 5, (4, 50)).to(dtype)
    for result, expected in zip(scan(x.to(device), 1), scan(x, 1), strict=True):
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("scan", [*EXTREMES, torch.logcumsumexp])
def test_nan_and_infinity(device, scan):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor(
        [
            [1, nan, 2, nan, inf],
            [-inf, -inf, 1, inf, inf],
            [inf, 1, -inf, nan, 0],
            [nan, inf, 0, 1, -inf],
            [2, 2, 1, 2, 3],
        ]
    )
    results, expected = scan(x.to(device), 1), scan(x, 1)
    if torch.is_tensor(results):
        results, expected = [results], [expected]
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result.cpu(), value, equal_nan=True)


@pytest.mark.parametrize("sign", [1, -1])
def test_logcumsumexp_of_long_lines(device, sign):
    # Rising lines have a new largest element at each step.
    x = torch.linspace(-30, 30, 5000) * sign
    check(lambda x: torch.logcumsumexp(x, 0), [x], device, backward=False)
    check(
        lambda x: torch.logcumsumexp(x, 0), [torch.randn(5000)], device, backward=False
    )


@pytest.mark.parametrize("scan", EXTREMES)
def test_extremes_into_strided_outputs(device, scan):
    x = torch.randn(7, 5)
    values = torch.empty(5, 7, device=device).t()
    indices = torch.empty(5, 7, device=device, dtype=torch.int64).t()
    scan(x.to(device), 0, out=(values, indices))
    expected = scan(x, 0)
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(indices.cpu(), expected.indices)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cummax(x, 2),
        lambda x: torch.logcumsumexp(x, 2),
        lambda x: torch.logcumsumexp(x.long(), 0),
    ],
)
def test_errors_are_the_cpus(device, call):
    x = torch.randn(3, 4)
    check_error(call, device, x)


# Around a work-group's tile and run of elements, and with chunks of a line.
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize(
    "size,dim",
    [
        ((3, 7), 1),
        ((40, 9), 1),
        ((2, 1025), 1),
        ((7, 129), 1),
        ((9001,), 0),
        ((2, 4097, 3), 1),
        ((33, 5, 17), 0),
        ((1031, 16), 0),
        ((5, 70, 1), 1),
    ],
)
def test_tiles_of_groups(device, name, size, dim):
    x = torch.randn(size)
    if name == "cumprod":
        x = 1 + x / 10
    check(lambda x: SCANS[name](x, dim), [x], device)


@pytest.mark.parametrize("name", SCANS)
def test_special_values_in_long_lines(device, name):
    x = torch.randn(3, 12001)
    if name == "cumprod":
        x = x.sign()
    x[0, 5000] = float("inf")
    x[1, 7000] = float("nan")
    x[2, :] = float("-inf")
    results, expected = SCANS[name](x.to(device), 1), SCANS[name](x, 1)
    if torch.is_tensor(results):
        results, expected = (results,), (expected,)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(
            result.cpu(), value, equal_nan=True, rtol=1e-5, atol=1e-4
        )


def test_products_of_parts_out_of_range(device):
    x = torch.ones(4096)
    x[:3] = torch.tensor([1e-30, 1e-5, 1e-5])
    x[2000:2002] = 1e25
    x[3000:3002] = 1e-20
    result = x.to(device).cumprod(0).cpu()
    # 1e-40 is subnormal: float32 holds five digits of it.
    torch.testing.assert_close(result, x.cumprod(0), rtol=2e-5, atol=0)


@pytest.mark.parametrize("scan", [torch.cumsum, torch.cumprod])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_integers_wrap(device, scan, dtype):
    x = torch.randint(1, 7, (3, 5000)).to(dtype)
    result = scan(x.to(device), 1, dtype=dtype)
    assert torch.equal(result.cpu(), scan(x, 1, dtype=dtype))


def test_a_long_line(device):
    x = torch.randn(1_000_003)
    check(lambda x: torch.cumsum(x, 0), [x], device, backward=False)
    values, places = x.to(device).cummax(0)
    expected = x.cummax(0)
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(places.cpu(), expected.indices)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (3, 4, 40)])
def test_products_that_come_back_into_range(device, shape):
    rows = torch.tensor([[1e-30, 1e-30, 1e30, 1e30], [1e30, 1e30, 1e-30, 1]])
    for row in rows:
        dim = 0 if len(shape) < 3 else 1
        sizes = [1] * len(shape)
        sizes[dim] = 4
        x = row.view(sizes).expand(shape)
        torch.testing.assert_close(x.to(device).cumprod(dim).cpu(), x.cumprod(dim))


def test_sums_that_come_back_into_range(device):
    if torch.opencl.get_device_properties(device).device_class == "gpu":
        pytest.skip("GPUs add up floats")
    x = torch.tensor([3e38, 3e38, -3e38])
    assert torch.equal(x.to(device).cumsum(0).cpu(), x.cumsum(0))


def test_complex_products_behind_a_zero(device):
    x = torch.full((100,), 10, dtype=torch.complex64)
    x[0] = 0
    assert x.to(device).cumprod(0).count_nonzero() == 0


@pytest.mark.parametrize("helper", [torch._cummax_helper, torch._cummin_helper])
def test_results_of_extremes_of_another_dtype(device, helper):
    x = torch.randn(3, 4)
    check_error(lambda x: helper(x, x.half(), x.long(), 0), device, x)
    check_error(lambda x: helper(x, x.clone(), x.int(), 0), device, x)
