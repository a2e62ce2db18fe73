"""DDP of one process, as torchrun starts it."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
for name, value in (
    ("RANK", "0"),
    ("WORLD_SIZE", "1"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "0"),
):
    os.environ.setdefault(name, value)

gpu = torch.cuda.is_available()
dist.init_process_group(backend="nccl" if gpu else "gloo")
if gpu:
    torch.cuda.set_device(rank)
device = torch.device("cuda", rank) if gpu else torch.device("cpu")
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
)
model = DistributedDataParallel(model.to(device), device_ids=[rank] if gpu else None)
inputs = torch.randn(16, 6).to(device)
model(inputs).square().mean().backward()

group = dist.new_group([0], backend="nccl" if gpu else "gloo")
total = torch.arange(5.0, device=device)
dist.all_reduce(total, group=group)
on_cpu = torch.ones(3)
dist.all_reduce(on_cpu)
result = {name: value.grad.cpu() for name, value in model.named_parameters()}
torch.save(result | {"total": total.cpu(), "on_cpu": on_cpu}, sys.argv[1])
dist.destroy_process_group()
