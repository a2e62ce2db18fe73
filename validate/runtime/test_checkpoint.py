"""Activation checkpointing: what is computed again is what was computed before,
random numbers included."""

import pytest
import torch
from script import run_script
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

_reentrant = pytest.mark.parametrize("reentrant", [False, True])


class _Block(nn.Module):
    """Draws masks at three places, and forms from them what a gradient needs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        hidden = self.dropout(torch.relu(self.first(x)))
        y = self.dropout(self.second(hidden)) * torch.rand_like(x)
        return x + y * torch.sigmoid(y)


def _gradients(run, model, x, seed: int) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    model.zero_grad()
    torch.manual_seed(seed)
    with torch.opencl.device(x.device):
        run(x).square().sum().backward()
    return [x.grad, *(parameter.grad for parameter in model.parameters())]


def _assert_same(device, plain, checkpointed, model, shape=(4, 16)) -> None:
    x = torch.randn(shape, device=device)
    expected = _gradients(plain, model, x, 11)
    results = _gradients(checkpointed, model, x, 11)
    for mine, theirs in zip(results, expected, strict=True):
        assert torch.equal(mine, theirs)
    others = _gradients(plain, model, x, 12)
    assert not torch.equal(others[0], expected[0])


@_reentrant
def test_dropout(device, reentrant):
    model = _Block(16).to(device)
    _assert_same(
        device, model, lambda x: checkpoint(model, x, use_reentrant=reentrant), model
    )


@_reentrant
def test_in_a_row(device, reentrant):
    model = nn.Sequential(*(_Block(16) for _ in range(4))).to(device)

    def checkpointed(x):
        return checkpoint_sequential(model, 2, x, use_reentrant=reentrant)

    _assert_same(device, model, checkpointed, model)


@_reentrant
def test_nested(device, reentrant):
    inner, outer = _Block(16), _Block(16)
    model = nn.Sequential(inner, outer).to(device)

    def both(x):
        return outer(checkpoint(inner, x, use_reentrant=reentrant))

    def checkpointed(x):
        return checkpoint(both, x, use_reentrant=reentrant)

    _assert_same(device, model, checkpointed, model)


@_reentrant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(device, reentrant, dtype):
    model = _Block(16).to(device)

    def plain(x):
        with torch.autocast("opencl", dtype=dtype):
            return model(x)

    def checkpointed(x):
        with torch.autocast("opencl", dtype=dtype):
            return checkpoint(model, x, use_reentrant=reentrant)

    _assert_same(device, plain, checkpointed, model)


@_reentrant
def test_without_random_state(device, reentrant):
    """The state is restored only where it is preserved."""
    model = _Block(16).to(device)

    def checkpointed(x):
        return checkpoint(model, x, use_reentrant=reentrant, preserve_rng_state=False)

    x = torch.randn(4, 16, device=device)
    expected = _gradients(model, model, x, 11)
    assert not torch.equal(_gradients(checkpointed, model, x, 11)[0], expected[0])
    model.eval()
    model.forward = lambda x: x * torch.sigmoid(model.second(model.first(x)))
    results = _gradients(checkpointed, model, x, 11)
    for mine, theirs in zip(results, _gradients(model, model, x, 11), strict=True):
        assert torch.equal(mine, theirs)


@_reentrant
def test_random_numbers_go_on_as_without(device, reentrant):
    model = _Block(16).to(device)
    x = torch.randn(4, 16, device=device)
    _gradients(model, model, x, 11)
    expected = torch.rand(8, device=device)
    _gradients(lambda x: checkpoint(model, x, use_reentrant=reentrant), model, x, 11)
    assert torch.equal(torch.rand(8, device=device), expected)


@_reentrant
def test_two_devices(device, reentrant):
    """The states of all devices of the arguments are kept."""
    other = torch.device("opencl", torch.opencl.device_count() - 1 - device.index)
    if other == device:
        pytest.skip("needs two devices")
    model = _Block(16)
    near, far = model.to(device), _Block(16).to(other)

    def run(x, y):
        # one after the other: torch lets autograd's threads of two devices
        # recompute the same region at once, and then raises
        return far(near(x).to(other) + y).to(device)

    def gradients(function):
        x = torch.arange(64.0).view(4, 16).to(device).requires_grad_()
        y = torch.arange(64.0).view(4, 16).to(other).requires_grad_()
        torch.manual_seed(5)
        function(x, y).square().sum().backward()
        return x.grad, y.grad

    expected = gradients(run)
    results = gradients(lambda *a: checkpoint(run, *a, use_reentrant=reentrant))
    for mine, theirs in zip(results, expected, strict=True):
        assert torch.equal(mine, theirs)


def test_device_used_first_in_the_forward(device):
    """A device that is initialised within is an error, not another mask."""
    output = run_script(
        """
        from torch.utils.checkpoint import checkpoint
        def forward(x):
            return x.to(DEVICE).square().cpu()
        x = torch.ones(3, requires_grad=True)
        try:
            checkpoint(forward, x, use_reentrant=False).sum().backward()
        except RuntimeError as error:
            print("device state was initialized" in str(error))
        """,
        device,
    )
    assert output.split() == ["True"]
