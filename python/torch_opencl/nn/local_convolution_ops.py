"""What the extension's ``torch_opencl::local_conv2d`` needs besides its kernels:
derivatives, shapes without data, and other devices.

The op is bilinear in input and weight, and so are its two gradients. Each one's
gradients are the other two, so derivatives of any order exist.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch._prims_common import suggest_memory_format
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

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
    out = out if bias is None else out + bias
    return out.contiguous(memory_format=suggest_memory_format(input))


def _input_gradient(gradient, weight, input_size, stride, padding, dilation) -> Tensor:
    columns = torch.einsum("bol,okl->bkl", gradient.flatten(2), _matrices(weight))
    out = torch.nn.functional.fold(
        columns, input_size[2:], weight.shape[2:4], dilation, padding, stride
    )
    return out.contiguous(memory_format=suggest_memory_format(gradient))


def _weight_gradient(gradient, input, weight_size, stride, padding, dilation) -> Tensor:
    columns = _columns(input, weight_size[2:4], stride, padding, dilation)
    out = torch.einsum("bol,bkl->okl", gradient.flatten(2), columns)
    return out.reshape(weight_size).contiguous()


def _fake(like: Tensor, size) -> Tensor:
    """In the memory format of ``like``, as the kernels' results are."""
    return torch.empty(
        size,
        dtype=like.dtype,
        device=like.device,
        memory_format=suggest_memory_format(like),
    )


def _fake_forward(input, weight, bias, stride, padding, dilation) -> Tensor:
    return _fake(input, output_size(input, weight))


def _fake_input_gradient(gradient, weight, size, stride, padding, dilation) -> Tensor:
    return _fake(gradient, size)


def _fake_weight_gradient(gradient, input, size, stride, padding, dilation) -> Tensor:
    return input.new_empty(size)


def _setup(ctx, inputs, output) -> None:
    """``inputs[2]`` is a bias or None, of the two gradients a size."""
    ctx.save_for_backward(*inputs[:2])
    ctx.save_for_forward(*inputs[:2])
    ctx.options = inputs[3:]
    has_bias = isinstance(inputs[2], Tensor)
    ctx.bias_size = inputs[2].shape if has_bias else None
    ctx.rest = (None if has_bias else inputs[2], *ctx.options)
    ctx.output_size = output.shape
    ctx.set_materialize_grads(False)


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


def _autograd(op, backward):
    """What torch.library.register_autograd makes, with forward derivatives. Of a
    single level, since torch.func has unwrapped the others where an op is called."""

    def forward(*inputs):
        # torch.func's outer levels, which come next, have derivatives, too.
        with (
            torch._C._AutoDispatchBelowAutograd(),
            torch.enable_grad(),
            _set_fwd_grad_enabled(True),
        ):
            return op(*inputs)

    def jvp(ctx, first, second, bias, *_):
        """Of an op that is linear in its first two inputs and in a bias."""
        a, b = ctx.saved_tensors
        tangents = []
        if first is not None:
            tangents.append(op(first, b, *ctx.rest))
        if second is not None:
            tangents.append(op(a, second, *ctx.rest))
        if bias is not None:
            tangents.append(bias.expand(ctx.output_size))
        return sum(tangents[1:], tangents[0]) if tangents else None

    members = {
        "forward": forward,
        "setup_context": _setup,
        "backward": backward,
        "jvp": jvp,
    }
    statics = {name: staticmethod(member) for name, member in members.items()}
    function = type(op.overloadpacket.__name__, (_SingleLevelFunction,), statics)

    def apply(*inputs):
        with enable_single_level_autograd_function():
            return function.apply(*inputs)

    return apply


_DEFINITIONS = {
    "local_conv2d": (_forward, _fake_forward, _backward),
    "local_conv2d_input_gradient": (
        _input_gradient,
        _fake_input_gradient,
        _input_gradient_backward,
    ),
    "local_conv2d_weight_gradient": (
        _weight_gradient,
        _fake_weight_gradient,
        _weight_gradient_backward,
    ),
}

# A Library's registrations live as long as it does.
_library = torch.library.Library("torch_opencl", "FRAGMENT")
for _name, (_kernel, _fake_kernel, _gradients) in _DEFINITIONS.items():
    _library.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torch_opencl::{_name}", _fake_kernel, lib=_library)
    _op = getattr(_ops, _name).default
    _library.impl(_name, _autograd(_op, _gradients), "Autograd")
