"""``torch.opencl``: OpenCL devices with the surface of ``torch.cuda``.

The names, units and errors are those of ``torch.cuda`` wherever OpenCL has the
same notion. Nothing here touches a driver before the first use of a device, so
importing torch on a machine without one costs nothing and ``is_available()``
is then False.
"""

from __future__ import annotations

from .. import _C, inductor
from . import _utils, amp, memory, profiler, random, streams  # noqa: F401
from ._lazy import (  # noqa: F401  (torch calls the private ones)
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    init,
    is_available,
    is_initialized,
)
from .amp import (
    get_amp_supported_dtype,
    is_bf16_supported,
    is_tf32_supported,
)
from .devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    set_device,
    synchronize,
)
from .memory import (
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .profiler import profile
from .random import (  # noqa: F401
    _get_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "compile_kernel",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "fallback_stats",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "profile",
    "profiler",
    "program_cache_stats",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_fallback_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
    "wait_stats",
]


def __getattr__(name: str):
    """The names that ``torch.cuda`` has as variables which change at the first
    use of a device, and what Inductor asks for at its own."""
    if name == "_initialized":
        return is_initialized()
    if name == "default_generators":
        return random.default_generators()
    if name == "Scheduling":
        return inductor.register()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def compile_kernel(source: str, name: str, options=(), device=None):
    """Compiles a kernel written in OpenCL C.

    Args:
        source: the program.
        name: of the kernel in it.
        options: for the compiler, such as ``("-DROWS=4",)``.
        device: device, index or name; the current device by default. The kernel
            runs on others too, compiled at its first call there.

    Returns:
        A :class:`torch_opencl.RawKernel`, called with ``(grid, block, args)``.

    Raises:
        RuntimeError: it does not compile, with the lines and the compiler's log.
    """
    from ..kernels import RawKernel

    kernel = RawKernel(source, name, options)
    kernel.compile(device)
    return kernel


def fallback_stats() -> dict[str, int]:
    """How often each op has run on the CPU for want of an OpenCL kernel.

    Returns:
        Calls by aten overload, e.g. ``{"aten::fmod.Tensor_out": 3}``, most
        frequent first, since the start or the last
        :func:`reset_fallback_stats`.
    """
    return dict(_C._fallback_stats())


def reset_fallback_stats() -> None:
    """Starts the counts of :func:`fallback_stats` again at zero."""
    _C._reset_fallback_stats()


def program_cache_stats(device=None) -> dict[str, float]:
    """Where a device's programs came from.

    Args:
        device: device, index or name; the current device by default.

    Returns:
        ``built`` (compiled from source), ``loaded`` (from the disk cache),
        ``damaged`` (disk entries thrown away), ``build_seconds``.
    """
    from .devices import _device_index

    return _C._program_cache_stats(_device_index(device))


def wait_stats() -> dict[str, int]:
    """How often the host has waited for a device since the process started.

    A step of training waits for nothing but what it brings to the host
    (``.item()``, ``.cpu()``, printing) or copies from pageable memory, so the
    difference around a step tells whether something else is hidden in it.

    Returns:
        Calls of ``clFinish``, of ``clWaitForEvents``, and ``blocking
        transfers``: reads, writes and maps that return when they are done.
    """
    return dict(_C._wait_stats())
