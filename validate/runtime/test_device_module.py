"""torch.opencl has the names that torch reads of it, and those of torch.cuda."""

import pytest
import torch
from device_module_names import names_read_by_torch

_READ_ELSEWHERE_ONLY = {
    "set_rng_ctx": "torch calls it for the device type hpu only",
    "unset_rng_ctx": "torch calls it for the device type hpu only",
    "sparse": "legacy classes such as torch.cuda.sparse.FloatTensor",
    "PythonWrapperCodegen": "asking for Scheduling registers it",
    "CppWrapperCodegen": "asking for Scheduling registers it",
    "WrapperFxCodegen": "asking for Scheduling registers it",
}

_GRAPHS = "torch.accelerator.Graph captures for every device"
_LEGACY = "legacy class: torch makes those of its own devices in C++"
_CUDA = "the CUDA runtime's own"
_OTHER_ALLOCATORS = "memory comes from the package's allocator only"
_SENSORS = "OpenCL does not report it"
_DEPRECATED = "deprecated in torch.cuda"
_ONLY_CUDA = {
    "CUDAGraph": _GRAPHS,
    "CUDAPluggableAllocator": _OTHER_ALLOCATORS,
    "CudaError": _CUDA,
    "DeferredCudaCallError": _CUDA,
    "ExternalStream": "torch_opencl.pyopencl_queue is the way to foreign queues",
    "GreenContext": _CUDA,
    "MemPool": _OTHER_ALLOCATORS,
    "caching_allocator_alloc": "an OpenCL address is no pointer to hand out",
    "caching_allocator_delete": "an OpenCL address is no pointer to hand out",
    "caching_allocator_disabled": _OTHER_ALLOCATORS,
    "caching_allocator_enable": _OTHER_ALLOCATORS,
    "change_current_allocator": _OTHER_ALLOCATORS,
    "check_error": _CUDA,
    "clock_rate": _SENSORS,
    "cudaStatus": _CUDA,
    "cudart": _CUDA,
    "current_blas_handle": "no BLAS library is used",
    "current_solver_handle": "no solver library is used",
    "get_arch_list": "kernels are compiled where they run",
    "get_gencode_flags": "kernels are compiled where they run",
    "get_stream_from_external": "torch_opencl.pyopencl_queue is the way",
    "get_sync_debug_mode": "torch.opencl.wait_stats counts waits",
    "graph": _GRAPHS,
    "graph_pool_handle": _GRAPHS,
    "graphs": _GRAPHS,
    "has_half": "says how torch was built",
    "has_magma": "says how torch was built",
    "ipc_collect": "OpenCL memory is not shared between processes",
    "jiterator": "torch_opencl.ElementwiseKernel",
    "list_gpu_processes": _SENSORS,
    "make_graphed_callables": _GRAPHS,
    "max_memory_cached": _DEPRECATED,
    "memory_cached": _DEPRECATED,
    "memory_usage": _SENSORS,
    "nccl": "NVIDIA's library",
    "nvtx": "NVIDIA's library",
    "power_draw": _SENSORS,
    "reset_max_memory_allocated": _DEPRECATED,
    "reset_max_memory_cached": _DEPRECATED,
    "set_sync_debug_mode": "torch.opencl.wait_stats counts waits",
    "sparse": _LEGACY,
    "temperature": _SENSORS,
    "tunable": "torch.backends.opencl.benchmark",
    "use_mem_pool": _OTHER_ALLOCATORS,
    "utilization": _SENSORS,
}


def _legacy_classes() -> dict[str, str]:
    return {
        name: _LEGACY
        for name in torch.cuda.__all__
        if name.endswith(("Tensor", "Storage"))
    }


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return names_read_by_torch()


def test_search_finds_what_torch_is_known_to_read(found):
    assert any(place.startswith("utils/checkpoint") for place in found["_initialized"])
    assert any(place.startswith("random.py") for place in found["manual_seed_all"])
    assert any(place.startswith("amp/") for place in found["get_amp_supported_dtype"])
    assert any(
        place.startswith("_utils.py") for place in found["get_device_properties"]
    )
    assert {"_utils", "_is_in_bad_fork", "current_stream", "Event"} <= found.keys()


def test_names_that_torch_reads(found):
    missing = {name for name in found if not hasattr(torch.opencl, name)}
    without_reason = missing - _READ_ELSEWHERE_ONLY.keys()
    assert not without_reason, {name: found[name] for name in without_reason}
    stale = _READ_ELSEWHERE_ONLY.keys() - missing
    assert not stale, "torch.opencl has them, or torch does not ask any more"


def test_names_of_torch_cuda():
    reasons = _ONLY_CUDA | _legacy_classes()
    missing = {name for name in torch.cuda.__all__ if not hasattr(torch.opencl, name)}
    assert missing - reasons.keys() == set()
    assert reasons.keys() - missing == set(), "torch.opencl has them"


def test_default_generators(device):
    torch.opencl.init()
    generators = torch.opencl.default_generators
    assert len(generators) == torch.opencl.device_count()
    generator = generators[device.index]
    assert generator.device == device
    with torch.opencl.device(device):
        torch.opencl.manual_seed(3)
    assert generator.initial_seed() == 3
    assert torch.opencl._get_generator(device).initial_seed() == 3


def test_device_index_of_a_location(device):
    index = torch.opencl._utils._get_device_index
    with torch.opencl.device(device):
        assert index("opencl", optional=True) == device.index
        assert index(None, optional=True) == device.index
    assert index(device) == index(str(device)) == index(device.index) == device.index
    assert index("cpu", allow_cpu=True) == -1
    for wrong in ("opencl", None, "cpu", "meta"):
        with pytest.raises(ValueError, match="Expected a"):
            index(wrong)


def test_no_device_reads_the_memory_of_another(device):
    for peer in range(torch.opencl.device_count()):
        assert torch.opencl.can_device_access_peer(device, peer) is False
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.opencl.can_device_access_peer(device, 99)


def test_what_ported_programs_ask(device):
    assert not torch.opencl.is_tf32_supported()
    assert not torch.opencl.is_current_stream_capturing()
    assert torch.opencl.get_allocator_backend() == "native"
    total = torch.opencl.mem_get_info(device)[1]
    x = torch.zeros(1 << 22, device=device)
    assert x.nbytes <= torch.opencl.device_memory_used(device) <= total


def test_host_memory_stats(device):
    torch.opencl.init()
    torch.opencl.reset_peak_host_memory_stats()
    torch.opencl.reset_accumulated_host_memory_stats()
    before = torch.opencl.host_memory_stats()
    assert before["active_bytes.allocated"] == 0
    with torch.opencl.device(device):
        pinned = torch.empty(3000, dtype=torch.uint8, pin_memory=True)
    stats = torch.opencl.host_memory_stats()
    assert stats["active_bytes.allocated"] == 4096  # rounded to a power of two
    # What earlier tests held may be freed meanwhile.
    change = stats["active_bytes.current"] - before["active_bytes.current"]
    assert change == 4096 - stats["active_bytes.freed"]
    assert stats["active_bytes.peak"] >= stats["active_bytes.current"]
    assert stats["active_requests.allocated"] == 1
    nested = torch.opencl.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["allocated"] == 4096
    assert set(stats) >= set(_HOST_METRICS)
    freed = stats["active_bytes.freed"]
    del pinned
    assert torch.opencl.host_memory_stats()["active_bytes.freed"] == freed + 4096


_HOST_METRICS = [
    *(
        f"{name}.{metric}"
        for name in (
            "allocations",
            "allocated_bytes",
            "active_requests",
            "active_bytes",
        )
        for metric in ("current", "peak", "allocated", "freed")
    ),
    "num_host_alloc",
    "num_host_free",
]
