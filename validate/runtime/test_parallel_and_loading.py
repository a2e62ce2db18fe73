"""nn.DataParallel, and DataLoader where opencl is the default device: as on CUDA."""

from __future__ import annotations

import pytest
import torch
from script import run_script
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def test_data_parallel_on_one_device_moves_its_inputs(device) -> None:
    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    expected = model(x)
    parallel = nn.DataParallel(model, device_ids=[device.index])
    output = parallel(x)
    assert output.device == device
    torch.testing.assert_close(output.cpu(), expected)
    output.sum().backward()
    assert parallel.module.weight.grad.device == device
    assert parallel(input=x).device == device


def test_data_parallel_on_several_devices_names_the_alternative() -> None:
    if torch.opencl.device_count() < 2:
        pytest.skip("there is one OpenCL device")
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
        nn.DataParallel(nn.Linear(3, 2).to("opencl"))


def test_loader_with_a_default_device(device) -> None:
    """A sampler's generator has to be of the default device, on CUDA as well."""
    data = TensorDataset(torch.arange(8.0))
    torch.set_default_device(device)
    try:
        in_order = [batch for (batch,) in DataLoader(data, 4)]
        assert torch.cat(in_order).tolist() == list(range(8))
        with pytest.raises(RuntimeError, match="device type for generator"):
            list(DataLoader(data, 4, shuffle=True))
        generator = torch.Generator(device)
        shuffled = DataLoader(data, 4, shuffle=True, generator=generator)
        assert sorted(torch.cat([batch for (batch,) in shuffled]).tolist()) == list(
            range(8)
        )
    finally:
        torch.set_default_device(None)


def test_a_forked_worker_of_a_used_device_says_so(device) -> None:
    printed = run_script(
        """
        from torch.utils.data import DataLoader

        class Made(torch.utils.data.Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                return torch.ones(1)

        torch.set_default_device(DEVICE)
        torch.ones(1)
        try:
            list(DataLoader(Made(), num_workers=1, multiprocessing_context="fork"))
        except RuntimeError as error:
            print(str(error).strip().splitlines()[-1])
        """,
        device,
    )
    assert "forked" in printed, printed
