"""Tensors and pyopencl arrays that share memory, context and queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from . import _C
from .opencl.devices import Device, _device_index

if TYPE_CHECKING:
    import pyopencl
    import pyopencl.array

_DTYPES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.uint16: "uint16",
    torch.int16: "int16",
    torch.uint32: "uint32",
    torch.int32: "int32",
    torch.uint64: "uint64",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}
# pyopencl's queues are compared by identity in places, so one each.
_queues: dict[int, pyopencl.CommandQueue] = {}


def _pyopencl():
    try:
        import pyopencl.array
    except ImportError as error:
        raise ImportError(
            "torch_opencl shares tensors with pyopencl, which is not installed: "
            "pip install pyopencl"
        ) from error
    return pyopencl


def pyopencl_queue(device: Device = None) -> pyopencl.CommandQueue:
    """The current stream of a device, as a queue of pyopencl.

    Its ``context`` is the one that all tensors of the device live in. Commands
    enqueued on it and PyTorch's on this stream run in the order they were made.

    Args:
        device: by default the current one.
    """
    cl = _pyopencl()
    _, handle = _C._queue_handles(_device_index(device))
    if handle not in _queues:
        _queues[handle] = cl.CommandQueue.from_int_ptr(handle)
    return _queues[handle]


def to_pyopencl(tensor: torch.Tensor) -> pyopencl.array.Array:
    """A pyopencl array in the tensor's memory.

    It has the tensor's strides and offset, keeps its memory alive, and its queue
    is the current stream.

    Raises:
        ValueError: the tensor is not on opencl.
        TypeError: it is no dense tensor, or numpy has no such dtype (bfloat16).
        RuntimeError: the tensor requires a gradient, or is lazily conjugated or
            negated.
    """
    cl = _pyopencl()
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor (got {type(tensor).__name__})")
    if tensor.device.type != "opencl":
        raise ValueError(f"Expected an opencl tensor, but got one on {tensor.device}")
    if tensor.requires_grad:
        raise RuntimeError(
            "Can't call to_pyopencl() on Tensor that requires grad. "
            "Use tensor.detach() instead."
        )
    for is_set, bit, resolve in (
        (tensor.is_conj(), "conjugate", "resolve_conj"),
        (tensor.is_neg(), "negative", "resolve_neg"),
    ):
        if is_set:
            raise RuntimeError(
                f"Can't call to_pyopencl() on Tensor that has {bit} bit set. "
                f"Use tensor.{resolve}() instead."
            )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"can't convert {tensor.layout} layout tensor to pyopencl. "
            "Use Tensor.to_dense() first."
        )
    if tensor.dtype not in _DTYPES:
        raise TypeError(f"Got unsupported ScalarType {tensor.dtype}")
    queue = pyopencl_queue(tensor.device)
    item = tensor.element_size()
    data, offset = None, 0
    if tensor.numel() > 0:
        memory, offset = _C._memory_handle(tensor)
        data = cl.Buffer.from_int_ptr(memory)
        # Views of the array share its buffer, so that holds the tensor.
        data.tensor = tensor
    return cl.array.Array(
        queue,
        tuple(tensor.shape),
        _DTYPES[tensor.dtype],
        data=data,
        offset=offset,
        strides=tuple(stride * item for stride in tensor.stride()),
    )


def from_pyopencl(array: pyopencl.array.Array) -> torch.Tensor:
    """A tensor in a pyopencl array's memory.

    The current stream waits on the device for what the array's queue has been
    given so far; nothing else orders the two afterwards, unless they are one,
    see :func:`pyopencl_queue`.

    Raises:
        TypeError: it is no such array, its memory no buffer, or of a dtype that
            torch does not have.
        ValueError: strides are negative or no multiples of the element, elements
            lie outside of the buffer, or it belongs to a context that is not a
            device's of torch.
    """
    cl = _pyopencl()
    if not isinstance(array, cl.array.Array):
        raise TypeError(f"expected a pyopencl.array.Array (got {type(array).__name__})")
    dtype = _BY_NAME.get(array.dtype.name)
    if dtype is None:
        raise TypeError(f"can't convert pyopencl.array.Array of type {array.dtype}.")
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. "
            "Conversion between byte orders is currently not supported."
        )
    item = array.dtype.itemsize
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            "At least one stride in the given array is negative, and tensors with "
            "negative strides are not currently supported."
        )
    if any(stride % item for stride in array.strides) or array.offset % item:
        raise ValueError(
            "given array strides or offset not a multiple of the element byte size. "
            "Copy array to reallocate the memory."
        )
    index = _device_of(array)
    if math.prod(array.shape) == 0:
        return torch.empty(array.shape, dtype=dtype, device=f"opencl:{index}")
    buffer = array.base_data
    if not isinstance(buffer, cl.MemoryObject):
        raise TypeError(f"expected an array in a buffer (got {type(buffer).__name__})")
    last = sum(
        (size - 1) * stride
        for size, stride in zip(array.shape, array.strides, strict=True)
    )
    if array.offset < 0 or array.offset + last + item > buffer.size:
        raise ValueError(
            f"the array of shape {array.shape} and strides {array.strides} at offset "
            f"{array.offset} ends outside of its buffer of {buffer.size} bytes"
        )
    _order(array, index)
    return _C._adopt_memory(
        index,
        buffer.int_ptr,
        buffer.size,
        array.offset,
        list(array.shape),
        [stride // item for stride in array.strides],
        dtype,
        buffer,
    )


def _device_of(array: pyopencl.array.Array) -> int:
    context = array.context.int_ptr
    for index in range(_C._device_count()):
        if _C._has_context(index) and _C._queue_handles(index)[0] == context:
            return index
    raise ValueError(
        "the array belongs to another OpenCL context than torch's devices do: make it "
        "with torch_opencl.pyopencl_queue(device), whose context is torch's"
    )


def _order(array: pyopencl.array.Array, index: int) -> None:
    cl = _pyopencl()
    queue = pyopencl_queue(index)
    events = list(array.events)
    if array.queue is not None and array.queue.int_ptr != queue.int_ptr:
        events.append(cl.enqueue_marker(array.queue))
        array.queue.flush()
    if events:
        cl.enqueue_barrier(queue, wait_for=events)
