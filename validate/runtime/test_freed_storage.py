"""Tensors whose storage has no memory, as FSDP leaves them."""

from __future__ import annotations

import pytest
import torch
from torch_opencl import ElementwiseKernel, RawKernel, ReductionKernel

# The second where a view is made first, which torch refuses itself.
TEXT = "its data is not allocated|out of bounds for storage of size 0"
COPY = RawKernel("kernel void k(global float *x) { x[0] = 1; }", "k")
PAIR = RawKernel("kernel void k(TENSOR(float, x)) { POINTER(x)[0] = 1; }", "k")
TWICE = ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")
SUM = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")

USES = {
    "cpu": lambda x: x.cpu(),
    "clone": lambda x: x.clone(),
    "item": lambda x: x[0, 0].item(),
    "strided clone": lambda x: x.t().contiguous(),
    "to another dtype": lambda x: x.double(),
    "written by copy": lambda x: x.copy_(torch.ones(8, 8)),
    "written on the device": lambda x: x.copy_(torch.ones(8, 8, device=x.device)),
    "read by copy": lambda x: torch.ones(8, 8, device=x.device).copy_(x),
    "add": lambda x: x + 1,
    "add to a view": lambda x: x[2:, 3:].add_(1),
    "other operand": lambda x: torch.ones(8, 8, device=x.device).mul_(x),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(2),
    "sum": lambda x: x.sum(),
    "max along": lambda x: x.max(1),
    "mm": lambda x: x @ x,
    "softmax": lambda x: x.softmax(1),
    "index": lambda x: x[torch.tensor([1, 2], device=x.device)],
    "index_put": lambda x: x.index_put_(
        (torch.tensor([1], device=x.device),), torch.ones(8, device=x.device)
    ),
    "gather": lambda x: x.gather(
        0, torch.zeros(2, 8, dtype=torch.int64, device=x.device)
    ),
    "cat": lambda x: torch.cat([x, torch.ones(2, 8, device=x.device)]),
    "uniform_": lambda x: x.uniform_(),
    "sort": lambda x: x.sort(),
    "cumsum": lambda x: x.cumsum(0),
    "foreach": lambda x: torch._foreach_add_([x], 1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (8,)),
    "user's pointer": lambda x: COPY((1,), (1,), (x,)),
    "user's TENSOR": lambda x: PAIR((1,), (1,), (x,)),
    "user's view": lambda x: PAIR((1,), (1,), (x[3:],)),
    "user's elementwise": lambda x: TWICE(x),
    "user's reduction": lambda x: SUM(x),
}


@pytest.mark.parametrize("use", USES)
def test_every_use_raises(device, use):
    x = torch.ones(8, 8, device=device)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=TEXT):
        USES[use](x)
        torch.opencl.synchronize(device)
    # Nothing waits, and nothing is broken.
    assert torch.ones(4, device=device).sum().item() == 4


def test_a_storage_that_is_made_again_works(device):
    x = torch.ones(8, 8, device=device)
    size = x.untyped_storage().nbytes()
    x.untyped_storage().resize_(0)
    assert x.data_ptr() == 0 and x.shape == (8, 8)
    x.untyped_storage().resize_(size)
    x.copy_(torch.full((8, 8), 3.0))
    assert torch.equal(x.cpu(), torch.full((8, 8), 3.0))


def test_empty_tensors_need_no_memory(device):
    x = torch.ones(3, 4, device=device)[:0]
    x.untyped_storage().resize_(0)
    assert x.cpu().shape == (0, 4)
    assert x.sum().item() == 0
    assert (x + 1).shape == (0, 4)
    assert x.sum(0).tolist() == [0] * 4
    assert SUM(x, axis=0).tolist() == [0] * 4
