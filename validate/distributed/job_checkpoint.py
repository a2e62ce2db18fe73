"""torch.distributed.checkpoint: a sharded model saved by some processes and loaded
by another number. CHECKPOINT is the directory, ACTION save or load."""

from __future__ import annotations

import datetime
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from jobs import check, run_checks
from tiny_gpt import batch, loss_of, make_model
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

# As many devices as there are, in turn, which is what LOCAL_RANK is for.
DEVICE = torch.device(
    "opencl", int(os.environ["LOCAL_RANK"]) % torch.opencl.device_count()
)
CHECKPOINT = os.environ["CHECKPOINT"]


def sharded():
    model = make_model(DEVICE)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, index: int) -> float:
    optimizer.zero_grad()
    loss = loss_of(model, batch(index, slice(0, 4), DEVICE))
    loss.backward()
    optimizer.step()
    return loss.item()


@check
def save_or_load() -> None:
    model, optimizer = sharded()
    losses = torch.zeros(2)
    if os.environ["ACTION"] == "save":
        step(model, optimizer, 0)
        weights, state = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id=CHECKPOINT)
        losses[0] = step(model, optimizer, 1)
        losses[1] = step(model, optimizer, 2)
        if dist.get_rank() == 0:
            torch.save(losses, f"{CHECKPOINT}/losses.pt")
        return
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=CHECKPOINT)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    losses[0] = step(model, optimizer, 1)
    losses[1] = step(model, optimizer, 2)
    torch.testing.assert_close(
        losses, torch.load(f"{CHECKPOINT}/losses.pt"), rtol=1e-4, atol=1e-4
    )


@check
def devices_are_mixed() -> None:
    """Processes of one group on different devices."""
    x = torch.full((1000,), float(dist.get_rank() + 1), device=DEVICE)
    dist.all_reduce(x)
    world = dist.get_world_size()
    assert (x == world * (world + 1) / 2).all().item()


if __name__ == "__main__":
    torch.opencl.set_device(DEVICE)
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    run_checks()
    dist.destroy_process_group()
