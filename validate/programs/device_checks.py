"""Asks in every way whether a tensor is on the GPU, and names devices in every way."""

import copy
import pickle
import sys
import threading

import torch
from torch import nn

cuda = torch.cuda.is_available()
device = torch.device("cuda:0") if cuda else torch.device("cpu")
name = "cuda" if cuda else "cpu"
x = torch.arange(6.0).reshape(2, 3).to(device)
assert x.is_cuda == cuda
assert x.device == device
assert x.device.type == name
assert x.device.type in {"cpu": 1, name: 2}
assert str(x.device).startswith(name)
assert f"{x.device}" == str(device)
assert name in repr(x.device)
assert pickle.loads(pickle.dumps(x.device)) == device
assert copy.deepcopy(device) == device
assert x.to(name) is x
assert x.get_device() == (0 if cuda else -1)
assert getattr(torch, x.device.type) is (torch.cuda if cuda else torch.cpu)
assert isinstance(device, torch.device)

results = []
if cuda:
    for where in ("cuda", "cuda:0", device, torch.device("cuda"), 0):
        made = [
            torch.zeros(2, device=where),
            torch.full((2,), 3.0, device=where),
            torch.arange(2, device=where),
            torch.tensor([1, 2], device=where),
            torch.as_tensor([1, 2], device=where),
            torch.randn(2, device=where),
            torch.randperm(2, device=where),
            torch.tril_indices(2, 2, device=where),
            torch.ones(2).to(where),
            torch.ones(2).to(device=where, dtype=torch.float64),
            torch.zeros_like(torch.ones(2), device=where),
            x.new_ones(2, device=where),
            torch.empty_strided((2, 2), (1, 2), device=where),
        ]
        assert all(tensor.is_cuda for tensor in made), where
    assert torch.ones(2).cuda(0, non_blocking=True).is_cuda
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0
    torch.set_default_device("cuda")
    assert nn.Linear(2, 2).weight.is_cuda
    torch.set_default_device(None)
    assert x.type() == "torch.cuda.FloatTensor"
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.HalfTensor)
    assert torch.cuda.LongTensor([1, 2]).is_cuda
    assert torch.ones(2).type("torch.cuda.HalfTensor").dtype == torch.float16
    assert x.type(torch.cuda.DoubleTensor).dtype == torch.float64
    assert x.untyped_storage().is_cuda
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    assert torch.ones(2).is_cuda and torch.ones(2).dtype == torch.float16
    torch.set_default_tensor_type("torch.FloatTensor")
    assert not torch.ones(2).is_cuda and torch.ones(2).dtype == torch.float32
    torch.set_default_device("cuda")
    torch.set_default_tensor_type(torch.DoubleTensor)  # it is of dtypes alone then
    assert torch.ones(2).is_cuda and torch.ones(2).dtype == torch.float64
    torch.set_default_device(None)
    torch.set_default_tensor_type(torch.FloatTensor)


@torch.library.custom_op("device_checks::made", mutates_args=(), device_types=name)
def made_by_op(device: torch.device) -> torch.Tensor:
    return torch.full((2, 3), 2.0, device=device)


results.append(made_by_op(device).cpu())


def work():
    results.append((torch.ones(2, 3, device=name) + x).cpu())


thread = threading.Thread(target=work)
thread.start()
thread.join()


@torch.jit.script
def scripted(x: torch.Tensor, name: str):
    y = torch.zeros(3, device=torch.device(name))
    return y + x


results.append(scripted(x, name).cpu())
torch.save({"results": torch.stack(results)}, sys.argv[1])
