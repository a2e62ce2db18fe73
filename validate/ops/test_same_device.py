"""A tensor that was left on the CPU: an error that says so, whichever it is."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

_X = torch.rand(2, 4, 6, 6)
_V = torch.rand(4)
_INDEX = torch.tensor([[0, 1, 0, 2]])
_CALLS = {
    "batch_norm": (F.batch_norm, [_X, _V, _V]),
    "binary_cross_entropy": (F.binary_cross_entropy, [_X, _X]),
    "bmm": (torch.bmm, [_X[0], _X[1]]),
    "cat": (lambda *tensors: torch.cat(tensors), [_X, _X]),
    "conv1d": (F.conv1d, [_X[0], torch.rand(3, 6, 2)]),
    "conv2d": (F.conv2d, [_X, torch.rand(3, 4, 2, 2), torch.rand(3)]),
    "conv3d": (F.conv3d, [_X, torch.rand(3, 2, 1, 2, 2)]),
    "conv_transpose2d": (F.conv_transpose2d, [_X, torch.rand(4, 3, 2, 2)]),
    "cross_entropy": (F.cross_entropy, [_V[None], _V.softmax(0)[None]]),
    "gather": (lambda x, i: x.gather(1, i), [_V[None], _INDEX]),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        [_X, torch.rand(2, 3, 3, 2)],
    ),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [_X, _V, _V]),
    "histogram": (lambda x, bins: torch.histogram(x, bins), [_V, torch.arange(4.0)]),
    "histogram of weights": (lambda x, w: torch.histogram(x, 3, weight=w), [_V, _V]),
    "index_add": (lambda x, s: x.index_add(0, torch.zeros(1).long(), s), [_V, _V[:1]]),
    "layer_norm": (lambda x, w: F.layer_norm(x, (4,), w), [_X[..., :4], _V]),
    "linear": (F.linear, [_X, torch.rand(3, 6), torch.rand(3)]),
    "mse_loss": (F.mse_loss, [_X, _X]),
    "prelu": (F.prelu, [_X, _V]),
    "scaled_dot_product_attention": (F.scaled_dot_product_attention, [_X, _X, _X]),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), [_V[None], _INDEX, _V[None]]),
    "where": (lambda x, y: torch.where(x > y.mean(), x, y), [_X, _X]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", _CALLS)
def test_a_tensor_left_on_the_cpu(device, name):
    call, tensors = _CALLS[name]
    for left in range(len(tensors)):
        places = ["cpu" if i == left else device for i in range(len(tensors))]
        with pytest.raises(RuntimeError, match=r"device|should be the same") as raised:
            call(*(x.to(place) for x, place in zip(tensors, places, strict=True)))
        assert "INTERNAL ASSERT" not in str(raised.value)
        assert "ordinal" not in str(raised.value)
