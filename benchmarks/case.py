"""A benchmark of one op: its inputs on a device, and the work that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    ``flops`` counts a multiplication with an addition as two, ``read`` and
    ``written`` the bytes of every operand once: what the op cannot do without,
    whatever an implementation moves besides. ``uses`` says which networks have the layer,
    and how often. ``eighth`` is the same with an eighth of the data.
    """

    family: str
    name: str
    make: Callable[[str], Run]
    flops: float = 0
    read: float = 0
    written: float = 0
    uses: str = ""
    eighth: Case | None = None

    @property
    def moved(self) -> float:
        return self.read + self.written

    @property
    def is_dense(self) -> bool:
        """Judged by FLOP/s, others by bytes/s."""
        return self.flops > 0


def size_of(*shapes: tuple[int, ...]) -> int:
    """Elements of all the shapes."""
    return sum(torch.Size(shape).numel() for shape in shapes)


def random(
    shape: tuple[int, ...],
    device: str,
    dtype: torch.dtype = torch.float32,
    layout: torch.memory_format = torch.contiguous_format,
) -> torch.Tensor:
    """Normal numbers, made on the CPU because devices draw them differently."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator)
    return values.to(device, dtype).contiguous(memory_format=layout)


def gradients(output: torch.Tensor, inputs: list[torch.Tensor]) -> Run:
    """Computes the gradients of ``inputs`` again and again."""
    incoming = random(tuple(output.shape), str(output.device), output.dtype)
    layout = torch.contiguous_format
    if output.dim() == 4 and output.is_contiguous(memory_format=torch.channels_last):
        layout = torch.channels_last
    incoming = incoming.contiguous(memory_format=layout)
    return lambda: torch.autograd.grad(output, inputs, incoming, retain_graph=True)
