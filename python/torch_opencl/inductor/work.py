"""How the elements of a kernel are divided among work-groups."""

from __future__ import annotations

import dataclasses

GROUP = 128
"""Work-items of a work-group on devices of class gpu."""
_LEAST_ELEMENTS = 4096
_LONG_RUN = 16384


@dataclasses.dataclass(frozen=True)
class Form:
    """One of the forms in which the text of a kernel can be written.

    Attributes:
        lanes: the axis along which vectors lie: ``x`` is the innermost that is
            kept, ``r`` the one that is reduced; none of scalars.
        is_gpu: a work-item takes an element, or a row that is reduced.
        by_group: of class gpu, a work-group takes the row instead.
    """

    lanes: str = ""
    is_gpu: bool = False
    by_group: bool = False


def split_work(rows: int, length: int, weight: int, units: int) -> tuple[int, int, int]:
    """Divides ``rows`` runs of ``length`` elements on a device of class cpu.

    Args:
        rows: number of runs.
        length: elements of a run, which lie behind each other.
        weight: what an element takes, counted in elements of plain ops; 0 of an
            empty reduction.
        units: compute units of the device.

    Returns:
        Elements of a piece of a run, pieces of a work-item, and work-items.
    """
    groups = max(16, 8 * units)
    weight = max(weight, 1)
    piece = length
    if length * weight > _LONG_RUN:
        wanted = max(_LEAST_ELEMENTS // weight, -(-rows * length // groups), 16)
        piece = min(length, -(-wanted // 16) * 16)
    piece = max(piece, 1)
    pieces = rows * -(-length // piece)
    chunk = max(-(-_LEAST_ELEMENTS // (piece * weight)), -(-pieces // groups), 1)
    return piece, chunk, -(-pieces // chunk)
