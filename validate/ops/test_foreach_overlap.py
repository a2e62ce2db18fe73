"""Lists of a call, or of a fused step, that share memory: as ATen's loop over the
tensors computes them."""

from __future__ import annotations

import pytest
import torch
import torch_opencl


def _launches(device) -> int:
    """So far, those of pending calls included."""
    torch.opencl.synchronize(device)
    return torch_opencl._C._launch_count(device.index)


def _twice(x, y):
    torch._foreach_add_([x, x], 1)
    return [x]


def _crosswise(x, y):
    torch._foreach_add_([x, y], [y, x])
    return [x, y]


def _copied(x, y):
    torch._foreach_copy_([x, y], [y, x])
    return [x, y]


def _neighbours(x, y):
    torch._foreach_mul_([x[:4000], y], [y[:4000], x])
    return [x, y]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("call", [_twice, _crosswise, _copied, _neighbours])
def test_tensors_go_one_after_the_other(device, call, dtype):
    lists = [torch.randint(9, (70_000,)).to(dtype) for _ in range(2)]
    moved = [x.to(device) for x in lists]
    before = _launches(device)
    results = call(*moved)
    assert _launches(device) - before == 2
    for result, expected in zip(results, call(*lists), strict=True):
        assert torch.equal(result.cpu(), expected)


def test_a_call_among_others(device):
    def run(place):
        x, y, z = (torch.arange(5000.0).to(place) + i for i in range(3))
        torch._foreach_mul_([x, y], 2)
        torch._foreach_add_([x, y], [y, z])
        torch._foreach_sub_([x, y], 3)
        return [x, y, z]

    for result, expected in zip(run(device), run("cpu"), strict=True):
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch._foreach_add_([x[1:]], [x[:-1]]),
        lambda x: torch._foreach_copy_([x[1:]], [x[:-1]]),
        lambda x: torch._foreach_addcmul_([x[1:]], [x[:-1]], [x[1:]]),
        lambda x: torch._foreach_lerp_([x[1:]], [x[1:]], [x[:-1]]),
    ],
)
def test_partial_overlap_is_refused(device, call):
    x = torch.ones(10, device=device)
    with pytest.raises(RuntimeError, match="single memory location"):
        call(x)
    assert torch.equal(x.cpu(), torch.ones(10))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_parameter_given_twice_to_a_fused_step(device, kind):
    """As views of a flat parameter are, which optimizers do not recognise."""

    def run(place):
        flat = torch.arange(20_000.0).to(place)
        params = [flat[:].requires_grad_() for _ in range(2)]
        for param in params:
            param.grad = torch.ones_like(flat)
        optimizer = kind(params, lr=0.1, fused=True)
        if place != "cpu":
            start = _launches(device)
        optimizer.step()
        if place != "cpu":
            assert _launches(device) - start >= 2
        return flat.cpu()

    torch.testing.assert_close(run(device), run("cpu"))
