"""Streams (in-order queues) and events (markers in them)."""

from __future__ import annotations

import torch

from .. import _C
from ._lazy import _lazy_init, is_initialized
from .devices import Device, _device_index
from .devices import device as _device_context


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "opencl"


class Event(metaclass=_EventType):
    """A marker in a stream: for waiting, for ordering streams and for timing.

    Creates a ``torch.Event`` (which torch does not let anyone subclass): see
    there for ``record``, ``wait``, ``query``, ``synchronize`` and
    ``elapsed_time`` (milliseconds).

    Args:
        enable_timing: whether ``elapsed_time`` may be asked of it.
        blocking: accepted as ``torch.cuda.Event`` does, without effect.
        interprocess: not supported.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> torch.Event:
        if interprocess:
            raise NotImplementedError("opencl events cannot be shared by processes")
        _lazy_init()
        return torch.Event("opencl", enable_timing=enable_timing, blocking=blocking)


class Stream(torch.Stream):
    """An in-order queue of a device. Work of different streams may overlap.

    Streams are handed out in turn from a pool of 32 queues a device, as
    ``torch.cuda`` does. As a context manager it is the current stream.

    Args:
        device: device, index or name; the current device by default.
        priority: accepted as ``torch.cuda.Stream`` does; OpenCL has none.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        _lazy_init()
        index = _device_index(device)
        return super().__new__(cls, torch.device("opencl", index), priority=priority)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records ``event``, or a new one, on this stream and returns it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: torch.Event) -> None:
        """Later work of this stream waits for ``event``; the host does not."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Later work of this stream waits for what ``stream`` holds now."""
        self.wait_event(stream.record_event())

    def __repr__(self) -> str:
        return f"<torch.opencl.Stream device={self.device} stream_id={self.stream_id}>"


def _as_opencl_stream(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


def current_stream(device: Device = None) -> Stream:
    """The calling thread's current stream of a device."""
    _lazy_init()
    return _as_opencl_stream(torch._C._accelerator_getStream(_device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that work goes to unless another one is made current."""
    here = current_stream(device)
    return Stream(
        stream_id=0, device_index=here.device_index, device_type=here.device_type
    )


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` current, and its device with it; None does nothing.
    Prefer ``with stream:``."""
    if stream is not None:
        _lazy_init()
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Context manager that makes a stream, and its device, current; None
    changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self._previous_device = _device_context(self.stream.device)
            self._previous_stream = current_stream(self.stream.device)
            self._previous_device.__enter__()
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exception: object) -> None:
        if self.stream is not None:
            set_stream(self._previous_stream)
            self._previous_device.__exit__(*exception)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Wrapper around :class:`StreamContext`, as in ``torch.cuda``."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Whether a ``torch.accelerator.Graph`` takes down what the current stream does."""
    return is_initialized() and _C._is_current_stream_capturing()
