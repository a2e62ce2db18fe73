"""Nothing in a training step waits for the device but what the user asks for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters),
    "adam_fused": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "adamw_single": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "rprop": lambda parameters: torch.optim.Rprop(parameters),
}


class TokenRows(nn.Module):
    """Rows of a table, added up by words: embedding and index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 32)
        self.register_buffer("words", torch.tensor([0, 3, 3, 1, 0, 2]))
        self.register_buffer("tokens", torch.tensor([1, 10, 0, 1, 7, 2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.index_add(0, self.words, self.table(self.tokens))


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        TokenRows(),
        nn.Linear(32, 10),
    )


def waits_of(function) -> dict[str, int]:
    before = torch.opencl.wait_stats()
    function()
    after = torch.opencl.wait_stats()
    return {name: after[name] - before[name] for name in after if after != before}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_does_not_wait(device, name):
    model = small_network().to(device)
    optimizer = OPTIMIZERS[name](model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    pictures = torch.randn(4, 3, 16, 16).to(device)
    target = torch.randint(0, 10, (4,)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), target, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    loss = step()

    def steps() -> None:
        for _ in range(3):
            step()

    assert waits_of(steps) == {}
    waits = waits_of(lambda: loss.item())
    assert waits == {"clFinish": 0, "clWaitForEvents": 0, "blocking transfers": 1}


@pytest.mark.parametrize("count", [1, 3, 7, 32])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_few_numbers_go_to_the_device_without_waiting(device, dtype, count):
    # 1 to 128 bytes, at offsets that no larger unit divides.
    source = torch.arange(1, count + 1).to(dtype)
    targets = torch.zeros(3 * count, dtype=dtype, device=device)

    def copy() -> None:
        targets[count : 2 * count].copy_(source)

    assert waits_of(copy) == {}
    source.zero_()  # the numbers were taken when copy_ returned
    expected = torch.arange(1, count + 1).to(dtype)
    assert torch.equal(targets[count : 2 * count].cpu(), expected)
    assert targets[:count].eq(0).all() and targets[2 * count :].eq(0).all()


def test_pageable_memory_is_waited_for(device):
    source = torch.randn(1000)
    assert waits_of(lambda: source.to(device))["blocking transfers"] == 1


def test_numbers_in_place_of_a_mask_do_not_wait(device):
    x = torch.randn(5, 6, 7)
    mask = x[:, :, 0] > 0
    moved, moved_mask = x.to(device), mask.to(device)

    def assign() -> None:
        moved[moved_mask] = 2.5
        moved[:, 1:][moved_mask[:, 1:]] = -1.0

    assert waits_of(assign) == {}
    x[mask] = 2.5
    x[:, 1:][mask[:, 1:]] = -1.0
    assert torch.equal(moved.cpu(), x)
    with pytest.raises(IndexError, match="does not match the shape"):
        moved[moved_mask[:4]] = 1.0


def test_output_size_spares_repeat_interleave_the_wait(device):
    x, repeats = torch.randn(4, 3), torch.tensor([2, 0, 1, 3])
    moved, moved_repeats = x.to(device), repeats.to(device)
    found = []

    def repeat() -> None:
        found.append(moved.repeat_interleave(moved_repeats, 0, output_size=6))

    assert waits_of(repeat) == {}
    assert torch.equal(found[0].cpu(), x.repeat_interleave(repeats, 0))
