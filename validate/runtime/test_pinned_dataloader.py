import os

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.fixture(autouse=True)
def on_device(device):
    with torch.opencl.device(device):
        yield


def test_pin_memory(device):
    x = torch.arange(1000.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.device.type == "cpu"
    assert pinned[10:20].is_pinned()
    assert torch.equal(pinned, x)
    assert torch.empty(10, pin_memory=True).is_pinned()


@pytest.mark.parametrize("shape", [(1,), (1000,), (300, 7), (1 << 21,)])
def test_non_blocking_copies_both_ways(device, shape):
    x = torch.randn(shape).pin_memory()
    y = x.to(device, non_blocking=True)
    back = torch.empty(shape, pin_memory=True)
    back.copy_(y, non_blocking=True)
    torch.opencl.synchronize()
    assert torch.equal(back, x)


def test_pinned_memory_in_flight_is_not_reused(device):
    # The freed block may only be handed out again once the copy has read it.
    for value in range(20):
        pinned = torch.full((1 << 20,), float(value)).pin_memory()
        x = pinned.to(device, non_blocking=True)
        del pinned
        torch.empty(1 << 20, pin_memory=True).fill_(-1.0)
        assert x.min().item() == value


def test_pinned_memory_is_cached(device):
    address = torch.empty(1 << 16, pin_memory=True).data_ptr()
    assert torch.empty(1 << 16, pin_memory=True).data_ptr() == address
    torch.accelerator.empty_host_cache()


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(device, workers):
    if workers and os.environ.get("TORCH_OPENCL_SANITIZER") == "thread":
        pytest.skip("the thread sanitizer follows no thread of a forked process")
    inputs, targets = torch.randn(37, 5), torch.arange(37)
    loader = DataLoader(
        TensorDataset(inputs, targets),
        batch_size=8,
        num_workers=workers,
        pin_memory=True,
    )
    torch.ones(1, device=device)  # the workers are forked from a user of devices
    received = []
    for batch, labels in loader:
        assert batch.is_pinned() and labels.is_pinned()
        received.append(batch.to(device, non_blocking=True))
    assert torch.equal(torch.cat([batch.cpu() for batch in received]), inputs)
