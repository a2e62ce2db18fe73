"""clamp_ right after a batch normalisation: one launch, the CPU's values."""

from __future__ import annotations

import pytest
import torch
from against_cpu import LAYOUTS, channels_last, check, contiguous
from torch import nn
from torch.nn import functional as F

NAN = float("nan")
CLAMPS = {
    "relu_": lambda y: y.relu_(),
    "relu6": lambda y: F.relu6(y, inplace=True),
    "hardtanh_": lambda y: F.hardtanh_(y, -0.3, 0.2),
    "from below": lambda y: y.clamp_(min=0.1),
    "from above": lambda y: y.clamp_(max=1),
    "crossed": lambda y: y.clamp_(0.5, -0.5),
    "nan": lambda y: y.clamp_(NAN, 1.0),
    "twice": lambda y: y.clamp_(-0.5, 0.5).clamp_(-1, 0.25),
    "a part": lambda y: (y[:1].relu_(), y)[1],
    "read between": lambda y: (y + 1, y.relu_()),
    "out of place": lambda y: (y.relu(), y),
    "as another": lambda y: (y.transpose(0, 1).relu_(), y)[1],
}


def normalized(x, mean, variance, weight, bias, training=False):
    return F.batch_norm(x, mean, variance, weight, bias, training)


def parameters(channels: int) -> list[torch.Tensor]:
    variance = torch.rand(channels) + 0.5
    return [torch.randn(channels), variance, *torch.randn(2, channels)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("clamp", CLAMPS.values(), ids=CLAMPS)
def test_clamps(device, clamp, layout):
    for shape in ((2, 5, 7, 9), (3, 16, 13, 32), (2, 33, 1, 3)):
        x = layout(torch.randn(shape))
        x[0, 1, 0, 0], x[0, 2, 0, 1] = NAN, float("inf")
        check(
            lambda *tensors: clamp(normalized(*tensors)),
            [x, *parameters(shape[1])],
            device,
            backward=False,
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(device, dtype):
    check(
        lambda *tensors: normalized(*tensors).relu_(),
        [torch.randn(3, 16, 5, 32), *parameters(16)],
        device,
        dtype,
        backward=False,
    )


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("size", [7, 64])
def test_training(device, layout, size):
    """Running statistics and gradients, of a cache's channels and of larger ones."""
    models = [nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(inplace=True)) for _ in "ab"]
    models[1].load_state_dict(models[0].state_dict())
    models[0].double()
    models[1].to(device)
    x = layout(torch.randn(9, 6, size, size))
    grad = torch.randn_like(x)
    inputs = [x.double().requires_grad_(), x.to(device).requires_grad_()]
    results = [model(it) for model, it in zip(models, inputs, strict=True)]
    # Where rounding decides the sign, one has a gradient and the other none.
    grad[(results[0] > 0) != (results[1].cpu() > 0)] = 0
    for result in results:
        result.backward(grad.to(result))
    models[0].float()
    torch.testing.assert_close(results[1].cpu(), results[0].float())
    torch.testing.assert_close(inputs[1].grad.cpu(), inputs[0].grad.float())
    for ours, exact in zip(
        models[1].state_dict().values(), models[0].state_dict().values(), strict=True
    ):
        torch.testing.assert_close(ours.cpu(), exact)


def test_result_nobody_holds(device):
    x, *rest = (t.to(device) for t in (torch.randn(2, 5, 7, 9), *parameters(5)))
    normalized(x, *rest)
    mean = rest[0].clone()
    normalized(x, *rest, True)
    assert not torch.equal(mean, rest[0])


CHANGES = {
    "squeeze_": lambda y: y.squeeze_(2),
    "transpose_": lambda y: y.transpose_(1, 3),
    "unsqueeze_": lambda y: y.unsqueeze_(0),
    "t_ of a view": lambda y: y.flatten(2).flatten(1)[:, :4].t_(),
    "as_strided_": lambda y: y.as_strided_((5, 9), (9, 1), 3),
    "resize_": lambda y: y.resize_(1, 5, 1, 9),
    "set_": lambda y: y.set_(y.new_full((3,), 7.0)),
}


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_metadata_changed_in_place(device, change, layout, training):
    """The launch that waits has the shape of its call."""

    def changed(x, *rest):
        y = normalized(x, *rest, training)
        alias = y.detach()
        y = change(y)
        return y + 0, alias + 0

    x = layout(torch.randn(2, 5, 1, 9))
    check(changed, [x, *parameters(5)], device, backward=False)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("clamps", [False, True], ids=["read", "clamped"])
def test_data_replaced(device, clamps, layout, training):
    """The launch that waits writes the memory of its call, and a clamp joins it only
    there."""

    def replaced(x, z, *rest):
        y = normalized(x, *rest, training)
        alias = y.detach()
        y.data = z
        if clamps:
            y.relu_()
        return y + 0, z + 0, alias + 0, rest[0] + 0

    x = layout(torch.randn(2, 5, 1, 9))
    z = layout(torch.linspace(-3, 3, x.numel()).view(x.shape))
    check(replaced, [x, z, *parameters(5)], device, backward=False)


def test_clamp_of_another_shape_joins(device):
    """A view of all elements is the same memory."""
    check(
        lambda *tensors: (lambda y: (y.flatten().relu_(), y))(normalized(*tensors))[1],
        [torch.randn(2, 5, 7, 9), *parameters(5)],
        device,
        backward=False,
    )
