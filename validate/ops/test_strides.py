"""Strides of convolutions, normalisations of groups and attention, and of their
gradients, are those that FakeTensorMode says in every layout of the inputs:
torch.compile's graphs are written for these."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conformance.layouts import LAYOUTS, fake_kinds, kinds
from conformance.opinfo import to_device
from torch.testing._internal.opinfo.core import SampleInput

_OPS = {
    "conv1d": (F.conv1d, [(2, 4, 9), (6, 4, 3), (6,)], {"padding": 1}),
    "grouped conv1d": (F.conv1d, [(2, 4, 9), (6, 2, 3)], {"groups": 2}),
    "conv2d": (F.conv2d, [(2, 4, 9, 7), (6, 4, 3, 3), (6,)], {"stride": 2}),
    "1x1 conv2d": (F.conv2d, [(3, 5, 6, 7), (8, 5, 1, 1)], {}),
    "depthwise conv2d": (F.conv2d, [(2, 6, 9, 8), (6, 1, 3, 3)], {"groups": 6}),
    "dilated conv2d": (F.conv2d, [(2, 4, 9, 8), (4, 4, 2, 2)], {"dilation": 2}),
    "conv2d without batch": (F.conv2d, [(4, 9, 8), (3, 4, 3, 3), (3,)], {}),
    "conv3d": (F.conv3d, [(2, 3, 4, 5, 6), (4, 3, 2, 3, 3), (4,)], {"padding": 1}),
    "conv_transpose1d": (F.conv_transpose1d, [(2, 4, 9), (4, 3, 3), (3,)], {}),
    "conv_transpose2d": (
        F.conv_transpose2d,
        [(2, 4, 5, 6), (4, 2, 3, 3), (4,)],
        {"stride": 2, "groups": 2, "output_padding": 1},
    ),
    "conv_transpose3d": (
        F.conv_transpose3d,
        [(2, 3, 3, 4, 5), (3, 2, 2, 3, 3), (2,)],
        {"padding": 1},
    ),
    "group_norm": (
        lambda x, weight, bias: F.group_norm(x, 2, weight, bias),
        [(2, 6, 5, 7), (6,), (6,)],
        {},
    ),
    "group_norm of volumes": (
        lambda x, weight, bias: F.group_norm(x, 3, weight, bias),
        [(2, 6, 3, 4, 5), (6,), (6,)],
        {},
    ),
    "group_norm without affine": (lambda x: F.group_norm(x, 2), [(3, 4, 9)], {}),
    "attention": (F.scaled_dot_product_attention, [(2, 3, 9, 8)] * 3, {}),
    "causal attention": (
        F.scaled_dot_product_attention,
        [(2, 3, 9, 8)] * 3,
        {"is_causal": True},
    ),
    "attention of other lengths": (
        F.scaled_dot_product_attention,
        [(2, 3, 7, 16), (2, 3, 11, 16), (2, 3, 11, 16)],
        {},
    ),
    "masked attention": (
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask.detach()),
        [(2, 3, 7, 8), (2, 3, 11, 8), (2, 3, 11, 8), (2, 1, 7, 11)],
        {},
    ),
}


def _heads_last(tensor: torch.Tensor) -> torch.Tensor:
    """As a projection that is split into heads leaves it."""
    if tensor.dim() != 4:
        return tensor
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


_ALL = {**LAYOUTS, "heads last": _heads_last}


def _differences(name: str, device: torch.device, wanted: bool) -> list[str]:
    function, sizes, kwargs = _OPS[name]
    inputs = [torch.randn(size).requires_grad_(wanted) for size in sizes]
    found = []
    for label, layout in _ALL.items():
        # All alike, and then only one that is laid out so.
        for only in (None, *range(len(inputs))):
            given = [
                layout(x) if only in (None, index) else x
                for index, x in enumerate(inputs)
            ]
            sample = SampleInput(given[0], args=tuple(given[1:]), kwargs=kwargs)
            moved = to_device(sample, device)
            mine, said = kinds(function, moved), fake_kinds(function, moved)
            found += [
                f"{label}, {only}: {a}, said {b}"
                for a, b in zip(mine, said, strict=True)
                if a != b
            ]
    return found


@pytest.mark.sampled(9)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", _OPS)
def test_strides(request, device, name, training):
    if "attention" in name:
        request.getfixturevalue("attention_compiles")
    assert not _differences(name, device, training)
