"""Counts of what Python redirected, by name, and how names are replaced."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

counts: Counter[str] = Counter()


def counted(name: str, function: Callable) -> Callable:
    """``function``, with its calls counted under ``name``."""

    @functools.wraps(function)
    def redirected(*args, **kwargs):
        counts[name] += 1
        return function(*args, **kwargs)

    return redirected


def unsupported(name: str, why: str) -> Callable[..., NoReturn]:
    """A function in the place of ``name`` that raises NotImplementedError."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} has no counterpart on opencl: {why}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse


def unsupported_class(name: str, why: str) -> type:
    """A class in the place of ``name`` that cannot be instantiated; ``isinstance``
    and annotations work."""
    refuse = unsupported(name, why)
    return type(
        name.rpartition(".")[2],
        (),
        {
            "__new__": lambda cls, *args, **kwargs: refuse(),
            "__doc__": f"Not supported: {why}.",
        },
    )
