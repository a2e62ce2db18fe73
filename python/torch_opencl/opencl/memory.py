"""The caching allocator: statistics, limits and the cache. Sizes are in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .. import _C
from ._lazy import _lazy_init, is_initialized
from ._memory_history import (  # noqa: F401  (torch.cuda.memory has them here)
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
)
from .devices import Device, _device_index

_SIZE_ROWS = {
    "allocated_bytes": "Allocated memory",
    "active_bytes": "Active memory",
    "requested_bytes": "Requested memory",
    "reserved_bytes": "Reserved memory",
    "inactive_split_bytes": "Non-releasable memory",
}
_COUNT_ROWS = {
    "allocation": "Allocations",
    "active": "Active allocations",
    "segment": "Reserved segments",
    "inactive_split": "Non-releasable blocks",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_COLUMNS = {
    "current": "Cur Usage",
    "peak": "Peak Usage",
    "allocated": "Tot Alloc",
    "freed": "Tot Freed",
}


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """:func:`memory_stats` as nested dictionaries; empty before the first use
    of a device."""
    if not is_initialized():
        return {}
    return _C._memory_stats(_device_index(device))


def _flatten(nested: dict[str, Any]) -> dict[str, Any]:
    flat: list[tuple[str, int]] = []

    def visit(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                visit(f"{prefix}.{key}" if prefix else key, item)
        else:
            flat.append((prefix, value))

    visit("", nested)
    return OrderedDict(sorted(flat))


def memory_stats(device: Device = None) -> dict[str, Any]:
    """Statistics of a device's allocator under the keys of
    ``torch.cuda.memory_stats``.

    ``{name}.{pool}.{metric}`` where name is ``allocation``, ``segment``,
    ``active``, ``inactive_split`` (counts), or ``allocated_bytes``,
    ``reserved_bytes``, ``active_bytes``, ``inactive_split_bytes``,
    ``requested_bytes``; pool is ``all``, ``small_pool`` (up to 1 MiB) or
    ``large_pool``; metric is ``current``, ``peak``, ``allocated`` or ``freed``
    (totals). Also ``num_alloc_retries`` (flushes of the cache to serve an
    allocation), ``num_ooms``, ``num_device_alloc`` and ``num_device_free``
    (buffers created and released).
    """
    return _flatten(memory_stats_as_nested_dict(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes of the blocks that tensors hold now."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that tensors have held, since the start or the last
    :func:`reset_peak_memory_stats`."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Device = None) -> int:
    """Bytes of the buffers the allocator holds, in use or cached."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes the allocator has held, since the start or the last
    :func:`reset_peak_memory_stats`."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Starts all ``peak`` metrics again at the current values."""
    _lazy_init()
    _C._reset_peak_memory_stats(_device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Starts all totals (``allocated``, ``freed``) and event counts again at
    zero."""
    _lazy_init()
    _C._reset_accumulated_memory_stats(_device_index(device))


def empty_cache() -> None:
    """Gives buffers that no tensor uses back to the drivers of all devices."""
    if is_initialized():
        _C._empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) memory of a device. OpenCL does not tell what other
    processes use: free is what this process may still reserve, and on CPUs no
    more than the host and the process's control group have available."""
    _lazy_init()
    return _C._mem_get_info(_device_index(device))


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limits what this process reserves on a device; beyond it allocations
    raise ``torch.OutOfMemoryError``.

    Args:
        fraction: of the device's total memory, in (0, 1].
        device: device, index or name; the current device by default.

    Raises:
        TypeError: fraction is not a float.
        ValueError: fraction is out of range.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 < fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: (0, 1]")
    _lazy_init()
    _C._set_memory_fraction(fraction, _device_index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The fraction of a device's memory that this process may reserve."""
    _lazy_init()
    index = _device_index(device)
    return _C._memory_limit(index) / _C._device_info(index)["total_memory"]


def device_memory_used(device: Device = None) -> int:
    """Bytes of a device's memory that are not free, by :func:`mem_get_info`."""
    free, total = mem_get_info(device)
    return total - free


def get_allocator_backend() -> str:
    """``native``: the caching allocator of this package, the only one."""
    return "native"


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """:func:`host_memory_stats` as nested dictionaries; empty before the first use
    of a device."""
    return _C._host_memory_stats() if is_initialized() else {}


def host_memory_stats() -> dict[str, Any]:
    """Statistics of the allocator of pinned host memory under the keys of
    ``torch.cuda.host_memory_stats``.

    ``{name}.{metric}`` where name is ``allocations`` or ``allocated_bytes`` (blocks
    in use or cached), ``active_requests`` or ``active_bytes`` (in use); metric is
    ``current``, ``peak``, ``allocated`` or ``freed`` (totals). Sizes are rounded up
    to powers of two. Also ``num_host_alloc`` and ``num_host_free``; times are not
    measured.
    """
    return _flatten(host_memory_stats_as_nested_dict())


def reset_accumulated_host_memory_stats() -> None:
    """Starts the totals of :func:`host_memory_stats` again at zero."""
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Starts the peaks of :func:`host_memory_stats` again at the current values."""
    _C._reset_peak_host_memory_stats()


def memory_snapshot() -> list[dict[str, Any]]:
    """All segments of all devices' allocators with their blocks, for looking at
    fragmentation: ``address``, ``total_size``, ``allocated_size``,
    ``active_size``, ``stream``, ``segment_type`` and ``blocks`` (``address``,
    ``size``, ``requested_size``, ``state``)."""
    if not is_initialized():
        return []
    return [
        segment
        for index in range(_C._device_count())
        if _C._has_context(index)
        for segment in _C._memory_snapshot(index, True)
    ]


def _format_size(size: int) -> str:
    exponent = 0
    while size >= 10 * 1024 ** (exponent + 1) and exponent < len(_UNITS) - 1:
        exponent += 1
    return f"{size / 1024**exponent:.0f} {_UNITS[exponent]}"


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics of a device's allocator as a table.

    Args:
        device: device, index or name; the current device by default.
        abbreviated: leave out the rows of the two pools.
    """
    _lazy_init()
    index = _device_index(device)
    stats = memory_stats(index)
    pools = {"all": ""}
    if not abbreviated:
        pools |= {"large_pool": "  large pool", "small_pool": "  small pool"}

    rule = "+".join(["-" * 24, *["-" * 12] * len(_COLUMNS)])
    row = "{:<23} |" + "|".join(["{:>11} "] * len(_COLUMNS))
    lines = [
        f"Memory of opencl:{index}: {stats['num_ooms']} out-of-memory errors, "
        f"{stats['num_alloc_retries']} retries after flushing the cache",
        rule,
        row.format("Metric", *_COLUMNS.values()),
    ]
    for rows, format_value in ((_SIZE_ROWS, _format_size), (_COUNT_ROWS, str)):
        for name, title in rows.items():
            lines.append(rule)
            for pool, label in pools.items():
                values = (stats[f"{name}.{pool}.{metric}"] for metric in _COLUMNS)
                lines.append(row.format(label or title, *map(format_value, values)))
    return "\n".join(line.rstrip() for line in [*lines, rule]) + "\n"
