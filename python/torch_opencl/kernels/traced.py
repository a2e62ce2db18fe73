"""ElementwiseKernel inside functions that torch.compile traces: ops of the graph that
carry the kernel's texts, so that a graph can be kept for other processes."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides

_LIBRARY = torch.library.Library("torch_opencl", "FRAGMENT")
_LIBRARY.define(
    "elementwise_kernel(str[] texts, Tensor[] tensors, int[] places, Scalar[] numbers)"
    " -> Tensor[]"
)
_LIBRARY.define(
    "elementwise_kernel_(str[] texts, Tensor(a!)[] outputs, Tensor[] tensors,"
    " int[] places, Scalar[] numbers) -> ()"
)


def call(kernel, args: tuple) -> Tensor | tuple[Tensor, ...]:
    """What ``kernel(*args)`` is in a graph."""
    count = len(kernel.inputs)
    inputs, outputs = args[:count], list(args[count:])
    tensors = [each for each in inputs if isinstance(each, Tensor)]
    numbers = [each for each in inputs if not isinstance(each, Tensor)]
    places = [i for i, each in enumerate(inputs) if not isinstance(each, Tensor)]
    ops = torch.ops.torch_opencl
    if outputs:
        ops.elementwise_kernel_(kernel._texts, outputs, tensors, places, numbers)
    else:
        outputs = ops.elementwise_kernel(kernel._texts, tensors, places, numbers)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


@functools.lru_cache
def _kernel(texts: tuple[str, ...]):
    from .elementwise import ElementwiseKernel

    return ElementwiseKernel(*texts)


def _inputs(tensors, places, numbers) -> list:
    inputs = list(tensors)
    for place, number in zip(places, numbers, strict=True):
        inputs.insert(place, number)
    return inputs


def _new(texts, tensors, places, numbers) -> list[Tensor]:
    results = _kernel(tuple(texts))(*_inputs(tensors, places, numbers))
    return list(results) if isinstance(results, tuple) else [results]


def _into(texts, outputs, tensors, places, numbers) -> None:
    _kernel(tuple(texts))(*_inputs(tensors, places, numbers), *outputs)


def _fake(texts, tensors, places, numbers) -> list[Tensor]:
    """The broadcast shape in the layout that a TensorIterator of all inputs chooses."""
    from . import parameters as p

    kernel = _kernel(tuple(texts))
    inputs = _inputs(tensors, places, numbers)
    device = p.device_of(kernel.name, inputs)
    every = (*kernel.inputs, *kernel.outputs)
    placeholders = p.resolve(kernel.name, every, inputs)
    # Numbers on the CPU have no say.
    here = torch.broadcast_tensors(*(each for each in tensors if each.device == device))
    strides = compute_elementwise_output_strides(*here)
    return [
        torch.empty_strided(
            here[0].shape,
            strides,
            dtype=p.dtype_of(kernel.name, each, placeholders),
            device=device,
        )
        for each in kernel.outputs
    ]


_LIBRARY.impl("elementwise_kernel", _new, "PrivateUse1")
_LIBRARY.impl("elementwise_kernel_", _into, "PrivateUse1")
torch.library.register_fake("torch_opencl::elementwise_kernel", _fake, lib=_LIBRARY)
torch.library.register_fake(
    "torch_opencl::elementwise_kernel_", lambda *args: None, lib=_LIBRARY
)
