"""Ops of which one argument is another: an operand of a dtype or shape that the others
have not, a number that may not be allowed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from conformance import opinfo
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_unflatten

_DTYPES = (
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
_OF_COMPILERS = ("BUILD_PROGRAM_FAILURE", "clBuildProgram", "clSetKernelArg")
_SHAPES = {
    "its first part": lambda x: x[:1],
    "its first column": lambda x: x[..., :1],
    "flat": lambda x: x.reshape(-1),
    "without its last part": lambda x: x[:-1],
    "without its last column": lambda x: x[..., :-1],
    "one of its parts": lambda x: x.select(0, 0),
    "twice": lambda x: torch.cat([x, x]),
    "transposed": lambda x: x.transpose(0, -1),
    "empty": lambda x: x[:0],
    "[1, ...]": lambda x: x.unsqueeze(0),
    "[..., 1]": lambda x: x.unsqueeze(-1),
}


def _changes_of_tensor(tensor: torch.Tensor) -> Iterator[tuple[str, Callable]]:
    for dtype in _DTYPES:
        if dtype != tensor.dtype:
            yield str(dtype), lambda x, dtype=dtype: x.to(dtype)
    for name, change in _SHAPES.items():
        if tensor.dim() or name.startswith("["):
            yield name, change


def _numbers_beside(value: bool | int | float) -> set:
    if isinstance(value, bool):
        return {not value}
    if isinstance(value, int):
        return {value - 1, value + 1, -value, 0, -1, 2, 7, -100, 65} - {value}
    return {-value, 0.0, 1.0, -0.5, 2.5} - {value}


def _changes(leaf) -> Iterator[tuple[str, Callable]]:
    """Names of changes, and functions that make them."""
    if torch.is_tensor(leaf) and leaf.layout == torch.strided:
        yield from _changes_of_tensor(leaf)
    elif isinstance(leaf, (bool, int, float)):
        for number in sorted(_numbers_beside(leaf), key=str):
            yield str(number), lambda _, number=number: number


def changed(
    sample: SampleInput, count: int, seed: int
) -> Iterator[tuple[str, SampleInput]]:
    """``count`` samples or fewer of which one argument is another, and what was
    changed."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    changes = [
        (i, name, change)
        for i, leaf in enumerate(leaves)
        for name, change in _changes(leaf)
    ]
    picked = random.Random(seed).sample(changes, min(count, len(changes)))
    for i, name, change in picked:
        try:
            other = change(leaves[i])
        except (IndexError, RuntimeError):  # no element to select, or too large
            continue
        parts = tree_unflatten([*leaves[:i], other, *leaves[i + 1 :]], spec)
        given = SampleInput(
            parts[0],
            args=parts[1],
            kwargs=parts[2],
            output_process_fn_grad=sample.output_process_fn_grad,
        )
        yield f"argument {i}: {name}, {opinfo.describe(given)}", given


def _is_empty(result) -> bool:
    return all(tensor.numel() == 0 for tensor in opinfo.tensors(result))


def _outcome(op: OpInfo, sample: SampleInput, device: torch.device):
    """The result, or the error."""
    given = opinfo.to_device(sample, device)
    try:
        result = opinfo.call(op, given)
    except Exception as error:
        result = error
    try:
        if device.type == "opencl":
            torch.opencl.synchronize(device)
    except Exception as error:  # that a kernel reported
        result = result if isinstance(result, Exception) else error
    return result


def difference(
    op: OpInfo, sample: SampleInput, device: torch.device, values: bool
) -> str:
    """What the device does otherwise than the CPU, or "".

    It may take dtypes that the CPU has no kernel for, and lack a kernel that the CPU
    has. Errors need not be the same, but a compiler's log is none. Of empty tensors the
    CPU's kernels check nothing, or more.
    """
    cpu = torch.device("cpu")
    expected = _outcome(op, sample, cpu)
    found = _outcome(op, sample, device)
    text = str(found) if isinstance(found, Exception) else ""
    if any(word in text for word in _OF_COMPILERS):
        return text[:300]
    if isinstance(expected, Exception):
        lacks_kernel = isinstance(expected, NotImplementedError)
        lacks_kernel |= "INTERNAL ASSERT" in str(expected)
        accepts = not text and not lacks_kernel and not _is_empty(found)
        return f"takes what the CPU refuses: {expected}" if accepts else ""
    if isinstance(found, Exception):
        lacks_kernel = isinstance(found, NotImplementedError)
        if lacks_kernel or _is_empty(expected):
            return ""
        return f"{type(found).__name__}: {text[:300]}"

    def reference():
        return opinfo.call(op, opinfo.to_device(opinfo.to_double(sample), cpu))

    def neighbour():
        return opinfo.call(op, opinfo.to_device(opinfo.perturbed_sample(sample), cpu))

    mine, theirs = opinfo.tensors(found), opinfo.tensors(expected)
    for one, other in zip(mine, theirs, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} {one.shape}, expected {other.dtype} {other.shape}"
    try:
        if values:
            opinfo.assert_result(found, expected, reference, neighbour=neighbour)
    except Exception as error:
        return str(error)[:300]
    return ""
