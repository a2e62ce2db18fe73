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


def positions(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.arange(tensor.shape[dim], device=tensor.device)


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


def attribute(tensor: torch.Tensor, name: str) -> torch.Tensor:
    return getattr(tensor, name)


def run_compiled(graph, dynamic: bool, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """A Graph of compiled.py: by Inductor on the device, step by step on the CPU."""
    if tensors[0].device.type == "cpu":
        return graph(*tensors)
    return graph.compiled(dynamic)(*tensors)


def int_mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if left.device.type == "cpu":
        return (left.long() @ right.long()).int()
    return torch._int_mm(left, right)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """In float64, or in float32 and rounded once."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (x.to(wide) @ weight.to(wide).t()).to(x.dtype)


def int8_product(x, weight, scales) -> torch.Tensor:
    if x.device.type == "cpu":
        return _product(x, weight.double() * scales.double()[:, None])
    return torch._weight_int8pack_mm(x, weight, scales)


def int4_product(x, values, pairs, group: int, inner: int) -> torch.Tensor:
    """By a weight whose bytes hold two numbers each, the first in the upper half."""
    if x.device.type == "cpu":
        numbers = torch.stack((values >> 4, values & 15), -1).flatten(1)
        scale, zero = pairs.double().repeat_interleave(group, 0).unbind(-1)
        return _product(x, (numbers.double() - 8) * scale.t() + zero.t())
    weight = torch._convert_weight_to_int4pack(values, inner)
    return torch._weight_int4pack_mm(x, weight, group, pairs)
