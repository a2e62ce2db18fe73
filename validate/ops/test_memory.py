"""Storages that are shared, grown or overlap, and what cannot be read of them."""

from __future__ import annotations

import pytest
import torch

_OVERLAP = "unsupported operation: some elements of the input tensor"


def test_is_set_to(device):
    x = torch.ones(3, device=device)
    y = torch.empty(0, device=device).set_(x)
    assert y.is_set_to(x)
    assert x.is_set_to(y)
    assert torch.empty(0, device=device).set_(x.untyped_storage(), 0, (3,)).is_set_to(x)
    assert not x[1:].is_set_to(x)
    assert not x.clone().is_set_to(x)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.complex64, torch.int32, torch.bool]
)
def test_filled_memory(device, dtype, deterministic):
    """torch.utils.deterministic.fill_uninitialized_memory, which is on by default."""

    def made(device):
        x = torch.ones(2, dtype=dtype, device=device)
        return [
            x.clone().resize_(5),
            x.clone().resize_(1, 2, 2, 3, memory_format=torch.channels_last),
            torch.ones(4, dtype=dtype, device=device)[:2].resize_(3),
            torch.empty(2, dtype=dtype, device=device),
            torch.empty_strided((2, 3), (1, 4), dtype=dtype, device=device),
            torch.empty_like(x),
            x.new_empty(3),
        ]

    for found, expected in zip(made(device), made("cpu"), strict=True):
        torch.testing.assert_close(
            found.cpu(), expected, rtol=0, atol=0, equal_nan=True
        )


MADE = {
    "empty": lambda device: torch.empty(4096, device=device),
    "empty_strided": lambda device: torch.empty_strided(
        (64, 64), (1, 64), device=device
    ),
    "resize_": lambda device: torch.empty(0, device=device).resize_(4096),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("fills", [True, False])
def test_memory_is_not_filled_on_request(
    device, name, fills, deterministic, pytestconfig
):
    """What lies in a block that is used again shows whether it was filled."""
    if pytestconfig.getoption("guard"):
        pytest.skip("guard mode fills all new memory")
    old = torch.full((4096,), 7.0, device=device)
    address = old.data_ptr()
    del old
    torch.utils.deterministic.fill_uninitialized_memory = fills
    try:
        new = MADE[name](device)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
    assert new.data_ptr() == address
    assert new.isnan().all() if fills else new.eq(7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.uint8])
def test_overlapping_copy(device, dtype):
    for size in (10, 1 << 20):
        x = torch.zeros(size, dtype=dtype, device=device)
        with pytest.raises(RuntimeError, match=_OVERLAP):
            x[1:].copy_(x[:-1])
    square = torch.rand(4, 4, device=device)
    with pytest.raises(RuntimeError, match=_OVERLAP):
        square[:3].copy_(square[1:])
    before = square.cpu()
    assert torch.equal(square.copy_(square.view(4, 4)).cpu(), before)


def test_overlap_is_told_before_shapes(device):
    x = torch.rand(5, device=device)
    for source in (x[:2].view(1, 1, 2), x[1:4]):
        with pytest.raises(RuntimeError, match=_OVERLAP):
            x[:2].copy_(source)
    with pytest.raises(RuntimeError, match="more than one element of the written-to"):
        x[:1].expand(3).copy_(torch.zeros(4, device=device))


def test_index_fill_of_its_own_index(device):
    index = torch.tensor([0, 1], device=device)
    with pytest.raises(RuntimeError, match=_OVERLAP):
        index.index_fill_(0, index, 5)
    expanded = torch.zeros(3, 1, device=device).expand(3, 2)
    with pytest.warns(UserWarning, match="index_fill_ on expanded tensors"):
        expanded.index_fill_(0, torch.tensor([0], device=device), 5.0)
    assert expanded.tolist() == [[5, 5], [0, 0], [0, 0]]


# Elements that lie in the same memory, of rows that overlap in a part, or all.
@pytest.mark.parametrize(
    ("size", "stride", "dim", "index"),
    [
        ((3, 4), (2, 1), 0, [1]),
        ((3, 4), (2, 1), 0, [-1, 0]),
        ((3, 4), (2, 1), 1, [1, 3]),
        ((3, 4), (1, 1), 1, [0]),
        ((3, 4), (3, 1), 0, [1, 1]),
        ((3, 3, 2), (2, 2, 1), 1, [2]),
    ],
)
def test_index_fill_of_partial_overlap(device, size, stride, dim, index):
    """No error, as on the CPU: all that is written is the same value."""
    expected = torch.arange(40.0)
    result = expected.to(device)
    for memory in (expected, result):
        x = memory.as_strided(size, stride, 3)
        x.index_fill_(dim, torch.tensor(index, device=memory.device), -5.0)
    assert torch.equal(result.cpu(), expected)


def test_item_of_nothing(device):
    x = torch.empty(0, device=device)
    with pytest.raises(RuntimeError, match="a Tensor with 0 elements cannot be"):
        x.item()
    with pytest.raises(RuntimeError, match="Empty tensor not supported"):
        torch.ops.aten._local_scalar_dense(x)


_WRITES = {
    "copy_": lambda y, other: y.copy_(other),
    "copy_ of a transposed": lambda y, other: y.copy_(other.T),
    "copy_ of the host": lambda y, other: y.copy_(other.cpu()),
    "normal_": lambda y, other: y.normal_(),
    "add_": lambda y, other: y.add_(other),
    "_foreach_add_": lambda y, other: torch._foreach_add_([y], 1.0),
    "_foreach_copy_": lambda y, other: torch._foreach_copy_([y], [other]),
    "cumsum": lambda y, other: torch.cumsum(other, 0, out=y),
    "mm": lambda y, other: torch.mm(other, other, out=y),
    "cat": lambda y, other: torch.cat([other[:1], other[1:]], out=y),
    "arange": lambda y, other: torch.arange(16, out=y.view(-1)),
    "scatter_": lambda y, other: y.scatter_(0, other.long(), other),
    "relu_": lambda y, other: y.sub_(1).relu_(),
}


@pytest.mark.parametrize("write", _WRITES)
def test_a_write_to_a_lazy_clone(device, write):
    """The other storage of the same bytes keeps what it has."""
    x = torch.zeros(4, 4, device=device)
    other = torch.ones(4, 4, device=device)
    y = x._lazy_clone()
    address = torch._C._data_address(x)
    assert torch._C._data_address(y) == address
    _WRITES[write](y, other)
    assert x.cpu().eq(0).all() and torch._C._data_address(y) != address
    assert write == "relu_" or y.cpu().ne(0).any()
    _WRITES[write](x, other)  # of the last owner
    assert torch._C._data_address(x) == address


@pytest.mark.parametrize("kind", ["product", "batch normalisation"])
def test_a_lazy_clone_of_what_is_pending(device, kind):
    """The launch writes to the memory that both have, before it is copied."""
    x = torch.randn(2, 4, 8, 8, device=device)
    mean, variance = torch.zeros(4, device=device), torch.ones(4, device=device)

    def result():
        if kind == "product":
            return x.view(16, 32) @ x.view(32, 16)
        return torch.nn.functional.batch_norm(x, mean, variance)

    expected = result().cpu()
    y = result()
    z = y._lazy_clone()
    z.relu_()
    assert torch.equal(y.cpu(), expected)
    assert torch.equal(z.cpu(), expected.relu())
    y = result()
    z = y._lazy_clone()
    w = y.relu()
    del y
    assert torch.equal(w.cpu(), expected.relu())
    assert torch.equal(z.cpu(), expected)
