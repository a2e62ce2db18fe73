"""Initialisation at the first use, and what was asked for before it."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from .. import _C

_initialized = False
_initialization_lock = threading.Lock()
_initializing = threading.local()
# (what the call overwrites, call, where it was made), in the order of the calls
_queued_calls: list[tuple[str, Callable[[], None], list[str]]] = []


def _is_in_bad_fork() -> bool:
    """True in a child forked from a process that had used a device."""
    return _C._is_in_bad_fork()


def is_available() -> bool:
    """True when there is at least one OpenCL device. Never raises, and creates
    no context."""
    return _C._device_count() > 0


def is_initialized() -> bool:
    """True once a device has been used, or :func:`init` called."""
    return _initialized and not _is_in_bad_fork()


def init() -> None:
    """Initialises the device layer now rather than at the first use.

    Raises:
        RuntimeError: there is no OpenCL device (the text says what to install),
            or this process was forked from one that had used a device.
    """
    _lazy_init()


def _lazy_init() -> None:
    global _initialized
    if is_initialized() or getattr(_initializing, "value", False):
        return
    with _initialization_lock:
        if is_initialized():
            return
        if _is_in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize opencl in forked subprocess. To use opencl "
                "with multiprocessing, you must use the 'spawn' start method"
            )
        _C._init()
        _initializing.value = True
        try:
            for _, call, stack in _queued_calls:
                try:
                    call()
                except Exception as error:
                    raise RuntimeError(
                        f"opencl call failed lazily at initialization with error: "
                        f"{error}\n\nopencl call was originally invoked at:\n\n"
                        + "".join(stack)
                    ) from error
        finally:
            _initializing.value = False
        _queued_calls.clear()
        _initialized = True


def _lazy_call(call: Callable[[], None], **kwargs: bool) -> None:
    """Runs ``call`` now, or at the first use of a device, after what was asked for
    before it. Of calls marked ``seed`` or ``seed_all`` only the latest is kept."""
    with _initialization_lock:
        if not is_initialized():
            kind = next((kind for kind in ("seed_all", "seed") if kwargs.get(kind)), "")
            if kind:
                _queued_calls[:] = [
                    queued for queued in _queued_calls if queued[0] != kind
                ]
            _queued_calls.append((kind, call, traceback.format_stack()))
            return
    call()
