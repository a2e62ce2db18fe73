"""Numbers of the host that a tensor's dtype does not hold: as the CPU takes them."""

from __future__ import annotations

import pytest
import torch
from against_cpu import check_error
from torch.nn import functional as F

_BOUNDS = {
    "clamp": lambda x, n: x.clamp(min(n, 1), max(n, 1)),
    "clamp of one": lambda x, n: x.clamp(max=n) if n > 0 else x.clamp(min=n),
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "clamp_": lambda x, n: x.clone().clamp_(min(n, 1), max(n, 1)),
    "clamp_min_": lambda x, n: x.clone().clamp_min_(n),
    "clamp.out": lambda x, n: torch.clamp(x, max=n, out=torch.empty_like(x)),
}
_BEYOND = (
    (torch.uint8, 256),
    (torch.uint8, -257),
    (torch.int8, 128),
    (torch.int16, -(2**15) - 1),
    (torch.int32, 2**31),
)


@pytest.mark.parametrize("name", _BOUNDS)
def test_bounds_that_integers_do_not_hold(device, name):
    for dtype, number in _BEYOND:
        x = torch.arange(40, dtype=dtype)
        check_error(lambda x: _BOUNDS[name](x, number), device, x)  # noqa: B023
        for held in (torch.iinfo(dtype).max, torch.iinfo(dtype).min):
            result = _BOUNDS[name](x.to(device), held)
            assert torch.equal(result.cpu(), _BOUNDS[name](x, held))


def test_limits_of_hardtanh(device):
    x = torch.arange(40, dtype=torch.int8)
    check_error(lambda x: F.hardtanh(x, -1, 128), device, x)
    assert torch.equal(F.hardtanh(x.to(device), 3, 9).cpu(), F.hardtanh(x, 3, 9))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bounds_beyond_half_types(device, dtype):
    x = torch.tensor([-2.0, 1.0, 30000.0], dtype=dtype, device=device)
    assert torch.equal(x.clamp(0, 1e39), x.clamp(min=0))


_DIVISIONS = {
    "%": lambda x, n: x % n,
    "//": lambda x, n: x // n,
    "fmod": torch.fmod,
    "floor": lambda x, n: torch.div(x, n, rounding_mode="floor"),
    "trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
}


@pytest.mark.parametrize("name", _DIVISIONS)
def test_divisors_that_wrap_around_to_zero(device, name):
    divide = _DIVISIONS[name]
    for dtype, number in (
        (torch.uint8, 256),
        (torch.int8, -512),
        (torch.int16, 2**16),
        (torch.int32, 2**32),
    ):
        x = torch.arange(1, 40, dtype=dtype)
        check_error(lambda x: divide(x, number), device, x)  # noqa: B023
        # Others wrap around.
        other = number + 3
        assert torch.equal(divide(x.to(device), other).cpu(), divide(x, other))


# softshrink itself takes the number as it is.
_SHRINKS = {
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "hardshrink_backward": lambda x, n: torch.ops.aten.hardshrink_backward(x, x, n),
    "softshrink_backward": lambda x, n: torch.ops.aten.softshrink_backward(x, x, n),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", _SHRINKS)
def test_half_types_hold_the_bound_of_a_shrink(device, name, dtype):
    for number in (0.1, 0.3, 0.7, 1.1, 1.3):
        at = torch.tensor(number, dtype=dtype)
        x = torch.cat(
            [(torch.arange(-3, 4) * torch.finfo(dtype).eps + 1) * at, -at[None]]
        )
        x = x.to(dtype)
        found, wanted = _SHRINKS[name](x.to(device), number), _SHRINKS[name](x, number)
        assert torch.equal(found.cpu(), wanted), number


def _index_add(x, n):
    return x.clone().index_add_(0, torch.tensor([0], device=x.device), x[:1], alpha=n)


_MULTIPLES = {
    "add": lambda x, n: torch.add(x, x, alpha=n),
    "add of a number": lambda x, n: torch.add(x, 1, alpha=n),
    "sub_": lambda x, n: x.clone().sub_(x, alpha=n),
    "rsub": lambda x, n: torch.rsub(x, x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "_foreach_add": lambda x, n: torch._foreach_add([x], [x], alpha=n)[0],
    "index_add": _index_add,
    "index_add of a line": lambda x, n: _index_add(x[0], n),
}
_PRODUCTS = {
    "addmm": torch.addmm,
    "addmv": lambda x, y, z, **n: torch.addmv(x[0], y, z[0], **n),
    "baddbmm": lambda x, y, z, **n: torch.baddbmm(x[None], y[None], z[None], **n),
    "addbmm": lambda x, y, z, **n: torch.addbmm(x, y[None], z[None], **n),
    "addr": lambda x, y, z, **n: torch.addr(x, y[0], z[0], **n),
}


@pytest.mark.parametrize("name", _MULTIPLES)
def test_multiples_that_integers_do_not_hold(device, name):
    for dtype, number in _BEYOND:
        x = torch.ones(3, 3, dtype=dtype)
        # Twice: the CPU's sub converts the number of the other sign.
        check_error(lambda x: _MULTIPLES[name](x, 2 * number), device, x)  # noqa: B023
        # Of unsigned integers, negative ones are taken.
        for held in (torch.iinfo(dtype).max, -2):
            found = _MULTIPLES[name](x.to(device), held)
            assert torch.equal(found.cpu(), _MULTIPLES[name](x, held))


@pytest.mark.parametrize("name", _PRODUCTS)
def test_factors_of_products_that_integers_do_not_hold(device, name):
    for factor in ("alpha", "beta"):
        for dtype, number in _BEYOND:
            x = torch.ones(3, 3, dtype=dtype)
            beyond = {factor: number}
            check_error(lambda x: _PRODUCTS[name](x, x, x, **beyond), device, x)  # noqa: B023
            y = x.to(device)
            found = _PRODUCTS[name](y, y, y, **{factor: 3})
            assert torch.equal(found.cpu(), _PRODUCTS[name](x, x, x, **{factor: 3}))


def test_index_add_of_a_half_that_does_not_hold_the_factor(device):
    x = torch.ones(3, dtype=torch.float16)
    check_error(lambda x: _index_add(x, 1e6), device, x)
