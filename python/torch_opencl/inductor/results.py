"""Tensors in the memory of a graph, which each of its replays writes again."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import _C


class Place(NamedTuple):
    """Of a tensor in :class:`Results`."""

    group: int
    index: int


class Results:
    """What a graph reads its inputs from and writes its results to.

    Results are handed out where they are. Before a replay writes there again,
    :meth:`reclaim` gives what somebody still has memory of its own.
    """

    def __init__(self) -> None:
        self._groups: list[list[torch.Tensor]] = []  # those of one storage together
        # Of groups, by the storage's address; of tensors without memory by id.
        self._numbers: dict[tuple[int, int], int] = {}

    def add(self, tensor: torch.Tensor) -> Place:
        """Keeps the tensor, which nobody else may keep."""
        storage = tensor.untyped_storage().data_ptr()
        key = (storage, 0 if storage else id(tensor))
        number = self._numbers.setdefault(key, len(self._groups))
        if number == len(self._groups):
            self._groups.append([])
        group = self._groups[number]
        for index, own in enumerate(group):
            if own is tensor:
                return Place(number, index)
        group.append(tensor)
        return Place(number, len(group) - 1)

    def __getitem__(self, place: Place) -> torch.Tensor:
        return self._groups[place.group][place.index]

    def addresses(self) -> set[int]:
        """Of the storages."""
        return {group[0].untyped_storage().data_ptr() for group in self._groups} - {0}

    def reclaim(self) -> None:
        """Where a storage is used elsewhere, that gets memory of its own and a copy.
        For others the current stream waits for the streams that were recorded."""
        first = [group[0] for group in self._groups]
        uses = [len(group) for group in self._groups]
        kept = _C._kept_results(first, uses)
        if kept:
            moved = _C._take_memory([self._groups[number] for number in kept])
            for number, group in zip(kept, moved, strict=True):
                self._groups[number] = group
