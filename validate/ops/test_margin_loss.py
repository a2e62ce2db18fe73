"""Margin losses of one label and of several, and their gradients."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, PLAIN_LAYOUTS, check, check_error, strided

REDUCTIONS = ["none", "mean", "sum"]
# labels up to the first negative number, one of them twice
LISTS = torch.tensor(
    [[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0], [2, 2, -1, 4, 4]]
)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin(device, p, weighted, reduction):
    for samples, classes in ((1, 1), (5, 1), (13, 7), (3, 67)):
        weight = torch.rand(classes)

        def loss(x, t, p=p, weight=weight):
            return F.multi_margin_loss(
                x,
                t,
                p=p,
                margin=0.7,
                weight=weight.to(x.device, x.dtype) if weighted else None,
                reduction=reduction,
            )

        target = torch.randint(0, classes, (samples,))
        check(loss, [torch.randn(samples, classes), target], device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", PLAIN_LAYOUTS)
def test_multi_margin_layouts(device, layout, dtype):
    if dtype in (torch.float16, torch.bfloat16):
        _against_float(device, dtype, layout, F.multi_margin_loss, _labels())
        return
    check(
        F.multi_margin_loss,
        [layout(torch.randn(4, 5)), strided(_labels())],
        device,
        dtype,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(device, reduction):
    for samples, classes in ((1, 1), (5, 1), (13, 7), (3, 67)):
        target = torch.randint(-1, classes, (samples, classes))
        check(
            lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction),
            [torch.randn(samples, classes), target],
            device,
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", PLAIN_LAYOUTS)
def test_multilabel_margin_layouts(device, layout, dtype):
    if dtype in (torch.float16, torch.bfloat16):
        _against_float(device, dtype, layout, F.multilabel_margin_loss, LISTS)
        return
    check(
        F.multilabel_margin_loss,
        [layout(torch.randn(4, 5)), layout(LISTS)],
        device,
        dtype,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_one_sample(device, reduction):
    x = torch.randn(5)
    check(
        lambda x, t: F.multi_margin_loss(x, t, reduction=reduction),
        [x, torch.tensor(3)],
        device,
    )
    check(
        lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction),
        [x, LISTS[0]],
        device,
    )


def test_nothing(device):
    x = torch.randn(0, 5)
    # The CPU leaves the mean and the sum as they were in memory.
    for loss, target in (
        (F.multi_margin_loss, LISTS[:0, 0]),
        (F.multilabel_margin_loss, LISTS[:0]),
    ):
        check(partial(loss, reduction="none"), [x, target], device)


def test_label_out_of_range_is_nan(device):
    # It raises at the next wait (test_index_errors.py); nothing out of bounds is read.
    lists = LISTS.clone()
    lists[1:3, 0] = 5
    for loss, target in (
        (F.multi_margin_loss, torch.tensor([0, 5, -3, 1])),
        (F.multilabel_margin_loss, lists),
    ):
        x = torch.randn(4, 5).to(device).requires_grad_()
        losses = loss(x, target.to(device), reduction="none")
        losses.sum().backward()
        with pytest.raises(IndexError, match=r"Target (5|-3) is out of bounds"):
            torch.opencl.synchronize(device)
        wrong = torch.tensor([False, True, True, False])
        assert torch.equal(losses.isnan().cpu(), wrong)
        assert torch.equal(x.grad.isnan().all(1).cpu(), wrong)
        assert torch.equal(x.grad.isnan().any(1).cpu(), wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: F.multi_margin_loss(x, t[:, 0], p=3),
        lambda x, t: F.multi_margin_loss(x, t),
        lambda x, t: F.multi_margin_loss(x, t[:3, 0]),
        lambda x, t: F.multi_margin_loss(x, t[:, 0].int()),
        lambda x, t: F.multi_margin_loss(x, t[:, 0], weight=x[0, :3]),
        lambda x, t: F.multi_margin_loss(x, t[:, 0], weight=x[0].double()),
        lambda x, t: F.multi_margin_loss(x.long(), t[:, 0]),
        lambda x, t: F.multilabel_margin_loss(x, t[:3]),
        lambda x, t: F.multilabel_margin_loss(x[0], t),
        lambda x, t: F.multilabel_margin_loss(x, t.int()),
        lambda x, t: F.multilabel_margin_loss(x.long(), t),
    ],
)
def test_errors_are_the_cpus(device, call):
    x = torch.randn(4, 5)
    target = LISTS.clamp(min=0)
    check_error(call, device, x, target)


def _labels():
    return torch.tensor([3, 0, 4, 3])


def _against_float(device, dtype, layout, loss, target):
    # The CPU has no kernels of half types.
    results = []
    x = layout(torch.randn(4, 5)).to(dtype)
    for value in (x.to(device), x.float()):
        leaf = value.detach().requires_grad_()
        output = loss(leaf, target.to(leaf.device))
        (gradient,) = torch.autograd.grad(output, leaf)
        results += [output.cpu().to(dtype), gradient.cpu().to(dtype)]
    torch.testing.assert_close(results[:2], results[2:])
