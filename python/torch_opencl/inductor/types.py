"""Types of OpenCL C for torch's dtypes, and pieces of text that know theirs."""

from __future__ import annotations

import math

import torch

LANES = 16
HALVES = (torch.float16, torch.bfloat16)


class NotGenerated(NotImplementedError):
    """The kernel at hand has no text in the form that is being tried."""


class _OfDtypes(dict):
    def __missing__(self, dtype: torch.dtype):
        raise NotGenerated(f"{dtype}")


# What values of a dtype are computed in; half types are storage only.
SCALAR = _OfDtypes(
    {
        torch.bool: "bool",
        torch.uint8: "uchar",
        torch.int8: "char",
        torch.uint16: "ushort",
        torch.int16: "short",
        torch.uint32: "uint",
        torch.int32: "int",
        torch.uint64: "ulong",
        torch.int64: "long",
        torch.float16: "float",
        torch.bfloat16: "float",
        torch.float32: "float",
        torch.float64: "double",
    }
)
# Vectors of 16 of them. True is -1 in each lane.
VECTOR = {
    dtype: "int16" if dtype == torch.bool else f"{name}16"
    for dtype, name in SCALAR.items()
    if dtype != torch.float64
}


def name_of(dtype: torch.dtype) -> str:
    """``"float32"``, as the kernel library calls it."""
    return str(dtype).removeprefix("torch.")


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of ``dtype`` are held."""
    return torch.float32 if dtype in HALVES else dtype


class Text(str):
    """An expression.

    Attributes:
        dtype: of its value.
        lanes: whether it is a vector of lanes.
        outer: whether it is the same in all iterations of a reduction's loop.
    """

    __slots__ = ("dtype", "lanes", "outer")

    def __new__(
        cls, text: str, dtype: torch.dtype, lanes: bool = False, outer: bool = False
    ) -> Text:
        made = super().__new__(cls, text)
        made.dtype, made.lanes, made.outer = dtype, lanes, outer
        return made


def type_of(dtype: torch.dtype, lanes: bool) -> str:
    if not lanes:
        return SCALAR[dtype]
    if dtype not in VECTOR:
        raise NotGenerated(f"vectors of {dtype}")
    return VECTOR[dtype]


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A number as a scalar of the type in which ``dtype`` is computed."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        value = float(value)
        suffix = "" if dtype == torch.float64 else "f"
        if math.isnan(value):
            return "((double)NAN)" if dtype == torch.float64 else "NAN"
        if math.isinf(value):
            text = "((double)INFINITY)" if dtype == torch.float64 else "INFINITY"
            return text if value > 0 else f"(-{text})"
        # A constant that is no float32 is rounded once, by Python.
        if dtype != torch.float64:
            if abs(value) > torch.finfo(torch.float32).max:
                return literal(math.copysign(math.inf, value), dtype)
            value = torch.tensor(value, dtype=torch.float32).item()
        text = value.hex()
        return f"({text}{suffix})"
    value = int(value)
    if dtype == torch.uint64:
        return f"((ulong){value % 2**64}ul)"
    if dtype == torch.int64:
        return "LONG_MIN" if value == -(2**63) else f"({value}l)"
    return f"(({SCALAR[dtype]}){value}l)"


def converted(text: str, source: torch.dtype, target: torch.dtype, lanes: bool) -> str:
    """``text`` as a value of ``target``, by the conversions of c10."""
    source, target = compute_dtype(source), compute_dtype(target)
    if source == target:
        return text
    if not lanes:
        if target == torch.bool:
            return f"(({text}) != 0)"
        if source.is_floating_point and target == torch.uint64:
            return f"uint64_of_{name_of(source)}({text})"
        if source.is_floating_point and not target.is_floating_point:
            return f"(({SCALAR[target]})(long)({text}))"
        return f"(({SCALAR[target]})({text}))"
    wide = type_of(target, True)
    type_of(source, True)
    if target == torch.bool:
        return mask(f"({text}) != {literal(0, source)}", source)
    if source == torch.bool:
        return f"convert_{wide}(({text}) & 1)"
    if source.is_floating_point and target == torch.uint64:
        raise NotGenerated(f"vectors of {target} from {source}")
    if source.is_floating_point and not target.is_floating_point:
        if target == torch.int64:
            return f"convert_long16({text})"
        return f"convert_{wide}(convert_long16({text}))"
    return f"convert_{wide}({text})"


def mask(comparison: str, dtype: torch.dtype) -> str:
    """A comparison of vectors of ``dtype`` as a vector of bool."""
    if compute_dtype(dtype) in (torch.float32, torch.int32, torch.uint32, torch.bool):
        return f"({comparison})"
    return f"convert_int16({comparison})"


def spread(text: str, dtype: torch.dtype) -> str:
    """A scalar in all lanes."""
    if dtype == torch.bool:
        return f"((int16)(({text}) ? -1 : 0))"
    return f"(({type_of(dtype, True)})({text}))"
