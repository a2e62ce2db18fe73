"""torch.cuda itself: properties, streams, events, memory, random numbers."""

import sys

import torch
from torch.profiler import ProfilerActivity, profile

cuda = torch.cuda.is_available()
device = "cuda" if cuda else "cpu"
torch.manual_seed(0)
x = torch.randn(16, 16).to(device)
result = x @ x
if cuda:
    assert torch.cuda.device_count() >= 1
    assert isinstance(torch.cuda.get_device_name(0), str)
    major, minor = torch.cuda.get_device_capability("cuda:0")
    properties = torch.cuda.get_device_properties(torch.device("cuda"))
    assert (properties.major, properties.minor) == (major, minor)
    assert properties.total_memory > 0 and properties.multi_processor_count > 0
    torch.cuda.init()
    torch.cuda.set_device(0)
    assert torch.cuda.is_initialized()

    stream = torch.cuda.Stream()
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        start.record()
        result = x @ x
        end.record()
    torch.cuda.current_stream().wait_stream(stream)
    result.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize("cuda:0")
    assert start.elapsed_time(end) >= 0
    assert isinstance(stream, torch.cuda.Stream)

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated(0) - before >= 1 << 20
    assert torch.cuda.max_memory_allocated("cuda") >= torch.cuda.memory_allocated()
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] > before
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    del block
    torch.cuda.empty_cache()
    torch.cuda.ipc_collect()
    assert "Memory" in torch.cuda.memory_summary()

    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.rand(4, device="cuda"))
    generator = torch.Generator(device="cuda").manual_seed(3)
    again = torch.Generator("cuda").manual_seed(3)
    assert generator.device.type == "cuda"
    assert torch.equal(
        torch.rand(4, device="cuda", generator=generator),
        torch.rand(4, device="cuda", generator=again),
    )
    with torch.random.fork_rng(devices=[0]):
        torch.rand(4, device="cuda")

    pinned = torch.ones(4).pin_memory()
    assert pinned.is_pinned()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        assert torch.backends.cudnn.benchmark
    torch.backends.cuda.matmul.allow_tf32 = True
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.range_push("inner")
        torch.cuda.nvtx.range_pop()

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        x @ x
        torch.cuda.synchronize()
    rows = {row.key: row for row in profiler.key_averages()}
    assert rows["aten::mm"].self_device_time_total > 0
    assert "aten::mm" in profiler.key_averages().table(sort_by="cuda_time_total")
torch.save({"result": result.cpu()}, sys.argv[1])
