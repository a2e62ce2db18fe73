"""DDP, FSDP2, DTensor, tensor and pipeline parallelism and ZeroRedundancyOptimizer
of two processes, against one process."""

from __future__ import annotations

import copy
import datetime
import os

import torch
import torch.distributed as dist
from jobs import check, run_checks
from tiny_gpt import batch, loss_of, make_model
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

DEVICE = torch.device(os.environ["DEVICE"])
STEPS = 3


def own_rows() -> slice:
    rows = 4 // dist.get_world_size()
    return slice(dist.get_rank() * rows, (dist.get_rank() + 1) * rows)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix("module."): value.grad.clone()
        for name, value in model.named_parameters()
    }


def close(actual, expected, tolerance: float = 2e-5) -> None:
    """Everything within `tolerance` of the largest expected value."""
    for name, value in expected.items():
        other = actual[name]
        if isinstance(other, DTensor):
            other = other.full_tensor()
        bound = tolerance * max(1e-3, value.abs().max().item())
        difference = (other.detach() - value.detach()).abs().max().item()
        assert difference <= bound, (name, difference, bound)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rows: slice) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(step, rows, DEVICE)).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def trained_by_ddp() -> dict[str, torch.Tensor]:
    model = make_model(DEVICE)
    train(DistributedDataParallel(model), sgd(model), own_rows())
    return model.state_dict()


@check
def ddp_has_one_process_gradients() -> None:
    single = make_model(DEVICE)
    loss_of(single, batch(0, slice(0, 4), DEVICE)).backward()
    expected = gradients(single)
    for options in (
        {"bucket_cap_mb": 0.01},  # many buckets
        {"gradient_as_bucket_view": True, "static_graph": True},
    ):
        model = DistributedDataParallel(make_model(DEVICE), **options)
        loss_of(model, batch(0, own_rows(), DEVICE)).backward()
        close(gradients(model), expected)
    # Accumulated over two halves, with communication for the second only.
    model = DistributedDataParallel(make_model(DEVICE))
    first, second = batch(0, own_rows(), DEVICE).chunk(2)
    with model.no_sync():
        (loss_of(model, first) / 2).backward()
    (loss_of(model, second) / 2).backward()
    close(gradients(model), expected)


@check
def ddp_compresses_to_bfloat16() -> None:
    single = make_model(DEVICE)
    loss_of(single, batch(0, slice(0, 4), DEVICE)).backward()
    model = DistributedDataParallel(make_model(DEVICE), bucket_cap_mb=0.01)
    model.register_comm_hook(None, bf16_compress_hook)
    loss_of(model, batch(0, own_rows(), DEVICE)).backward()
    close(gradients(model), gradients(single), 2e-2)


@check
def ddp_logs_device_times() -> None:
    model = DistributedDataParallel(make_model(DEVICE))
    for step in range(3):
        loss_of(model, batch(step, own_rows(), DEVICE)).backward()
    logged = model._get_ddp_logging_data()
    for name in ("forward_compute", "backward_compute", "backward_comm"):
        assert logged[f"avg_{name}_time"] > 0, (name, logged)


@check
def ddp_of_sparse_gradients() -> None:
    def embedding():
        torch.manual_seed(2)
        return nn.Embedding(9, 4, sparse=True).to(DEVICE)

    rows = torch.tensor([[1, 2, 2], [2, 5, 8]], device=DEVICE)
    single, model = embedding(), DistributedDataParallel(embedding())
    (single(rows).square().sum() / 2).backward()
    model(rows[dist.get_rank()]).square().sum().backward()
    expected = single.weight.grad.to_dense()
    close({"w": model.module.weight.grad.to_dense()}, {"w": expected})


@check
def fsdp_equals_ddp() -> None:
    expected = trained_by_ddp()
    model = make_model(DEVICE)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    assert isinstance(model.head.weight, DTensor)
    train(model, sgd(model), own_rows())
    close(dict(model.named_parameters()), expected, 1e-4)
    mixed = make_model(DEVICE)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in mixed.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(mixed, mp_policy=policy)
    train(mixed, sgd(mixed), own_rows())
    close(dict(mixed.named_parameters()), expected, 0.2)


@check
def zero_redundancy_equals_adam() -> None:
    single = make_model(DEVICE)
    train(single, torch.optim.Adam(single.parameters(), lr=1e-2), slice(0, 4))
    model = make_model(DEVICE)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
    train(DistributedDataParallel(model), optimizer, own_rows())
    # Adam divides by gradients near zero: noise of them is noise of steps.
    close(model.state_dict(), single.state_dict(), 1e-2)


@check
def dtensor_products() -> None:
    mesh = init_device_mesh("opencl", (dist.get_world_size(),))
    torch.manual_seed(3)
    a, b = torch.randn(14, 10).to(DEVICE), torch.randn(10, 18).to(DEVICE)
    for left in (Shard(0), Shard(1), Replicate()):
        for right in (Shard(0), Shard(1), Replicate()):
            x = distribute_tensor(a, mesh, [left])
            y = distribute_tensor(b, mesh, [right])
            product = x @ y
            close({"product": product.full_tensor()}, {"product": a @ b}, 1e-5)
            assert product.redistribute(mesh, [Shard(1)]).to_local().shape[1] == 9


@check
def tensor_parallel() -> None:
    mesh = init_device_mesh("opencl", (dist.get_world_size(),))
    torch.manual_seed(4)
    single = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6)).to(DEVICE)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    sharded = parallelize_module(copy.deepcopy(single), mesh, plan)
    x = torch.randn(5, 8).to(DEVICE)
    expected, actual = single(x), sharded(x)
    close({"output": actual}, {"output": expected})
    expected.square().sum().backward()
    actual.square().sum().backward()
    close(
        {name: value.grad for name, value in sharded.named_parameters()},
        gradients(single),
    )


@check
def pipeline() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    layers = [nn.Linear(8, 8).to(DEVICE) for _ in range(world)]
    single = nn.Sequential(*copy.deepcopy(layers))
    x, target = torch.randn(8, 8).to(DEVICE), torch.randn(8, 8).to(DEVICE)
    nn.functional.mse_loss(single(x), target).backward()
    stage = PipelineStage(layers[rank], rank, world, DEVICE)
    schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
    if rank == 0:
        schedule.step(x)
    else:
        output = schedule.step(target=target)
        close({"output": output}, {"output": single(x)})
    close(gradients(layers[rank]), gradients(single[rank]))


if __name__ == "__main__":
    torch.opencl.set_device(DEVICE)
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    run_checks()
    dist.destroy_process_group()
