"""Convolutions that raise, in PyTorch's words, parameters that are far apart and
strides that lead past the image."""

from __future__ import annotations

import pytest
import torch
from against_cpu import channels_last, check, contiguous
from torch.nn import functional as F


def _error(function, tensors, place, **options) -> tuple[type, str]:
    """The exception's type, and its text without the lines of C++ frames."""
    with pytest.raises(RuntimeError) as error:
        function(*(tensor.to(place) for tensor in tensors), **options)
    return error.type, str(error.value).splitlines()[0]


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


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_that_do_not_go(device, transposed):
    x, weight = torch.ones(2, 4, 6, 6), torch.ones(4, 4, 3, 3)
    grad = torch.ones(2, 4, *(13 if transposed else 3,) * 2)

    def backward(grad):
        tensors = (tensor.to(device) for tensor in (grad, x, weight))
        options = ([2, 2], [1, 1], [1, 1], transposed, [int(transposed)] * 2, 1)
        return torch.ops.aten.convolution_backward(
            *tensors, [4], *options, [True, True, True]
        )

    grad = grad[..., :-1, :-1] if transposed else grad
    backward(grad)
    for dtype in (torch.float64, torch.float16, torch.int64):
        with pytest.raises(RuntimeError, match=r"grad_output type .* should be"):
            backward(grad.to(dtype))
    for other in (grad[:1], grad[:, :2], grad[..., 1:], grad[..., :0]):
        with pytest.raises(RuntimeError, match="expected grad_output of shape"):
            backward(other)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_without_output_channels(device, dims):
    function = getattr(F, f"conv_transpose{dims}d")
    x = torch.ones(2, 4, *(8,) * dims, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="non-empty weight tensor expected"):
        function(x, torch.ones(4, 0, *(3,) * dims, device=device))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_output_padding_too_large(device, dims):
    function = getattr(F, f"conv_transpose{dims}d")
    tensors = (torch.randn(1, 4, *(5,) * dims), torch.randn(4, 2, *(3,) * dims))
    options = {"padding": 1, "output_padding": (2,) + (0,) * (dims - 1)}
    errors = [_error(function, tensors, p, **options) for p in ("cpu", device)]
    assert "output padding must be smaller" in errors[0][1]
    assert errors[0] == errors[1]
    function(*(t.to(device) for t in tensors), **options, stride=3)


# Sizes of the input and the filter, and results below zero, of zero and of both.
_TOO_SMALL = [
    ((2, 2), 3, {"stride": (3, 1), "padding": (1, 2), "output_padding": (1, 0)}),
    ((3, 3), 1, {"padding": (1, 2)}),
    ((2, 2), 2, {"stride": 2, "padding": (3, 2), "dilation": (1, 2)}),
    ((2,), 3, {"padding": 2}),
    ((1,), 1, {"stride": 3, "padding": 2, "output_padding": 2}),
    ((2, 3, 2), 3, {"padding": (0, 3, 2), "stride": (2, 1, 1)}),
    ((2, 1, 3), 2, {"padding": (1, 2, 0), "output_padding": (0, 0, 1), "dilation": 2}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("groups", [1, 4])
def test_transposed_output_too_small(device, groups, dtype):
    for size, filter_size, options in _TOO_SMALL:
        function = getattr(F, f"conv_transpose{len(size)}d")
        options = {**options, "groups": groups}
        x = torch.randn(2, 4, *size).double()
        weight = torch.randn(4, 1, *(filter_size for _ in size)).double()
        # In float32 oneDNN has another text, and empty results where a size is 0.
        expected = _error(function, (x, weight), "cpu", **options)
        assert "Output size is too small" in expected[1]
        tensors = (x.to(dtype), weight.to(dtype))
        assert _error(function, tensors, device, **options) == expected


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


# Of input and output channels, and groups.
_CHANNELS = [(4, 4, 1), (32, 32, 1), (3, 4, 1), (16, 16, 16), (4, 8, 4), (8, 8, 2)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("channels", _CHANNELS)
@pytest.mark.parametrize("stride", [3000, 2**31 - 1, 2**31, 2**32])
def test_strides_past_the_image(device, stride, channels, layout):
    ins, outs, groups = channels
    options = {"stride": (stride, 3), "padding": 1, "groups": groups}
    weight = torch.randn(outs, ins // groups, 3, 3)
    x = layout(torch.randn(2, ins, 8, 9))
    check(lambda x, weight: F.conv2d(x, weight, **options), [x, weight], device)
    # The CPU has ints here.
    options["stride"] = (min(stride, 2**31 - 1), 3)
    x, weight = layout(torch.randn(2, outs, 1, 4)), torch.randn(weight.shape)
    check(
        lambda x, weight: F.conv_transpose2d(x, weight, **options), [x, weight], device
    )
