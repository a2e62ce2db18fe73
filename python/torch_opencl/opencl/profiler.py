"""Where a device's time goes: by kernel, and by op."""

from __future__ import annotations

import io
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import _C
from ._flops import flops as flops_of
from ._lazy import _lazy_init

# In-place ops that overwrite a tensor without reading it.
_OVERWRITES = {
    "copy_",
    "fill_",
    "zero_",
    "normal_",
    "uniform_",
    "bernoulli_",
    "random_",
}


@dataclass
class Entry:
    """Commands of one kernel, or launched by one op.

    Attributes:
        name: a kernel's file and name, an OpenCL call, or an aten overload.
        launches: commands.
        seconds: of the device.
        calls: how often the op ran; 0 for kernels.
        flops: operations the op's definition takes, where a formula is known.
        moved: bytes an op has to read and write at least, or a copy copies.
    """

    name: str
    launches: int = 0
    seconds: float = 0.0
    calls: int = 0
    flops: float = 0.0
    moved: float = 0.0

    @property
    def gflops(self) -> float | None:
        """GFLOP/s, None where the operations are not known."""
        known = self.flops and self.seconds
        return self.flops / self.seconds / 1e9 if known else None

    @property
    def gigabytes(self) -> float | None:
        """GB/s, None where the bytes are not known."""
        known = self.moved and self.seconds
        return self.moved / self.seconds / 1e9 if known else None


# Heading, value, format; a column is shown where any entry has a value.
_COLUMNS: tuple[tuple[str, Callable[[Entry], float | None], str], ...] = (
    ("calls", lambda entry: entry.calls, "{:d}"),
    ("launches", lambda entry: entry.launches, "{:d}"),
    ("ms", lambda entry: entry.seconds * 1e3, "{:.3f}"),
    (
        "us a launch",
        lambda entry: entry.seconds / max(entry.launches, 1) * 1e6,
        "{:.1f}",
    ),
    ("GFLOP/s", lambda entry: entry.gflops, "{:.1f}"),
    ("GB/s", lambda entry: entry.gigabytes, "{:.1f}"),
)


class profile:
    """Measures the device time of every kernel that is launched in its block.

    Args:
        by_op: also find out which op launched a kernel, and how many operations
            and bytes the op needs. That costs tens of microseconds an op, so
            ``wall`` is no longer that of an unprofiled run. A launch is that of
            the op that asked for it: an op that joins it (an activation after a
            convolution) has none of its own, and is not listed.
        record_shapes: with ``by_op``, keep calls with different shapes apart.

    Attributes:
        kernels: an :class:`Entry` a kernel, the slowest first.
        ops: an :class:`Entry` an op, the slowest first; empty without ``by_op``.
        wall: seconds from the block's start until the devices had finished.
        device_seconds: of all commands together.
        launches: all commands.

    The block ends by waiting for every device. Commands of all devices and
    streams are counted; only one block can be active at a time.

    Example::

        with torch.opencl.profile() as profile:
            loss(model(x), y).backward()
        print(profile.table())
    """

    def __init__(self, by_op: bool = False, record_shapes: bool = False) -> None:
        self.kernels: list[Entry] = []
        self.ops: list[Entry] = []
        self.wall = 0.0
        self._recorder = _OpRecorder(record_shapes) if by_op else None

    def __enter__(self) -> profile:
        _lazy_init()
        _synchronize_all()
        _C._start_profiling()
        if self._recorder is not None:
            self._recorder.__enter__()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error) -> None:
        try:
            if self._recorder is not None:
                self._recorder.__exit__(*error)
            _synchronize_all()
        finally:
            self.wall = time.perf_counter() - self._started
            commands = _C._stop_profiling()
        kernels: dict[str, Entry] = {}
        for name, _, _, _, moved, start, end, _ in commands:
            entry = kernels.setdefault(name, Entry(name))
            entry.launches += 1
            entry.seconds += (end - start) * 1e-9
            entry.moved += moved
        self.kernels = _slowest_first(kernels)
        if self._recorder is not None:
            times = [(op, (end - start) * 1e-9) for *_, start, end, op in commands]
            self.ops = _slowest_first(self._recorder.entries(times))

    @property
    def device_seconds(self) -> float:
        return sum(entry.seconds for entry in self.kernels)

    @property
    def launches(self) -> int:
        return sum(entry.launches for entry in self.kernels)

    def as_dict(self) -> dict[str, object]:
        """Everything as plain values, for JSON."""
        return {
            "wall": self.wall,
            "device_seconds": self.device_seconds,
            "launches": self.launches,
            "kernels": [asdict(entry) for entry in self.kernels],
            "ops": [asdict(entry) for entry in self.ops],
        }

    def table(self, by: str = "kernel", rows: int = 30) -> str:
        """A table as text.

        Args:
            by: "kernel" or "op".
            rows: how many to show; the others become one.
        """
        if by not in ("kernel", "op"):
            raise ValueError(f"profile.table: by has to be kernel or op, not {by!r}")
        from rich.console import Console
        from rich.table import Table

        entries = self.kernels if by == "kernel" else self.ops
        table = Table(
            title=f"{self.launches} launches, {self.device_seconds * 1e3:.2f} ms on the "
            f"device of {self.wall * 1e3:.2f} ms"
        )
        table.add_column(by, overflow="fold")
        table.add_column("share", justify="right")
        columns = [column for column in _COLUMNS if any(map(column[1], entries))]
        for heading, _, _ in columns:
            table.add_column(heading, justify="right")
        for entry in _first(entries, rows):
            share = entry.seconds / max(self.device_seconds, 1e-12)
            cells = [
                "" if (number := value(entry)) is None else pattern.format(number)
                for _, value, pattern in columns
            ]
            table.add_row(entry.name, f"{share:.1%}", *cells)
        console = Console(file=io.StringIO(), width=140)
        console.print(table)
        return console.file.getvalue()

    __str__ = table


class _OpRecorder(TorchDispatchMode):
    """Numbers the calls, by which commands know their op."""

    def __init__(self, record_shapes: bool) -> None:
        super().__init__()
        self._record_shapes = record_shapes
        self._numbers = itertools.count(1)
        # By number: name, operations and bytes.
        self._calls: dict[int, tuple[str, float, float]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        # Without autograd (inference_mode), ops arrive before they are composed
        # of others.
        if torch._C._dispatch_has_kernel_for_dispatch_key(
            function.name(), "CompositeImplicitAutograd"
        ):
            with self:
                result = function.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if function.is_view:
            return function(*args, **kwargs)
        number = next(self._numbers)
        _C._set_profiled_op(number)
        try:
            result = function(*args, **kwargs)
        finally:
            _C._set_profiled_op(0)
        name = function.name()
        if self._record_shapes:
            name = " ".join([name, *_shapes(args)])
        flops = flops_of(function, args, kwargs, result)
        moved = _necessary_bytes(function, args, kwargs, result)
        self._calls[number] = name, flops, moved
        return result

    def entries(self, times: list[tuple[int, float]]) -> dict[str, Entry]:
        """
        Args:
            times: of each command, its op's number and seconds.
        """
        found: dict[str, Entry] = {}
        for number in {number for number, _ in times if number in self._calls}:
            name, flops, moved = self._calls[number]
            entry = found.setdefault(name, Entry(name))
            entry.calls += 1
            entry.flops += flops
            entry.moved += moved
        for number, seconds in times:
            name = self._calls.get(number, ("(outside of ops)",))[0]
            entry = found.setdefault(name, Entry(name))
            entry.launches += 1
            entry.seconds += seconds
        return found


def _shapes(args) -> list[str]:
    shapes = []
    for value in args:
        if isinstance(value, torch.Tensor):
            shapes.append("x".join(map(str, value.shape)) or "scalar")
        elif isinstance(value, (list, tuple)) and len(value) > 0:
            tensors = sum(isinstance(entry, torch.Tensor) for entry in value)
            shapes += [f"({tensors} tensors)"] if tensors else []
    return shapes


def _necessary_bytes(function, args, kwargs, result) -> float:
    """Each operand read once and each result written once, expanded
    dimensions not at all."""
    schema = function._schema
    is_read = function._overloadpacket.__name__ not in _OVERWRITES
    values = {argument.name: kwargs.get(argument.name) for argument in schema.arguments}
    values |= {a.name: value for a, value in zip(schema.arguments, args, strict=False)}
    total = 0.0
    for argument in schema.arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        times = int(is_written) + int(
            not argument.is_out and (is_read or not is_written)
        )
        total += times * _bytes(values[argument.name])
    if all(returned.alias_info is None for returned in schema.returns):
        total += _bytes(result)
    return total


def _bytes(value: object) -> float:
    return float(
        sum(
            tensor.element_size()
            * math.prod(
                size
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
                if stride != 0
            )
            for tensor in tree_leaves(value)
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
        )
    )


def _first(entries: list[Entry], rows: int) -> list[Entry]:
    shown, rest = entries[:rows], entries[rows:]
    if rest:
        other = Entry(f"({len(rest)} others)")
        for entry in rest:
            other.launches += entry.launches
            other.calls += entry.calls
            other.seconds += entry.seconds
        shown = [*shown, other]
    return shown


def _slowest_first(entries: dict[str, Entry]) -> list[Entry]:
    return sorted(entries.values(), key=lambda entry: -entry.seconds)


def _synchronize_all() -> None:
    for index in range(_C._device_count()):
        if _C._has_context(index):
            _C._synchronize(index)
