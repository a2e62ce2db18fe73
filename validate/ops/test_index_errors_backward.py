"""Bad indices and targets of gradients that are called by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

A = torch.ops.aten
SUM, MEAN = 2, 1
FORMATS = {"contiguous": torch.contiguous_format, "last": torch.channels_last}
FLOATS = [torch.float32, torch.float64, torch.float16]


def _nll(op: Callable, shape: tuple[int, ...]) -> tuple[Callable, torch.Tensor]:
    x = torch.randn(5, 4, *shape)

    def call(targets: torch.Tensor) -> torch.Tensor:
        like = x.to(targets.device)
        return op(like.sum(), like, targets, None, SUM, -100, like.new_ones(()))

    return call, torch.randint(4, (5, *shape))


def _multi_margin() -> tuple[Callable, torch.Tensor]:
    x = torch.randn(5, 4)

    def call(targets: torch.Tensor) -> torch.Tensor:
        like = x.to(targets.device)
        return A.multi_margin_loss_backward(like.sum(), like, targets, 1, 1.0)

    return call, torch.randint(4, (5,))


def _multilabel_margin() -> tuple[Callable, torch.Tensor]:
    x = torch.randn(3, 4)
    good = torch.tensor([[2, 1, -1, 0], [3, 0, 1, 2], [1, 2, 3, -1]])
    _, is_target = A.multilabel_margin_loss_forward(x, good, MEAN)

    def call(targets: torch.Tensor) -> torch.Tensor:
        like, mask = x.to(targets.device), is_target.to(targets.device)
        return A.multilabel_margin_loss_backward(like.sum(), like, targets, MEAN, mask)

    return call, good


def _ctc() -> tuple[Callable, torch.Tensor]:
    probabilities = torch.randn(7, 2, 4).log_softmax(2)
    good = torch.randint(1, 4, (2, 3))
    lengths = [7, 7], [3, 3]
    results = A._ctc_loss(probabilities, good, *lengths)

    def call(targets: torch.Tensor) -> torch.Tensor:
        like, *saved = (x.to(targets.device) for x in (probabilities, *results))
        return A._ctc_loss_backward(
            torch.ones_like(saved[0]), like, targets, *lengths, *saved, 0
        )

    return call, good


# What makes a call on targets, and targets that are right.
LOSSES: dict[str, Callable[[], tuple[Callable, torch.Tensor]]] = {
    "nll_loss_backward": lambda: _nll(A.nll_loss_backward, ()),
    "nll_loss2d_backward": lambda: _nll(A.nll_loss2d_backward, (3, 2)),
    "multi_margin_loss_backward": _multi_margin,
    "multilabel_margin_loss_backward": _multilabel_margin,
    "ctc_loss_backward": _ctc,
}


def _check(device, call: Callable, good: torch.Tensor, bad: torch.Tensor, text: str):
    call(bad.to(device))
    with pytest.raises(IndexError, match=text):
        torch.opencl.synchronize(device)
    result = call(good.to(device)).cpu()  # raised once
    tolerance = 1e-2 if result.dtype == torch.float16 else 1e-5
    torch.testing.assert_close(result, call(good), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_targets(device, name):
    call, good = LOSSES[name]()
    bad = good.clone()
    bad[-1, ...].view(-1)[0] = 4
    _check(device, call, good, bad, rf"^{name}\(\): Target 4 is out of bounds\.")


def test_targets_that_are_ignored(device):
    x = torch.randn(5, 4, device=device)
    targets = torch.tensor([0, 9, 3, 9, 9], device=device)
    one = torch.ones((), device=device)
    result = A.nll_loss_backward(one, x, targets, None, SUM, 9, one)
    assert result.cpu().nonzero().tolist() == [[0, 0], [2, 3]]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("memory_format", FORMATS)
# Of 64 columns in windows side by side, of many channels, of odd sizes.
@pytest.mark.parametrize("shape", [(1, 3, 8, 64), (2, 32, 9, 11), (2, 3, 7, 9)])
@pytest.mark.parametrize("size, stride, padding", [(2, 2, 0), (3, 2, 1)])
def test_max_pooling(device, dtype, memory_format, shape, size, stride, padding):
    memory_format = FORMATS[memory_format]
    x = torch.randn(shape, dtype=dtype).contiguous(memory_format=memory_format)
    window = [size] * 2, [stride] * 2, [padding] * 2, [1, 1], False
    out, good = A.max_pool2d_with_indices(x, *window)
    grad = torch.randn_like(out)
    pixels = shape[2] * shape[3]

    def call(indices: torch.Tensor) -> torch.Tensor:
        on = indices.device
        return A.max_pool2d_with_indices_backward(
            grad.to(on), x.to(on), *window, indices
        )

    good[-1, -1, -1, -1] = -1  # no pixel
    for index in (pixels, -2, 2**32 + 3):
        bad = good.clone()
        bad[0, -1, 1, 2] = index
        text = rf"^max_pool2d_backward\(\): index {index} is out of bounds for "
        text += rf"dimension 2 with size {pixels}"
        _check(device, call, good, bad, text)


def test_other_pooling(device):
    x, grad = torch.randn(2, 3, 6, 5, 4), torch.randn(2, 3, 3, 2, 2)
    window = [2] * 3, [2] * 3, [0] * 3, [1] * 3, False
    ops = {
        "max_pool3d_backward": (
            A.max_pool3d_with_indices_backward,
            A.max_pool3d_with_indices(x, *window)[1],
            window,
        ),
        "adaptive_max_pool3d_backward": (
            lambda grad, x, indices: A.adaptive_max_pool3d_backward(grad, x, indices),
            A.adaptive_max_pool3d(x, [3, 2, 2])[1],
            (),
        ),
    }
    for name, (op, good, options) in ops.items():
        bad = good.clone()
        bad[1, 1, 1, 1, 1] = 120

        def call(indices, op=op, options=options):
            return op(grad.to(indices.device), x.to(indices.device), *options, indices)

        text = rf"^{name}\(\): index 120 is out of bounds for dimension 2 with size 120"
        _check(device, call, good, bad, text)


def test_fractional_max_pooling(device):
    x, grad = torch.randn(2, 3, 6, 5), torch.randn(2, 3, 3, 2)
    _, good = F.fractional_max_pool2d(x, 2, (3, 2), return_indices=True)
    bad = good.clone()
    bad[1, 1, 1, 1] = 30

    def call(indices: torch.Tensor) -> torch.Tensor:
        on = indices.device
        return A.fractional_max_pool2d_backward(
            grad.to(on), x.to(on), [2, 2], [3, 2], indices
        )

    text = r"^scatter_add\(\): index 30 is out of bounds for dimension 2 with size 30"
    _check(device, call, good, bad, text)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_embedding_bag(device, kind):
    table, grad = torch.randn(4, 3), torch.randn(2, 3)
    offsets, bags, sizes = (
        torch.tensor(n, dtype=kind) for n in ([0, 2], [0, 0, 1], [2, 1])
    )
    good = torch.tensor([3, 0, 3], dtype=kind)

    def dense(indices: torch.Tensor) -> torch.Tensor:
        on = indices.device
        saved = (x.to(on) for x in (bags, sizes, bags[:0]))
        return A._embedding_bag_dense_backward(
            grad.to(on), indices, *saved, 4, False, 0, None, -1
        )

    def weights(indices: torch.Tensor) -> torch.Tensor:
        on = indices.device
        return A._embedding_bag_per_sample_weights_backward(
            grad.to(on), table.to(on), indices, offsets.to(on), bags.to(on), 0, -1
        )

    for name, call in (("dense", dense), ("per_sample_weights", weights)):
        for index in (4, -1):  # a padding index of -1 is none
            bad = torch.tensor([3, 0, index], dtype=kind)
            text = (
                rf"^_embedding_bag_{name}_backward\(\): index {index} is out of bounds "
            )
            text += "for dimension 0 with size 4"
            _check(device, call, good, bad, text)
