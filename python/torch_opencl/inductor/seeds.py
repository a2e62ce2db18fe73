"""Seeds of a compiled graph's random numbers. A replayed graph reads them from tensors
that are filled before each replay."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch

_LIMITS = torch.iinfo(torch.int64)
_thread = threading.local()  # `draw` where seeds are noted or taken


def draw(out: torch.Tensor) -> None:
    """Fills ``out`` (int64) from the default generator of its device."""
    torch.ops.aten.randint.low_out(_LIMITS.min, _LIMITS.max, out.shape, out=out)


def draw_seeds(*_range: object, out: torch.Tensor) -> None:
    """What a compiled graph calls, with the arguments of ``aten.randint.low_out``."""
    getattr(_thread, "draw", draw)(out)


@contextlib.contextmanager
def noted() -> Iterator[list[torch.Tensor]]:
    """Yields a list of tensors, each as large as one that was filled meanwhile."""
    sources = []

    def draw_and_note(out: torch.Tensor) -> None:
        sources.append(torch.empty_like(out))
        draw(out)

    with _drawn_by(draw_and_note):
        yield sources


def taken(sources: list[torch.Tensor]) -> contextlib.AbstractContextManager[None]:
    """Meanwhile seeds are copies of ``sources``, in turn."""
    following = iter(sources)
    return _drawn_by(lambda out: out.copy_(next(following)))


@contextlib.contextmanager
def _drawn_by(function: Callable[[torch.Tensor], object]) -> Iterator[None]:
    _thread.draw = function
    try:
        yield
    finally:
        del _thread.draw
