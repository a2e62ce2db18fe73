"""Pointwise ops after products, convolutions and batch norms: one launch on GPUs, the
CPU's values, whatever is held, overwritten or looked at in between."""

from __future__ import annotations

import pytest
import torch
from against_cpu import channels_last, check, contiguous
from torch import nn
from torch.nn import functional as F

LAYOUTS = (contiguous, channels_last)


def parameters(channels: int) -> list[torch.Tensor]:
    variance = torch.rand(channels) + 0.5
    return [torch.randn(channels), variance, *torch.randn(2, channels)]


def convolution(channels: int, shape: tuple[int, ...], kernel: int = 3):
    """An image, a weight that keeps its size, a bias."""
    weight = torch.randn(channels, shape[1], kernel, kernel) / kernel
    return [torch.randn(shape), weight, torch.randn(channels)]


def convolve(x, weight, bias):
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


POINTWISE = {
    "relu": F.relu,
    "relu_": lambda y: y.relu_(),
    "gelu": F.gelu,
    "gelu of tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "hardswish_": lambda y: F.hardswish(y, inplace=True),
    "threshold": lambda y: F.threshold(y, 0.25, -3.0),
    "number": lambda y: 2 - y / 3,
    "with itself": lambda y: y * y + y,
    "four": lambda y: torch.tanh(y * 2 + 1).neg(),
    "six": lambda y: ((((y + 1) * 2 - 3).abs() + 4) * 0.5).sqrt(),
    "comparison": lambda y: y > 0.25,
    "to double": lambda y: y.double() + 1,
    "copied": lambda y: y.clone().relu_(),
}
# Where something else looks at what lies between.
HELD = {
    "held": lambda y: (F.relu(y), y),
    "held in the middle": lambda y: (lambda z: (F.relu(z), z))(y + 1),
    "view held": lambda y: (F.gelu(y), y[..., 1:]),
    "overwritten": lambda y: (y.mul_(2), y.add_(1))[1],
    "out": lambda y: torch.add(F.relu(y), 1, out=y),
    "out twice": lambda y: (lambda z: (torch.mul(z, 3, out=y), z))(y + 1),
    "read between": lambda y: (y + 1, y.sum(), y.relu_()),
    "squeezed": lambda y: F.relu(y.unsqueeze_(0)),
    "transposed": lambda y: F.relu(y.transpose_(0, 1)) + 1,
    "a part": lambda y: (y[:1].relu_(), y)[1],
    "flat": lambda y: F.silu(y.flatten()) * 2,
    "expanded": lambda y: y + y[:1],
    "three held": lambda y: (lambda z: (lambda w: (w * z, w, z, y))(F.gelu(z)))(y + 1),
    "kept and replaced": lambda y: (y.clone(), F.hardtanh_(y)),
    "replaced and read": lambda y: (lambda z: (y.mul_(3), z + y, z))(F.relu(y)),
    "copied onto": lambda y: (lambda z: (y.copy_(z), z))(y + 1),
    "copied elsewhere": lambda y: (torch.empty_like(y).copy_(y), F.silu(y)),
    "earlier": lambda y: (lambda z: (z * 2 + y, z))(y - 1),
    "squares": lambda y: (lambda z: (y.add_(1), z * y + y))(y * y),
    "shifted": lambda y: (
        lambda z: torch.add(z.flatten()[1:], 1, out=y.flatten()[:-1])
    )(y.neg()),
    "at an odd offset": lambda y: (
        lambda room: torch.add(y, 1, out=room[1:].view(y.shape))
    )(torch.zeros(y.numel() + 1, device=y.device, dtype=y.dtype)),
    "data": lambda y: (setattr(y, "data", torch.ones_like(y)), y.relu_())[1],
}


@pytest.mark.parametrize("ops", (POINTWISE | HELD).values(), ids=POINTWISE | HELD)
def test_after_a_convolution(device, ops):
    for shape, channels, layout in (
        ((2, 5, 7, 9), 6, contiguous),
        ((3, 8, 12, 16), 4, channels_last),
    ):
        image, weight, bias = convolution(channels, shape)
        check(
            lambda *tensors: ops(convolve(*tensors)),
            [layout(image), layout(weight), bias],
            device,
            backward=False,
        )


@pytest.mark.parametrize("ops", (POINTWISE | HELD).values(), ids=POINTWISE | HELD)
def test_after_a_product(device, ops):
    for rows, columns, depth in ((37, 24, 19), (3, 130, 64), (70, 5, 2100)):
        tensors = [
            torch.randn(rows, depth) / depth**0.5,
            torch.randn(columns, depth),
            torch.randn(columns),
        ]
        check(lambda *t: ops(F.linear(*t)), tensors, device, backward=False)
        check(lambda *t: ops(t[0] @ t[1].T), tensors[:2], device, backward=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(device, dtype):
    def held(*tensors):
        y = convolve(*tensors) * 3
        return F.relu(y + 1), y

    check(held, convolution(6, (2, 5, 7, 9)), device, dtype, backward=False)
    matrices = [torch.randn(24, 8), torch.randn(16, 8)]
    check(
        lambda *t: (lambda y: (F.relu(y), y))(F.linear(*t)),
        matrices,
        device,
        dtype,
        backward=False,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [1, 3])
def test_residual_block(device, layout, kernel):
    """Convolution, evaluated batch norm, shortcut, ReLU; also by Winograd."""
    for shape in ((2, 6, 7, 9), (2, 72, 24, 28)):
        tensors = convolution(shape[1], shape, kernel)
        x, rest = layout(tensors[0]), [*tensors[1:], *parameters(shape[1])]

        def block(x, weight, bias, *params):
            return F.relu(F.batch_norm(convolve(x, weight, bias), *params) + x)

        def in_place(x, weight, bias, *params):
            y = F.batch_norm(convolve(x, weight, bias), *params)
            y += x
            return y.relu_()

        def onto_its_input(x, weight, bias, *params):
            x = x * 1
            x += F.batch_norm(convolve(x, weight, bias), *params)
            return x

        for function in (block, in_place, onto_its_input):
            check(function, [x, *rest], device, backward=False)


def test_batch_norm_params(device):
    """Missing and strided parameters, one channel, operands a channel."""
    image, weight, _ = convolution(6, (2, 5, 7, 9))
    mean, variance, scale, shift = parameters(6)

    def no_weight(x, w, mean, variance):
        return F.batch_norm(convolve(x, w, None), mean, variance)

    check(no_weight, [image, weight, mean, variance], device, backward=False)

    def strided(x, w, params):
        return F.batch_norm(convolve(x, w, None), *params.unbind(1))

    params = torch.stack([mean, variance, scale, shift], 1)
    check(strided, [image, weight, params], device, backward=False)

    def by_channel(x, w, scale, shift):
        return convolve(x, w, None) * scale[:, None, None] + shift.view(1, -1, 1, 1)

    check(by_channel, [image, weight, scale, shift], device, backward=False)

    def by_column(x, w, row):
        return convolve(x, w, None) * row

    check(by_column, [image, weight, torch.randn(9)], device, backward=False)

    def one(x, w, number):
        return convolve(x, w, None) * number

    check(one, [image, weight, torch.randn(())], device, backward=False)
    check(one, [image, weight, torch.randn(1)], device, backward=False)


def test_grouped_and_transposed(device):
    image = torch.randn(2, 8, 9, 7)
    params = parameters(6)
    check(
        lambda x, w, *p: F.relu(F.batch_norm(F.conv2d(x, w, groups=2), *p)),
        [image, torch.randn(6, 4, 3, 3), *params],
        device,
        backward=False,
    )
    for layout in LAYOUTS:  # depthwise
        check(
            lambda x, w, *p: F.relu6(F.batch_norm(F.conv2d(x, w, groups=8), *p)),
            [layout(image), torch.randn(8, 1, 3, 3), *parameters(8)],
            device,
            backward=False,
        )
    for stride in (1, 2):
        check(
            lambda x, w, b, stride=stride: F.relu(
                F.conv_transpose2d(x, w, b, stride=stride)
            ),
            [image, torch.randn(8, 6, 3, 3), torch.randn(6)],
            device,
        )
    check(
        lambda x, w, b: F.relu(F.conv1d(x, w, b)) + 1,
        [torch.randn(2, 3, 19), torch.randn(5, 3, 4), torch.randn(5)],
        device,
    )


def test_gradients(device):
    """The gradients of ReLU and of a sum follow a data gradient."""

    def network(x, first, second, third):
        y = F.relu(F.conv2d(x, first, padding=1))
        z = F.relu(F.conv2d(y, second, padding=1)) + y
        return F.relu(F.conv2d(F.relu(z), third))

    for layout in LAYOUTS:
        tensors = [
            torch.randn(2, 3, 9, 8),
            torch.randn(8, 3, 3, 3),
            torch.randn(8, 8, 3, 3) / 8,
            torch.randn(5, 8, 1, 1),
        ]
        check(network, [layout(tensor) for tensor in tensors], device)


@pytest.mark.parametrize(
    "activation", [F.gelu, F.silu, F.relu6, F.hardswish, F.softplus, F.elu]
)
def test_gradients_of_activations(device, activation):
    """What they read of the forward pass is kept by the launch before."""

    def network(x, first, bias, second):
        y = activation(F.linear(x, first, bias))
        return F.linear(y, second) + x

    tensors = [torch.randn(6, 8), *torch.randn(2, 24, 8).unbind(), torch.randn(8, 24)]
    tensors[2] = torch.randn(24)
    check(network, tensors, device)

    def in_place(x, weight):
        y = F.conv2d(x, weight)
        return F.hardtanh(y, -0.5, 0.5, inplace=True) * y

    check(in_place, [torch.randn(2, 3, 5, 7), torch.randn(4, 3, 1, 1)], device)


@pytest.mark.parametrize("size", [24, 5000])
def test_gradients_of_layer_norms(device, size):
    """The sum of a fork's gradients follows that of a layer norm."""

    def before(x, weight, bias, second):
        y = F.layer_norm(x, (size,), weight, bias)
        return x + F.gelu(y * second)

    def after(x, weight, bias, second):
        y = F.layer_norm(x * second + x, (size,), weight, bias)
        return F.relu(y) + y

    tensors = [torch.randn(3, 7, size), *torch.randn(3, size).unbind()]
    check(before, tensors, device)
    check(after, tensors, device)
    check(before, tensors, device, torch.float64)


def test_dropout_joins(device):
    """The mask is drawn ahead of what is pending, as it is without that."""
    x, weight, bias = convolution(6, (2, 5, 7, 9))
    tensors = [tensor.to(device) for tensor in (x, weight, bias)]
    ones = torch.ones(2, 6, 7, 9, device=device)
    for number in range(2):
        torch.manual_seed(number)
        joined = F.dropout(convolve(*tensors), 0.4) + 1
        torch.manual_seed(number)
        mask = F.dropout(ones, 0.4) > 0
        state = torch.get_rng_state()
        expected = convolve(x, weight, bias) / 0.6 * mask.cpu() + 1
        torch.testing.assert_close(joined.cpu(), expected, atol=1e-4, rtol=1e-4)
        assert 0.4 < mask.float().mean().item() < 0.8
        assert torch.equal(state, torch.get_rng_state())
    inputs = [tensor.requires_grad_() for tensor in tensors]
    out = F.dropout(F.gelu(convolve(*inputs)), 0.5)
    out.sum().backward()
    kept = (out != 0).cpu()
    cpu = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    (F.gelu(convolve(*cpu)) * kept * 2).sum().backward()
    for ours, cpus in zip(inputs, cpu, strict=True):
        torch.testing.assert_close(ours.grad.cpu(), cpus.grad, atol=1e-3, rtol=1e-4)


def test_masks(device):
    matrices = [torch.randn(37, 19), torch.randn(24, 19)]
    mask = torch.rand(37, 24) > 0.5
    for mask_of in (mask, mask[:, :1], mask[:1], mask[0, 0]):
        check(
            lambda a, b, m: ((a @ b.T) * m, torch.where(m, a @ b.T, -1.0)),
            [*matrices, mask_of],
            device,
            backward=False,
        )


def test_what_goes_ahead(device):
    """Weight gradients and sums overtake only what they have nothing to do with."""
    x, weight, other = torch.randn(40, 24), torch.randn(24, 24), torch.randn(40, 16)

    def ahead(x, weight, other):
        y = x @ weight
        return y, x.t() @ other, x.sum(0), F.relu(y)

    def reads(x, weight, other):
        y = x @ weight
        z = y.t() @ other
        return z, y.sum(0), F.relu(y), y.sum()

    def writes(x, weight, other):
        x, other = x * 1, other * 1
        y = (x @ weight) + x
        torch.sum(y, 0, out=x[0])
        torch.mm(x.t(), other * 2, out=other.view(-1)[:384].view(24, 16))
        return y, x, other, F.relu(y)

    def operand(x, weight, other):
        x = x * 1
        y = x @ weight
        z = y * x
        torch.sum(other, 0, out=x.view(-1)[:16])
        return F.relu(z), x

    for function in (ahead, reads, writes, operand):
        check(function, [x, weight, other], device, backward=False)


def test_statistics_are_no_operands(device):
    """The batch norm that is pending writes them."""
    for shape in ((3, 5, 6, 7), (16, 5, 40, 40)):

        def function(x, mean, variance):
            y = F.batch_norm(x, mean, variance, training=True)
            return (
                y + mean[:, None, None],
                variance.view(1, -1, 1, 1) * F.batch_norm(x, mean, variance),
            )

        tensors = [torch.randn(shape) + 2, torch.randn(5), torch.rand(5)]
        check(function, tensors, device, backward=False)

        def saved(x):
            y, mean, deviation = torch.native_batch_norm(
                x, None, None, None, None, True, 0.1, 1e-5
            )
            return (y + mean[:, None, None]) / deviation[:, None, None]

        check(saved, tensors[:1], device, backward=False)


def test_training_of_a_block(device):
    """Statistics, running ones included, with shortcut and ReLU joined."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(6, 6, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(6)

        def forward(self, x):
            return F.relu(self.norm(self.conv(x)) + x, inplace=True)

    models = [Block(), Block()]
    models[1].load_state_dict(models[0].state_dict())
    models[1].to(device)
    x = torch.randn(4, 6, 17, 8)
    grad = torch.randn_like(x)
    inputs = [x.clone().requires_grad_(), x.to(device).requires_grad_()]
    for _ in range(2):
        results = [model(it) for model, it in zip(models, inputs, strict=True)]
        for result in results:
            result.backward(grad.to(result.device))
    torch.testing.assert_close(results[1].cpu(), results[0])
    torch.testing.assert_close(
        inputs[1].grad.cpu(), inputs[0].grad, atol=1e-4, rtol=1e-4
    )
    for ours, cpus in zip(
        models[1].state_dict().values(), models[0].state_dict().values(), strict=True
    ):
        torch.testing.assert_close(ours.cpu(), cpus)


def test_a_result_in_memory_that_another_storage_has(device):
    ones = torch.ones(16, 16, device=device)
    kept = torch.zeros(16, 16, device=device)
    result = torch.from_dlpack(torch.utils.dlpack.to_dlpack(kept))
    torch.mm(ones, ones, out=result)
    result = F.relu(result)
    result = result + 1
    assert kept.eq(16).all() and result.eq(17).all()


@pytest.mark.parametrize("bad", ["input", "target"])
def test_what_reports_does_not_join(device, bad):
    linear, x = nn.Linear(8, 8, device=device), torch.randn(4, 8, device=device)
    half, two = (torch.full((4, 8), value, device=device) for value in (0.5, 2.0))
    with pytest.raises(RuntimeError, match="between 0 and 1"), torch.no_grad():
        if bad == "target":
            F.binary_cross_entropy(linear(x).sigmoid(), two).item()
        else:
            F.binary_cross_entropy(linear(x).tanh().add(4), half).item()
