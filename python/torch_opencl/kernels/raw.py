"""Kernels from OpenCL C."""

from __future__ import annotations

import math
import numbers
import operator
import re
import struct
from collections.abc import Sequence

import torch

from .. import _C
from ..opencl.devices import Device, _device_index, get_device_properties
from . import parameters as p

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
_MOST_WORK_ITEMS = 2**63 - 1
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


def _parameters(arguments: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Kind, type and name of what a caller passes. TENSOR(float, x), which is
    float *x_memory and right behind it ulong x_offset, is one of kind ``tensor``."""
    found: list[tuple[str, str, str]] = []
    for kind, type_name, name in arguments:
        before = found[-1] if found else ("", "", "")
        if (
            before[0] == "buffer"
            and before[2].endswith("_memory")
            and name == f"{before[2].removesuffix('_memory')}_offset"
            and (kind, _plain(type_name)) == ("value", "ulong")
        ):
            found[-1] = ("tensor", *before[1:])
        else:
            found.append((kind, type_name, name))
    return found


def _described(
    parameter: tuple[str, str, str],
) -> tuple[str, str, int, list[torch.dtype]]:
    """What the native launch has to know (cpp/bindings/raw_kernels.cpp)."""
    kind, type_name, _ = parameter
    match = _VECTOR.match(_plain(type_name))
    element = match[1] if match else ""
    letter = {"buffer": "p", "tensor": "t", "local": "l", "value": "v"}[kind]
    width = int(match[2] or 1) if match else 1
    return letter, _FORMATS.get(element, ""), width, list(_ELEMENTS.get(element, ()))


class RawKernel:
    """A kernel written in OpenCL C.

    It is built for a device when it is first called there, once a process.
    ``TENSOR``, ``LOAD`` and the rest of the project's ``types.clh`` may be used
    in the source.

    Args:
        code: the program.
        name: of the kernel in it.
        options: for the compiler, such as ``("-DROWS=4",)``.

    Raises:
        TypeError: ``code`` or ``name`` is no str, or ``options`` no sequence of
            them.
        ValueError: a text has a NUL, or ``name`` is no identifier.

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
        self.name = p.check_identifier(name, "RawKernel: name")
        self.code = p.check_text(code, f"{name}: code")
        if isinstance(options, str):
            raise TypeError(
                f"{name}: options must be a sequence of str, such as ({options!r},)"
            )
        self.options = p.texts(options, f"{name}: options")
        self._kernels: dict[int, _C._RawKernel] = {}
        self._latest: _C._RawKernel | None = None

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
            kernel = _C._raw_kernel(
                device, f"{self.name}.cl", source, self.name, " ".join(self.options)
            )
            kernel.describe(list(map(_described, _parameters(kernel.arguments))))
            self._kernels[device] = kernel
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
                for a vector such as ``float4``. A struct takes ``bytes``, and a
                ``local`` pointer its number of bytes. Parameters made by
                ``TENSOR(type, name)`` take one tensor.

        Raises:
            TypeError: their number, or one's type or dtype, is wrong.
            ValueError: the work-groups are not those of the kernel or device.
            RuntimeError: devices differ, or the kernel does not compile.
        """
        latest = self._latest
        if latest is not None and latest.launch(grid, block, args):
            return
        if not isinstance(args, Sequence) or isinstance(args, str | bytes):
            raise TypeError(
                f"{self.name}: args must be a sequence such as (x, y), not "
                f"{type(args).__name__}"
            )
        device = self._device(args)
        kernel = self._kernel(device)
        sizes = self._sizes(grid, block, device)
        parameters = _parameters(kernel.arguments)
        if len(args) != len(parameters):
            named = ", ".join(f"{type_} {name}" for _, type_, name in parameters)
            raise TypeError(
                f"{self.name}: expected {len(parameters)} arguments ({named}), got "
                f"{len(args)}"
            )
        values = [
            self._value(device, index, value, *parameter)
            for index, (value, parameter) in enumerate(
                zip(args, parameters, strict=True)
            )
        ]
        for index, (kind, _, _) in enumerate(parameters):
            if kind == "tensor":
                values[index] = (values[index],)
        _C._launch_raw(kernel, *sizes, values)
        self._latest = kernel

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
        grid, block = self._numbers("grid", grid), self._numbers("block", block)
        if len(grid) != len(block) or not 1 <= len(grid) <= 3:
            raise ValueError(
                f"{self.name}: grid and block have one to three dimensions, the same "
                f"number, got {grid} and {block}"
            )
        if min(block) < 1 or min(grid) < 0:
            raise ValueError(
                f"{self.name}: grid has no negative and block only positive numbers, "
                f"got {grid} and {block}"
            )
        limit = get_device_properties(device).max_work_group_size
        if math.prod(block) > limit:
            raise ValueError(
                f"{self.name}: block {block} has {math.prod(block)} work-items, "
                f"opencl:{device} takes up to {limit}"
            )
        rest = [1] * (3 - len(grid))
        total = [groups * items for groups, items in zip(grid, block, strict=True)]
        if math.prod(total) > _MOST_WORK_ITEMS:
            raise ValueError(
                f"{self.name}: grid {grid} of block {block} has more than "
                f"{_MOST_WORK_ITEMS} work-items"
            )
        return total + rest, [*block, *rest]

    def _numbers(self, what: str, values) -> tuple[int, ...]:
        try:
            return tuple(map(operator.index, values))
        except TypeError as error:
            raise TypeError(
                f"{self.name}: {what} must be a sequence of integers, got "
                f"{values!r}: {error}"
            ) from None

    def _value(
        self, device: int, index: int, value, kind: str, type_name: str, name: str
    ):
        place = f"{self.name}: argument {index} ('{type_name} {name}')"
        plain = _plain(type_name)
        if kind in ("buffer", "tensor"):
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{place} must be a tensor, not {type(value).__name__}")
            p.check_strided(place, value)
            if value.is_neg() or value.is_conj():
                raise TypeError(
                    f"{place} got a lazily negated or conjugated view: pass "
                    ".resolve_neg().resolve_conj()"
                )
            match = _VECTOR.match(plain)
            dtypes = _ELEMENTS.get(match[1], ()) if match else ()
            if dtypes and value.dtype not in dtypes:
                raise TypeError(f"{place} got a tensor of dtype {value.dtype}")
            return value
        if kind == "local":
            if not isinstance(value, int) or value <= 0:
                raise TypeError(f"{place} must be a number of bytes of local memory")
            limit = get_device_properties(device).local_memory
            if value > limit:
                raise ValueError(
                    f"{place} got {value} bytes, work-groups of opencl:{device} have "
                    f"{limit}"
                )
            return value
        if isinstance(value, bytes):
            if not value:
                raise TypeError(f"{place} got no bytes")
            return value
        if isinstance(value, torch.Tensor):
            raise TypeError(f"{place} is a value: pass a number, not a tensor")
        match = _VECTOR.match(plain)
        if match is None or match[1] not in _FORMATS:
            raise TypeError(f"{place} must be given as bytes")
        width = int(match[2] or 1)
        try:
            items = [value] if isinstance(value, numbers.Number) else list(value)
        except TypeError:
            raise TypeError(
                f"{place} must be a number, not {type(value).__name__}"
            ) from None
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
        except (struct.error, OverflowError, TypeError, ValueError) as error:
            raise TypeError(f"{place} got {value!r}: {error}") from None
