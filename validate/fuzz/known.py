"""Differences from the CPU that are on purpose, each with its reason.

A case that meets one counts as skipped under this reason; it is never left out
before it ran.
"""

from __future__ import annotations

from fuzz.program import Program

# Op (the subject of a case) and why no case is made of it.
EXCLUDED = {
    "jiterator_unary": "writes CUDA kernels",
    "jiterator_binary": "writes CUDA kernels",
    "jiterator_4inputs_with_extra_args": "writes CUDA kernels",
    "jiterator_binary_return_by_ref": "writes CUDA kernels",
    "jiterator_2inputs_2outputs": "writes CUDA kernels",
    "tensor_split": "wants its indices on the CPU",
    "histogramdd": "its out is a list, whatever the database says",
}


def value(program: Program, name: str, reason: str) -> str:
    """Why this difference of a value is accepted; empty where it is not."""
    return ""


def error(program: Program, mine: Exception | None, cpu: Exception | None) -> str:
    """Why this difference of errors is accepted; empty where it is not."""
    if isinstance(cpu, NotImplementedError) and mine is None:
        return "the device takes a dtype that the CPU does not"
    return ""
