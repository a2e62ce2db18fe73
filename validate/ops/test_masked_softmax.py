"""_masked_softmax, _add_relu, _aminmax, _functional_assert_async: made of others."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, check
from tolerance import assert_matches

_ADD_RELU = torch.ops.aten._add_relu


@pytest.fixture(autouse=True)
def _nothing_falls_back(device):
    torch.opencl.reset_fallback_stats()
    yield
    assert torch.opencl.fallback_stats() == {}


def _mask(*size):
    mask = torch.rand(size) < 0.4
    mask[..., 0] = False  # no row is masked throughout
    return mask


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [None, -1, 2, 1])
def test_of_the_same_shape(device, dim, dtype):
    mask = _mask(2, 3, 5, 7) & (torch.arange(3) > 0)[None, :, None, None]
    mask[:, :, 0] = False

    def softmax(x):
        return torch._masked_softmax(x, mask.to(x.device), dim, 2)

    check(softmax, [torch.randn(2, 3, 5, 7)], device, dtype)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("dim", [3, 2])
def test_masks_of_scores(device, kind, dim):
    mask = _mask(4, 4) if kind == 0 else _mask(2, 4)
    mask[0] = False
    if dim == 2:  # along which a padding mask hides all or nothing
        mask = mask if kind == 0 else torch.zeros_like(mask)

    def softmax(x):
        return torch._masked_softmax(x, mask.to(x.device), dim, kind)

    # torch refuses these masks in backward.
    check(softmax, [torch.randn(2, 3, 4, 4)], device, backward=False)


def test_a_row_that_is_masked_throughout(device):
    x, mask = torch.randn(2, 5), torch.tensor([[True] * 5, [False] * 5])
    results = []
    for where in ("cpu", device):
        leaf = x.to(where, copy=True).requires_grad_()
        out = torch._masked_softmax(leaf, mask.to(where), 1, 2)
        out[:, 0].sum().backward()
        results.append((out.detach(), leaf.grad))
    for found, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


_BAD = {
    "float mask": lambda x, m: torch._masked_softmax(x, m.float(), 3, 2),
    "shape": lambda x, m: torch._masked_softmax(x, m[..., :2], 3, 2),
    "type 0": lambda x, m: torch._masked_softmax(x, m[0, 0, :, :2], 3, 0),
    "type 1": lambda x, m: torch._masked_softmax(x, m[0, 0, :1], 3, 1),
    "integers": lambda x, m: torch._masked_softmax(x.int(), m, 3, 2),
    "dim": lambda x, m: torch._masked_softmax(x, m, 4, 2),
    "gradient": lambda x, m: torch.ops.aten._masked_softmax_backward(x, x, m[0], 3),
    "sum of booleans": lambda x, m: _ADD_RELU(m, m),
    "complex sum": lambda x, m: _ADD_RELU(x + 0j, x + 0j),
    "no extreme": lambda x, m: torch._aminmax(x[:0]),
}


@pytest.mark.parametrize("name", _BAD)
def test_errors(device, name):
    x, mask = torch.randn(2, 3, 4, 4), _mask(2, 3, 4, 4)
    try:
        _BAD[name](x, mask)
    except (RuntimeError, IndexError, NotImplementedError) as error:
        with pytest.raises(type(error)) as raised:
            _BAD[name](x.to(device), mask.to(device))
        first = str(error).split("\n")[0]
        if "INTERNAL ASSERT" not in first:
            assert str(raised.value).split("\n")[0] == first
    else:
        _BAD[name](x.to(device), mask.to(device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.int32, torch.int64])
def test_add_relu(device, dtype):
    a = (torch.randn(5, 7) * 10).to(dtype)
    b = (torch.randn(7) * 10).to(dtype)
    for call in (
        lambda x, y: _ADD_RELU(x, y),
        lambda x, y: _ADD_RELU(x.t(), y[:, None], alpha=2),
        lambda x, y: _ADD_RELU(x, y, alpha=1.7 if x.is_floating_point() else 2),
        lambda x, y: _ADD_RELU(x, 3),
        lambda x, y: torch.ops.aten._add_relu_(x.clone(), y),
        lambda x, y: torch.ops.aten._add_relu_(x.clone(), 2),
        lambda x, y: torch.ops.aten._add_relu.out(x, y, out=torch.empty_like(x)),
    ):
        found, wanted = call(a.to(device), b.to(device)), call(a, b)
        torch.testing.assert_close(found.cpu(), wanted)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_add_relu_of_integers_that_wrap_around(device, dtype):
    limits = torch.iinfo(dtype)
    ends = torch.tensor([limits.max, limits.max - 1, limits.min, limits.min + 1, 3])
    a, b = torch.cartesian_prod(ends.to(dtype), ends.to(dtype)).unbind(1)
    for alpha in (1, 3):
        found = _ADD_RELU(a.to(device), b.to(device), alpha=alpha)
        assert torch.equal(found.cpu(), _ADD_RELU(a, b, alpha=alpha))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_aminmax(device, dtype):
    x = (torch.randn(5, 7) * 10).to(dtype)
    for call in (torch._aminmax, lambda x: torch._aminmax(x, 1, keepdim=True)):
        for found, wanted in zip(call(x.to(device)), call(x), strict=True):
            assert_matches(found, wanted.double(), wanted)


def test_functional_assert(device):
    check_it = torch.ops.aten._functional_assert_async.msg
    token = torch.tensor(3.0, device=device)
    passed = check_it(torch.tensor(True, device=device), "wrong", token)
    assert passed.item() == 3
    with pytest.raises(RuntimeError, match="wrong"):
        check_it(torch.tensor(False, device=device), "wrong", token)
        torch.opencl.synchronize()
