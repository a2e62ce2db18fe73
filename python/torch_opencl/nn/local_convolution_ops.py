"""What the extension's ``torch_opencl::local_conv2d`` needs besides its kernels:
gradients, shapes without data, and other devices.

The op is bilinear in input and weight, and so are its two gradients. Each one's
gradients are the other two, so derivatives of any order exist.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.torch_opencl


def output_size(input: Tensor, weight: Tensor) -> list[int]:
    return [input.shape[0], weight.shape[0], *weight.shape[4:]]


# Other devices go through patches; there, this is the definition.


def _columns(input: Tensor, kernel_size, stride, padding, dilation) -> Tensor:
    return torch.nn.functional.unfold(input, kernel_size, dilation, padding, stride)


def _matrices(weight: Tensor) -> Tensor:
    return weight.flatten(4).flatten(1, 3)


def _forward(input, weight, bias, stride, padding, dilation) -> Tensor:
    columns = _columns(input, weight.shape[2:4], stride, padding, dilation)
    out = torch.einsum("bkl,okl->bol", columns, _matrices(weight))
    out = out.reshape(output_size(input, weight))
    return out if bias is None else out + bias


def _input_gradient(gradient, weight, input_size, stride, padding, dilation) -> Tensor:
    columns = torch.einsum("bol,okl->bkl", gradient.flatten(2), _matrices(weight))
    return torch.nn.functional.fold(
        columns, input_size[2:], weight.shape[2:4], dilation, padding, stride
    )


def _weight_gradient(gradient, input, weight_size, stride, padding, dilation) -> Tensor:
    columns = _columns(input, weight_size[2:4], stride, padding, dilation)
    out = torch.einsum("bol,bkl->okl", gradient.flatten(2), columns)
    return out.reshape(weight_size)


def _fake_forward(input, weight, bias, stride, padding, dilation) -> Tensor:
    return input.new_empty(output_size(input, weight))


def _fake_gradient(gradient, other, size, stride, padding, dilation) -> Tensor:
    return gradient.new_empty(size)


def _save_options(ctx, inputs) -> None:
    ctx.options = inputs[3:]
    ctx.set_materialize_grads(False)


def _setup_forward(ctx, inputs, output) -> None:
    input, weight, bias = inputs[:3]
    ctx.save_for_backward(input, weight)
    ctx.bias_size = None if bias is None else bias.shape
    _save_options(ctx, inputs)


def _backward(ctx, gradient):
    if gradient is None:
        return (None,) * 6
    input, weight = ctx.saved_tensors
    grads = [None] * 6
    if ctx.needs_input_grad[0]:
        grads[0] = _ops.local_conv2d_input_gradient(
            gradient, weight, input.shape, *ctx.options
        )
    if ctx.needs_input_grad[1]:
        grads[1] = _ops.local_conv2d_weight_gradient(
            gradient, input, weight.shape, *ctx.options
        )
    if ctx.needs_input_grad[2]:
        grads[2] = gradient.sum(0).sum_to_size(ctx.bias_size)
    return tuple(grads)


def _setup_gradient(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:2])
    _save_options(ctx, inputs)


def _input_gradient_backward(ctx, gradient):
    """``gradient`` is of the input's size, ``out`` of the output's."""
    grads = [None] * 6
    if gradient is not None:
        out, weight = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            grads[0] = _ops.local_conv2d(gradient, weight, None, *ctx.options)
        if ctx.needs_input_grad[1]:
            grads[1] = _ops.local_conv2d_weight_gradient(
                out, gradient, weight.shape, *ctx.options
            )
    return tuple(grads)


def _weight_gradient_backward(ctx, gradient):
    """``gradient`` is of the weight's size, ``out`` of the output's."""
    grads = [None] * 6
    if gradient is not None:
        out, input = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            grads[0] = _ops.local_conv2d(input, gradient, None, *ctx.options)
        if ctx.needs_input_grad[1]:
            grads[1] = _ops.local_conv2d_input_gradient(
                out, gradient, input.shape, *ctx.options
            )
    return tuple(grads)


_DEFINITIONS = {
    "local_conv2d": (_forward, _fake_forward, _backward, _setup_forward),
    "local_conv2d_input_gradient": (
        _input_gradient,
        _fake_gradient,
        _input_gradient_backward,
        _setup_gradient,
    ),
    "local_conv2d_weight_gradient": (
        _weight_gradient,
        _fake_gradient,
        _weight_gradient_backward,
        _setup_gradient,
    ),
}

# A Library's registrations live as long as it does.
_library = torch.library.Library("torch_opencl", "FRAGMENT")
for _name, (_kernel, _fake, _gradients, _setup) in _DEFINITIONS.items():
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torch_opencl::{_name}", _fake, lib=_library)
    torch.library.register_autograd(
        f"torch_opencl::{_name}", _gradients, setup_context=_setup, lib=_library
    )
