"""What ``FakeTensorMode`` has to know of the device: torch.compile and torch.export
run it instead of the kernels, and rely on the strides and devices it says.

torch's own rules do for nearly all ops. Here are those for which torch assumes
something else of a device that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.fx.operator_schemas import normalize_function
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

_FORWARD_CONVOLUTIONS = (
    aten.convolution.default,
    aten._convolution.default,
    aten._convolution.deprecated,
)


def _empty(like: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """On the device meta, which a FakeTensor wraps."""
    return torch.empty(
        like.shape, dtype=like.dtype, device="meta", memory_format=memory_format
    )


def _convolution(func, out, named: dict[str, Any]):
    """The strides that backend/convolution/convolution.cpp gives its results:
    channels_last where the input or the weight is; a weight's gradient as the
    weight. torch takes it that convolution_overrideable returns contiguous tensors.
    """
    source, weight = named["input"], named["weight"]
    # ATen makes such an input contiguous and two-dimensional first.
    is_1d = weight.dim() == 3

    def expand(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.unsqueeze(2) if is_1d else tensor

    def result(like: torch.Tensor | None, memory_format: torch.memory_format):
        if like is None:
            return None
        made = _empty(expand(like), memory_format)
        return made.squeeze(2) if is_1d else made

    weight_format = suggest_memory_format(expand(weight))
    source_format = torch.contiguous_format
    if not is_1d:
        source_format = suggest_memory_format(source)
    if source_format == torch.contiguous_format:
        source_format = weight_format
    if func in _FORWARD_CONVOLUTIONS:
        return result(out, source_format)
    of_input, of_weight, of_bias = out
    return result(of_input, source_format), result(of_weight, weight_format), of_bias


def _as_self(func, out, named: dict[str, Any]):
    """channels_last where ``self`` is, as torch's own kernels have it too; torch says
    contiguous."""
    return _empty(out, suggest_memory_format(named["input"]))


def _contiguous(func, out, named: dict[str, Any]):
    """Where torch expects the order of CUDA's kernel."""
    return _empty(out, torch.contiguous_format)


def _as_said(func, out, named: dict[str, Any]):
    return out


_ATTENTION = aten._scaled_dot_product_fused_attention_overrideable.default
# Each takes the op, what torch's rule for meta tensors returns, and the op's arguments
# by name (``self`` is called ``input``).
_RULES: dict[Any, Callable] = {
    **dict.fromkeys(_FORWARD_CONVOLUTIONS, _convolution),
    aten.convolution_backward.default: _convolution,
    aten.nonzero_static.default: _contiguous,
    aten.pixel_shuffle.default: _as_self,
    aten.reflection_pad2d_backward.default: _as_self,
    aten.replication_pad2d_backward.default: _as_self,
    _ATTENTION: _as_said,
}
# Places of results on the CPU: attention's backward needs the seed and offset of
# dropout on the host.
_ON_CPU = {_ATTENTION: (6, 7)}


def _run(fake_mode: FakeTensorMode, func, *args: Any, **kwargs: Any):
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, FakeTensor)]
    device = tensors[0].fake_device
    if device.type != "opencl":
        return NotImplemented  # torch's rule comes next
    _, named = normalize_function(
        func, args=args, kwargs=kwargs, normalize_to_only_use_kwargs=True
    )
    if func in _FORWARD_CONVOLUTIONS and not fake_mode.allow_non_fake_inputs:
        source, weight = named["input"], named["weight"]
        if source.dtype != weight.dtype:
            raise RuntimeError(
                f"Input type ({source.dtype}) and weight type ({weight.dtype}) should "
                "be the same"
            )

    def wrap(result, device: torch.device):
        if not isinstance(result, torch.Tensor):
            return result
        return FakeTensor(fake_mode, result, device)

    with in_kernel_invocation_manager(fake_mode):
        results = _RULES[func](func, func(*args, **kwargs), named)
        if not isinstance(results, tuple):
            return wrap(results, device)
        on_cpu = _ON_CPU.get(func, ())
        return tuple(
            wrap(result, torch.device("cpu") if place in on_cpu else device)
            for place, result in enumerate(results)
        )


def install() -> None:
    """Puts these rules before torch's, which other devices keep."""
    fake_impls.op_implementations_checks.insert(0, (_RULES.__contains__, _run))
