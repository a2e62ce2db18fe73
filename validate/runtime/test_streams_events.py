import threading

import pytest
import torch


@pytest.fixture(autouse=True)
def on_device(device):
    with torch.opencl.device(device):
        yield


def wait_count() -> int:
    return sum(torch.opencl.wait_stats().values())


def test_default_stream_is_current(device):
    stream = torch.opencl.current_stream()
    assert stream == torch.opencl.default_stream()
    assert stream.device == device
    assert stream.stream_id == 0
    assert torch.accelerator.current_stream() == stream


def test_stream_context_restores(device):
    outer = torch.opencl.current_stream()
    side = torch.opencl.Stream()
    assert side != outer
    with torch.opencl.stream(side) as entered:
        assert entered == side
        assert torch.opencl.current_stream() == side
        with torch.Stream(device) as inner:
            assert torch.opencl.current_stream() == inner
        assert torch.opencl.current_stream() == side
    assert torch.opencl.current_stream() == outer
    with torch.opencl.stream(None):
        assert torch.opencl.current_stream() == outer
    torch.opencl.set_stream(side)
    assert torch.opencl.current_stream() == side
    torch.opencl.set_stream(outer)


def test_streams_come_from_a_pool_in_turn(device):
    streams = [torch.opencl.Stream(device) for _ in range(33)]
    assert len({stream.stream_id for stream in streams}) == 32
    assert streams[0] == streams[32]
    assert len({stream.native_handle for stream in streams}) == 32


def test_current_stream_is_thread_local(device):
    seen = []
    with torch.opencl.Stream(device):
        thread = threading.Thread(
            target=lambda: seen.append(torch.opencl.current_stream(device).stream_id)
        )
        thread.start()
        thread.join()
    assert seen == [0]


def test_streams_are_ordered_by_events(device):
    side = torch.opencl.Stream(device)
    x = torch.zeros(1 << 20, device=device)
    for step in range(1, 21):
        x.fill_(float(step))
        side.wait_stream(torch.opencl.current_stream())
        with side:
            y = x * 2
        torch.opencl.current_stream().wait_stream(side)
        y.record_stream(torch.opencl.current_stream())
        assert y[-1].item() == 2.0 * step


def test_event_life_cycle(device):
    event = torch.opencl.Event()
    assert event.query()
    event.synchronize()
    event.record()
    event.synchronize()
    assert event.query()
    side = torch.opencl.Stream(device)
    event.wait(side)
    assert side.record_event().wait() is None
    torch.opencl.synchronize()
    assert side.query()


def test_events_order_two_devices(device):
    count = torch.opencl.device_count()
    if count < 2:
        pytest.skip("one device")
    other = torch.device("opencl", (device.index + 1) % count)
    x = torch.ones(1 << 20, device=device)
    for _ in range(10):
        x.add_(1.0)
    event = torch.opencl.current_stream().record_event()
    torch.opencl.current_stream(other).wait_event(event)
    assert event.query()
    y = x.to(other)
    assert y.device == other
    assert y[-1].item() == 11.0
    with pytest.raises(RuntimeError, match="does not match recording stream"):
        event.record(torch.opencl.current_stream(other))


def test_elapsed_time(device):
    x = torch.ones(1 << 20, device=device)
    start, end = (torch.opencl.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        x.mul_(1.0)
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000
    assert end.elapsed_time(start) == -start.elapsed_time(end)


def test_elapsed_time_needs_timing(device):
    start, end = torch.opencl.Event(), torch.opencl.Event(enable_timing=True)
    start.record()
    end.record()
    end.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing=True"):
        start.elapsed_time(end)


def test_elapsed_time_needs_recorded_events(device):
    start, end = (torch.opencl.Event(enable_timing=True) for _ in range(2))
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        start.elapsed_time(end)


def test_launching_does_not_wait(device):
    x = torch.ones(1000, device=device)
    (x + 1).mul_(2)
    before = wait_count()
    for _ in range(50):
        x = x.add(1).mul(0.5)
    assert wait_count() == before
    x.sum().item()
    assert wait_count() > before


def test_non_blocking_copy_from_pinned_memory_does_not_wait(device):
    pinned = torch.arange(1000.0).pin_memory()
    before = wait_count()
    x = pinned.to(device, non_blocking=True)
    assert wait_count() == before
    torch.testing.assert_close(x.cpu(), pinned)


def test_synchronize(device):
    x = torch.ones(1 << 20, device=device) + 1
    torch.opencl.synchronize(device)
    assert torch.opencl.current_stream().query()
    torch.accelerator.synchronize()
    assert x[0].item() == 2
