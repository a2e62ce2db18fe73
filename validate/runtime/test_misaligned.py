"""Tensors that do not begin at a multiple of their elements' size, as slices of
a storage's bytes make them."""

from __future__ import annotations

import pytest
import torch

USES = {
    "add": lambda x: x + 1,
    "add to a view": lambda x: x[1:].add_(1),
    "other operand": lambda x: torch.ones_like(x).mul_(x),
    "fill_": lambda x: x.fill_(1),
    "zero_ of a view": lambda x: x[::2].zero_(),
    "sum": lambda x: x.sum(),
    "sort": lambda x: x.sort(),
    "foreach": lambda x: torch._foreach_add_([x], 1),
}


def misaligned(base: torch.Tensor, dtype: torch.dtype, begin: int = 1) -> torch.Tensor:
    size = (base.numel() - begin) // dtype.itemsize * dtype.itemsize
    part = base.untyped_storage()[begin : begin + size]
    return torch.empty(0, dtype=dtype, device=base.device).set_(
        part, 0, (size // dtype.itemsize,), (1,)
    )


@pytest.mark.parametrize("use", USES)
def test_kernels_refuse_it(device, use):
    base = torch.arange(32, dtype=torch.uint8, device=device)
    with pytest.raises(RuntimeError, match="misaligned address"):
        USES[use](misaligned(base, torch.int32))
    assert base.tolist() == list(range(32))


@pytest.mark.parametrize("size", [32, 3 << 20])
@pytest.mark.parametrize("dtype", [torch.int16, torch.float32, torch.complex64])
def test_copies_take_it(device, size, dtype):
    base = torch.randint(0, 100, (size,), dtype=torch.uint8)
    expected = misaligned(base, dtype)
    x = misaligned(base.to(device), dtype)
    assert torch.equal(x.cpu(), expected)
    assert torch.equal(x.clone().cpu(), expected)
    assert x[1].item() == expected[1].item()
    assert (x.clone() * 2).sum().isfinite()


@pytest.mark.parametrize("elements", [3, 100])
def test_copies_into_it(device, elements):
    values = torch.arange(float(elements))
    for source in (values, values.to(device)):
        base = torch.full((4 * elements + 5,), 7, dtype=torch.uint8, device=device)
        misaligned(base, torch.float32)[:elements].copy_(source)
        host = base.cpu()
        assert torch.equal(host[1:-4], values.view(torch.uint8))
        assert host[:1].tolist() == [7] and host[-4:].tolist() == [7] * 4
