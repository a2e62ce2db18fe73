"""Kernels from OpenCL C."""

from __future__ import annotations

import math
import numbers
import re
import struct
from collections.abc import Sequence

import torch

from .. import _C
from ..opencl.devices import Device, _device_index, get_device_properties

_FORMATS = {
    "char": "b",
    "uchar": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "half": "e",
    "float": "f",
    "double": "d",
}
_ELEMENTS = {
    "char": (torch.int8,),
    "uchar": (torch.uint8, torch.bool),
    "short": (torch.int16,),
    "ushort": (torch.uint16, torch.float16, torch.bfloat16),
    "int": (torch.int32,),
    "uint": (torch.uint32,),
    "long": (torch.int64,),
    "ulong": (torch.uint64,),
    "half": (torch.float16,),
    "float": (torch.float32,),
    "double": (torch.float64,),
}
_VECTOR = re.compile(r"([a-z]+?)(2|3|4|8|16)?\Z")


def _plain(type_name: str) -> str:
    """``"unsigned int"`` as ``"uint"``, without qualifiers."""
    words = [
        word
        for word in type_name.replace("*", " ").split()
        if word not in ("const", "volatile", "restrict", "struct")
    ]
    if words[:1] == ["unsigned"]:
        return "u" + (words[1] if len(words) > 1 else "int")
    return " ".join(words)


class RawKernel:
    """A kernel written in OpenCL C.

    It is built for a device when it is first called there, once a process.
    ``TENSOR``, ``LOAD`` and the rest of the project's ``types.clh`` may be used
    in the source.

    Args:
        code: the program.
        name: of the kernel in it.
        options: for the compiler, such as ``("-DROWS=4",)``.

    Example::

        add = RawKernel('''
            kernel void add(global const float *x, global const float *y,
                            global float *z, int size) {
              size_t i = get_global_id(0);
              if (i < size) z[i] = x[i] + y[i];
            }''', "add")
        add(grid=(4,), block=(256,), args=(x, y, z, 1000))
    """

    def __init__(self, code: str, name: str, options: Sequence[str] = ()) -> None:
        self.code = code
        self.name = name
        self.options = tuple(options)
        self._kernels: dict[int, _C._RawKernel] = {}

    def __repr__(self) -> str:
        return f"<torch_opencl.RawKernel {self.name!r}>"

    def compile(self, device: Device = None) -> None:
        """Builds the kernel for a device, by default the current one.

        Raises:
            RuntimeError: it does not compile, with the lines and the compiler's
                log, or there is no such kernel in it.
        """
        self._kernel(_device_index(device))

    def _kernel(self, device: int):
        if device not in self._kernels:
            source = f'{_C._types_source()}\n#line 1 "{self.name}.cl"\n{self.code}\n'
            self._kernels[device] = _C._raw_kernel(
                device, f"{self.name}.cl", source, self.name, " ".join(self.options)
            )
        return self._kernels[device]

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence,
    ) -> None:
        """Enqueues the kernel on the current stream of its tensors' device.

        Args:
            grid: numbers of work-groups, in up to three dimensions.
            block: work-items of a work-group in each.
            args: a tensor for a pointer (its first element; strides are the
                kernel's business), a number for a value, a sequence of numbers
                for a vector such as ``float4``, ``bytes`` for a struct, and a
                number of bytes for a ``local`` pointer. Parameters made by
                ``TENSOR(type, name)`` take one tensor.

        Raises:
            TypeError: their number, or one's type or dtype, is wrong.
            ValueError: the work-groups are not those of the kernel or device.
            RuntimeError: devices differ, or the kernel does not compile.
        """
        device = self._device(args)
        kernel = self._kernel(device)
        sizes = self._sizes(grid, block, device)
        names = {name for _, _, name in kernel.arguments}
        # TENSOR(float, x) is float *x_memory and ulong x_offset.
        pairs = {
            name
            for name in names
            if name.endswith("_memory")
            and f"{name.removesuffix('_memory')}_offset" in names
        }
        offsets = {f"{name.removesuffix('_memory')}_offset" for name in pairs}
        parameters = [each for each in kernel.arguments if each[2] not in offsets]
        if len(args) != len(parameters):
            named = ", ".join(f"{type_} {name}" for _, type_, name in parameters)
            raise TypeError(
                f"{self.name}: expected {len(parameters)} arguments ({named}), got "
                f"{len(args)}"
            )
        values = [
            self._value(index, value, *parameter)
            for index, (value, parameter) in enumerate(
                zip(args, parameters, strict=True)
            )
        ]
        for index, (_, _, name) in enumerate(parameters):
            if name in pairs:
                values[index] = (values[index],)
        _C._launch_raw(device, kernel, *sizes, values)

    def _device(self, args: Sequence) -> int:
        devices = {value.device for value in args if isinstance(value, torch.Tensor)}
        if len(devices) > 1:
            first, second = sorted(map(str, devices))[:2]
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least "
                f"two devices, {first} and {second}!"
            )
        for device in devices:
            if device.type != "opencl":
                raise RuntimeError(
                    f"{self.name}: expected tensors on an opencl device, got {device}"
                )
            return device.index
        return _device_index(None)

    def _sizes(self, grid, block, device: int) -> tuple[list[int], list[int]]:
        if len(grid) != len(block) or not 1 <= len(grid) <= 3:
            raise ValueError(
                f"{self.name}: grid and block have one to three dimensions, the same "
                f"number, got {tuple(grid)} and {tuple(block)}"
            )
        if min(block) < 1 or min(grid) < 0:
            raise ValueError(
                f"{self.name}: a grid of {tuple(grid)} and blocks of {tuple(block)}"
            )
        limit = get_device_properties(device).max_work_group_size
        if math.prod(block) > limit:
            raise ValueError(
                f"{self.name}: blocks of {tuple(block)} have {math.prod(block)} "
                f"work-items, opencl:{device} takes up to {limit}"
            )
        rest = [1] * (3 - len(grid))
        total = [groups * items for groups, items in zip(grid, block, strict=True)]
        return total + rest, [*block, *rest]

    def _value(self, index: int, value, kind: str, type_name: str, name: str):
        place = f"{self.name}: argument {index} ('{type_name} {name}')"
        plain = _plain(type_name)
        if kind == "buffer":
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{place} must be a tensor, not {type(value).__name__}")
            match = _VECTOR.match(plain)
            dtypes = _ELEMENTS.get(match[1], ()) if match else ()
            if dtypes and value.dtype not in dtypes:
                raise TypeError(f"{place} got a tensor of dtype {value.dtype}")
            return value
        if kind == "local":
            if not isinstance(value, int) or value <= 0:
                raise TypeError(f"{place} must be a number of bytes of local memory")
            return value
        if isinstance(value, bytes):
            return value
        if isinstance(value, torch.Tensor):
            raise TypeError(f"{place} is a value: pass a number, not a tensor")
        match = _VECTOR.match(plain)
        if match is None or match[1] not in _FORMATS:
            raise TypeError(f"{place} must be given as bytes")
        width = int(match[2] or 1)
        items = [value] if isinstance(value, numbers.Number) else list(value)
        if len(items) != width:
            raise TypeError(f"{place} takes {width} numbers, got {len(items)}")
        # A vector of three has the size of one of four.
        items += [0] * (width == 3)
        code = _FORMATS[match[1]]
        try:
            convert = float if code in "efd" else int
            if convert is int and any(item != int(item) for item in items):
                raise struct.error("not an integer")
            return struct.pack(f"={len(items)}{code}", *map(convert, items))
        except (struct.error, OverflowError) as error:
            raise TypeError(f"{place} got {value!r}: {error}") from None
