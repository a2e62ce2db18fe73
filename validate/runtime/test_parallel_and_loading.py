"""nn.DataParallel, and DataLoader where opencl is the default device: as on CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


_WORKERS = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

DEVICE = sys.argv[1]


class Batch:
    def __init__(self, tensor):
        self.fields = {"tensor": tensor}


class Made(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        # A loader within a worker sends nothing.
        (inner,) = DataLoader([torch.ones(1, device=DEVICE)])
        return torch.full((2,), index, device=DEVICE) * inner[0]


class Stream(IterableDataset):
    def __iter__(self):
        return (Made()[index] for index in range(4))


def keep(samples):
    return Batch(torch.stack(samples))


def on_the_host(samples):
    return torch.stack(samples).cpu()


def batches(dataset, **options):
    context = "spawn" if options.get("num_workers") else None
    loader = DataLoader(
        dataset, batch_size=2, multiprocessing_context=context, **options
    )
    return list(loader)


if __name__ == "__main__":
    for dataset in (Made(), Stream()):
        for collate in (None, keep):
            try:
                batches(dataset, num_workers=1, collate_fn=collate)
            except RuntimeError as error:
                print(str(error).strip().splitlines()[-1])
        assert batches(dataset)[0].device == torch.device(DEVICE)
    sent = batches(Made(), num_workers=1, collate_fn=on_the_host)
    print(torch.cat(sent)[:, 0].tolist())
"""


def test_workers_that_return_tensors_of_the_device_say_so(
    device, tmp_path: Path
) -> None:
    """They are sent by a thread, whose error left the main process waiting."""
    script = tmp_path / "workers.py"
    script.write_text(_WORKERS)
    process = subprocess.run(
        [sys.executable, script, str(device)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr
    *errors, sent = process.stdout.splitlines()
    assert len(errors) == 4
    for error in errors:
        assert "Cannot send memory of an opencl tensor" in error, errors
        assert "Send tensor.cpu()" in error
    assert sent == "[0.0, 1.0, 2.0, 3.0]"
