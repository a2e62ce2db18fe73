"""Negative log likelihood and what is made of it."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from against_cpu import (
    FLOATS,
    channels_last,
    check,
    check_error,
    contiguous,
    strided,
    transposed,
)

REDUCTIONS = ["none", "mean", "sum"]


def _log_probabilities(*size):
    # Of one sign, as the op expects them: a sum of mixed signs can cancel to
    # nearly nothing, and its relative error then says nothing.
    return torch.randn(size).log_softmax(min(1, len(size) - 1))


def _targets(count, classes, ignored=True):
    targets = torch.randint(0, classes, count)
    if ignored:
        targets[torch.rand(count) < 0.2] = -100
    return targets


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
# Around one work-group's share of samples.
@pytest.mark.parametrize("count", [1, 63, 64, 65, 2048, 5000])
def test_nll_loss(device, count, weighted, reduction):
    classes = 11
    weight = torch.rand(classes) if weighted else None
    target = _targets((count,), classes, ignored=count > 1)

    def loss(x):
        w = None if weight is None else weight.to(x.device, x.dtype)
        return F.nll_loss(x, target.to(x.device), w, reduction=reduction)

    check(loss, [_log_probabilities(count, classes)], device, strides=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_dtypes(device, dtype, reduction):
    weight = torch.rand(7)
    target = _targets((100,), 7)

    def loss(x, weight):
        return F.nll_loss(x, target.to(x.device), weight.detach(), reduction=reduction)

    check(loss, [-torch.rand(100, 7), weight], device, dtype)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("layout", [transposed, strided])
def test_layouts(device, layout, reduction):
    target = strided(_targets((30,), 7))
    weight = torch.rand(14)[::2]

    def loss(x):
        return F.nll_loss(
            x, target.to(x.device), weight.to(x.device, x.dtype), reduction=reduction
        )

    check(loss, [layout(_log_probabilities(30, 7))], device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("layout", [contiguous, channels_last, transposed, strided])
@pytest.mark.parametrize("size", [(2, 5, 7, 9), (1, 3, 1, 1), (3, 21, 40, 41)])
def test_nll_loss2d(device, size, layout, reduction):
    target = _targets((size[0], *size[2:]), size[1], ignored=size[2] > 1)
    weight = torch.rand(size[1])

    def loss(x):
        # The CPU's backward wants a contiguous gradient.
        x = x if x.device.type == "opencl" else x.contiguous()
        return F.nll_loss(
            x, target.to(x.device), weight.to(x.device, x.dtype), reduction=reduction
        )

    check(loss, [layout(_log_probabilities(*size))], device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_single_sample(device, reduction):
    target = torch.tensor(3)
    check(
        lambda x: F.nll_loss(x, target.to(x.device), reduction=reduction),
        [torch.randn(5)],
        device,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("size", [(0, 5), (0, 5, 3, 3)])
def test_empty_batch(device, size, reduction):
    target = torch.zeros((0, *size[2:]), dtype=torch.long)
    check(
        lambda x: F.nll_loss(x, target.to(x.device), reduction=reduction),
        [torch.randn(size)],
        device,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_everything_ignored(device, reduction):
    target = torch.full((9,), 2)
    check(
        lambda x: F.nll_loss(
            x, target.to(x.device), ignore_index=2, reduction=reduction
        ),
        [torch.randn(9, 5)],
        device,
    )


def test_total_weight(device):
    x, target, weight = torch.randn(90, 4), _targets((90,), 4), torch.rand(4)
    for reduction in range(3):
        _, expected = torch.ops.aten.nll_loss_forward(
            x, target, weight, reduction, -100
        )
        _, total = torch.ops.aten.nll_loss_forward(
            x.to(device), target.to(device), weight.to(device), reduction, -100
        )
        torch.testing.assert_close(total.cpu(), expected)


def test_byte_targets(device):
    x = torch.randn(20, 5)
    target = torch.randint(0, 5, (20,), dtype=torch.uint8)
    expected = F.nll_loss(x, target)
    torch.testing.assert_close(
        F.nll_loss(x.to(device), target.to(device)).cpu(), expected
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_target_out_of_range_is_nan(device, reduction):
    # It raises at the next wait (test_index_errors.py); nothing out of bounds is read.
    target = torch.tensor([0, 5, -3, 1], device=device)
    x = torch.randn(4, 5).to(device).requires_grad_()
    loss = F.nll_loss(x, target, reduction=reduction)
    with pytest.raises(IndexError, match=r"Target (5|-3) is out of bounds"):
        torch.opencl.synchronize(device)
    wrong = loss.cpu().isnan()
    assert wrong.tolist() == [False, True, True, False] if loss.dim() else wrong
    loss.sum().backward()
    with pytest.raises(IndexError, match=r"nll_loss_backward.*Target (5|-3) is"):
        torch.opencl.synchronize(device)
    assert (x.grad.cpu()[1:3] == 0).all()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(device, smoothing, reduction):
    target = _targets((40,), 10)
    weight = torch.rand(10)

    def loss(x):
        return F.cross_entropy(
            x,
            target.to(x.device),
            weight.to(x.device, x.dtype),
            reduction=reduction,
            label_smoothing=smoothing,
        )

    check(loss, [torch.randn(40, 10)], device)


def test_cross_entropy_of_images(device):
    target = _targets((2, 9, 11), 6)
    check(
        lambda x: F.cross_entropy(x, target.to(x.device)),
        [torch.randn(2, 6, 9, 11)],
        device,
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: F.nll_loss(x, t.int()),
        lambda x, t: F.nll_loss(x, t[:3]),
        lambda x, t: F.nll_loss(x, t, torch.ones(3, device=x.device)),
        lambda x, t: F.nll_loss(x, t, torch.ones(5, device=x.device).double()),
        lambda x, t: F.nll_loss(x.long(), t),
        lambda x, t: F.nll_loss(x.view(4, 5, 1, 1), t.view(4, 1, 1).int()),
        lambda x, t: F.nll_loss(x.view(2, 5, 2, 1), t.view(4, 1, 1)),
        lambda x, t: F.nll_loss(x.view(4, 5, 1, 1), t),
    ],
)
def test_errors_are_the_cpus(device, call):
    x, target = torch.randn(4, 5), torch.zeros(4, dtype=torch.long)
    check_error(call, device, x, target)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(device, reduction, weighted):
    weight = torch.rand(5, 7)

    def loss(x, target):
        return torch.nn.functional.binary_cross_entropy(
            torch.sigmoid(x),
            torch.sigmoid(target),
            weight.to(x.device, x.dtype) if weighted else None,
            reduction=reduction,
        )

    check(loss, [torch.randn(5, 7) * 3, torch.randn(5, 7)], device)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_nll_loss_of_images_takes_a_row_of_weights(device, reduction):
    x, target = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    for weight in (torch.rand(1, 5), torch.rand(5, 1), torch.rand(10)[::2]):
        expected = F.nll_loss(x, target, weight, reduction=reduction)
        result = F.nll_loss(
            x.to(device), target.to(device), weight.to(device), reduction=reduction
        )
        torch.testing.assert_close(result.cpu(), expected)


def test_binary_cross_entropy_is_laid_out_as_its_input(device):
    x, target = torch.rand(5, 7), torch.rand(7, 5).t()
    for input, other in [(x, target), (target, x)]:
        leaf = input.to(device).requires_grad_()
        loss = F.binary_cross_entropy(leaf, other.to(device), reduction="none")
        (grad,) = torch.autograd.grad(loss.sum(), leaf)
        assert loss.stride() == grad.stride() == input.stride()


@pytest.mark.parametrize("size", [1, 17, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_binary_cross_entropy_of_no_probabilities(device, dtype, size):
    allowed = torch.linspace(0, 1, size, dtype=dtype)
    for value in (-0.5, 1.5, math.nan):
        refused = allowed.clone()
        refused[size // 2] = value
        for pair in [(refused, allowed), (allowed, refused)]:
            with pytest.raises(RuntimeError) as expected:
                F.binary_cross_entropy(*pair)
            with pytest.raises(RuntimeError) as raised:
                F.binary_cross_entropy(*(x.to(device) for x in pair)).item()
            assert str(raised.value) == str(expected.value)
    F.binary_cross_entropy(allowed.to(device), allowed.to(device)).item()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss]
)
def test_elementwise_losses_warn_of_nothing(device, loss, reduction):
    x, y = torch.randn(4, 5, device=device), torch.randn(4, 5, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = loss(x, y, reduction=reduction)
    expected = loss(x.cpu(), y.cpu(), reduction=reduction)
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss_of_images_takes_weights_of_any_shape(device, reduction):
    weight = torch.tensor([[1.0, 2], [3, 4]]).t()
    x, target = torch.randn(2, 4, 3, 3), torch.randint(4, (2, 3, 3))
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    arguments = (x, target, weight, number, -100)
    expected = torch.ops.aten.nll_loss2d_forward(*arguments)
    there = [a.to(device) if torch.is_tensor(a) else a for a in arguments]
    found = torch.ops.aten.nll_loss2d_forward(*there)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


@pytest.mark.slow
def test_nll_loss_of_more_samples_than_int32_holds(device):
    count = 2**31 + 100
    x = torch.tensor([[1.0, 2, 3]], device=device).expand(count, 3)
    target = torch.ones(1, dtype=torch.int64, device=device).expand(count)
    assert torch.nn.functional.nll_loss(x, target).item() == -2
