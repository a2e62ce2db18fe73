"""``torch.backends.opencl``: how ops choose among their algorithms.

    torch.backends.opencl.benchmark = True  # measure, then take the fastest
    with torch.backends.opencl.flags(solver="im2col"):
        ...

Choices are kept in the directory of compiled programs, a file each, so that a
later process has them without measuring. ``python -m torch_opencl.tune`` makes
them for a whole network.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from . import _C


class _Backend(types.ModuleType):
    def is_available(self) -> bool:
        """True where there is an OpenCL device."""
        return torch.opencl.is_available()

    @property
    def benchmark(self) -> bool:
        """Whether convolutions and matrix products measure their solvers.

        The first call with new sizes runs every algorithm that supports them,
        several times, and waits for the device; that and all later calls take
        the fastest. False, the default, takes the one expected to be fastest.
        """
        return _C._solver_settings()[0]

    @benchmark.setter
    def benchmark(self, value: bool) -> None:
        _C._set_solver_settings(bool(value), self.solver)

    @property
    def solver(self) -> str:
        """Name of the algorithm to take wherever it is supported; empty: none.

        To find out what an algorithm does to results or speed: "winograd",
        "im2col", "conv1x1", "implicit", "depthwise", "rotated_filter" of convolutions,
        "tall_skinny", "packed", "tiles", "strided" of matrix products. On GPUs
        "tile_128x64" chooses a size of the tiles of both, "tile_128x64_4" also for
        as many parts of the depth, and "units_sm_80_tile_64x64" for an emulation of
        that GPU's matrix units (gfx11, gfx12, sm_80, intel_8, intel_16).
        """
        return _C._solver_settings()[1]

    @solver.setter
    def solver(self, name: str) -> None:
        _C._set_solver_settings(self.benchmark, name)

    def choices(self) -> list[dict]:
        """What this process measured or found on disk so far.

        Returns:
            A dict a problem: ``device`` (index), ``problem``, ``fastest``, and
            ``seconds`` by solver, empty where the choice was on disk.
        """
        return _C._solver_measurements()

    @contextmanager
    def flags(
        self, benchmark: bool | None = None, solver: str | None = None
    ) -> Iterator[None]:
        """Sets what is given for the duration of a block."""
        before = _C._solver_settings()
        wanted = zip((benchmark, solver), before, strict=True)
        _C._set_solver_settings(*(old if new is None else new for new, old in wanted))
        try:
            yield
        finally:
            _C._set_solver_settings(*before)


def install() -> None:
    """Makes this ``torch.backends.opencl``."""
    backend = _Backend("torch.backends.opencl", __doc__)
    sys.modules[backend.__name__] = backend
    torch.backends.opencl = backend
