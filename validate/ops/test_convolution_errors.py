"""Convolutions that raise, in PyTorch's words, and parameters that are far apart."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F


def test_errors_are_torchs(device):
    x = torch.ones(1, 3, 8, 8, device=device)
    weight = torch.ones(4, 3, 3, 3, device=device)
    with pytest.raises(RuntimeError, match=r"expected input.* to have 3 channels"):
        F.conv2d(x[:, :2], weight)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater than actual"):
        F.conv2d(x[:, :, :2], weight)
    with pytest.raises(RuntimeError, match="should be the same"):
        F.conv2d(x.double(), weight)
    with pytest.raises(RuntimeError, match="not implemented for"):
        F.conv2d(x.long(), weight.long())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_sizes_and_dtypes_that_do_not_go(device, dims, transposed):
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    x = torch.ones(1, 4, *(5,) * dims, device=device)
    weight = torch.ones(4, 4, *(3,) * dims, device=device)
    for bias in (torch.ones(4).double(), torch.ones(4).byte()):
        for options in ({}, {} if transposed else {"padding": "same"}):
            with pytest.raises(RuntimeError, match=r"bias type .* should be the same"):
                function(x, weight, bias.to(device), **options)
    with pytest.raises(RuntimeError, match="dilation should be greater than zero"):
        function(x, weight, dilation=0)
    with pytest.raises(RuntimeError, match="kernel size should be greater than zero"):
        function(x, weight[..., :0])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_output_padding_too_large(device, dims):
    function = getattr(F, f"conv_transpose{dims}d")
    tensors = (torch.randn(1, 4, *(5,) * dims), torch.randn(4, 2, *(3,) * dims))
    options = {"padding": 1, "output_padding": (2,) + (0,) * (dims - 1)}
    messages = []
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match="output padding must be smaller") as e:
            function(*(t.to(place) for t in tensors), **options)
        messages.append(str(e.value).splitlines()[0])
    assert messages[0] == messages[1]
    function(*(t.to(device) for t in tensors), **options, stride=3)


def test_transposed_output_too_small(device):
    for size, options in (
        ((2, 2), {"stride": (3, 1), "padding": (1, 2), "output_padding": (1, 0)}),
        ((2,), {"padding": 2}),
    ):
        x, weight = torch.randn(4, 4, *size), torch.randn(4, 1, *(3 for _ in size))
        function = getattr(F, f"conv_transpose{len(size)}d")
        with pytest.raises(RuntimeError, match="Output size is too small"):
            function(x.to(device), weight.to(device), groups=4, **options)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("transposed", [False, True])
def test_parameters_beyond_int32(device, transposed):
    function = F.conv_transpose2d if transposed else F.conv2d
    large = torch.empty(2**31 + 2**20, dtype=torch.float16, device=device)
    x, weight, bias = torch.randn(2, 2, 9, 9), torch.randn(2, 2, 3, 3), torch.randn(2)
    tensors = [x.to(device).half()]
    for param in (weight, bias):
        strides = (2**31 + 64, *param.stride()[1:])
        far = large.as_strided(param.shape, strides, param.dim() * 99)
        tensors.append(far.copy_(param.half()))
    result = function(*tensors)
    expected = function(*(tensor.cpu().double() for tensor in tensors))
    torch.testing.assert_close(result.cpu().double(), expected, rtol=0.01, atol=0.01)
