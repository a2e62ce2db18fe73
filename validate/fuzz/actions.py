"""Steps that are more than one call of torch."""

from __future__ import annotations

import torch


def set_data(tensor: torch.Tensor, other: torch.Tensor) -> None:
    tensor.data = other


def write_data(tensor: torch.Tensor, factor: float) -> None:
    """A write that no version counter sees."""
    tensor.data.mul_(factor)


def assign(tensor: torch.Tensor, index: tuple, value) -> None:
    with torch.no_grad():
        tensor[index] = value


def take(tensor: torch.Tensor, index: tuple) -> torch.Tensor:
    return tensor[index]


def make_optimizer(name: str, parameters: list[torch.Tensor], **options):
    """Of parameters that share the memory of ``parameters``."""
    leaves = [value.detach().requires_grad_() for value in parameters]
    return getattr(torch.optim, name)(leaves, **options)


def step_optimizer(optimizer) -> None:
    """One step along gradients that follow from the parameters."""
    (group,) = optimizer.param_groups
    for parameter in group["params"]:
        parameter.grad = torch.tanh(parameter.detach()) + 0.25
    optimizer.step()


def optimizer_state(optimizer) -> list[torch.Tensor]:
    return [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    ]


def first(results: tuple) -> torch.Tensor:
    return results[0]
