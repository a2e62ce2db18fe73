"""Linear layers whose weights have eight or four bits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_TILE_DEPTH = 16


class Int8Linear(nn.Module):
    """:class:`torch.nn.Linear` with int8 weights and a scale a row.

    Args:
        linear: whose weights are rounded. Its dtype is that of the input.

    Attributes:
        weight: int8, ``(out_features, in_features)``.
        scales: of the rows, in the input's dtype.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        largest = weight.float().abs().amax(1).clamp(min=1e-12)
        scales = (largest / 127).to(weight.dtype)
        values = (weight.float() / scales.float()[:, None]).round().clamp(-128, 127)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("weight", values.to(torch.int8))
        self.register_buffer("scales", scales)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        y = torch._weight_int8pack_mm(rows, self.weight, self.scales)
        y = y.view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Int4Linear(nn.Module):
    """:class:`torch.nn.Linear` with weights of four bits, packed for where they are.

    Args:
        linear: whose weights are rounded. Its dtype is that of the input.
        group_size: weights of a row that share a scale and a zero: 32, 64, 128 or
            256, and ``in_features`` is a multiple of it.

    Attributes:
        weight: what ``torch._convert_weight_to_int4pack`` makes of them, or on the
            CPU ``torch._convert_weight_to_int4pack_for_cpu``.
        scales_and_zeros: ``(in_features / group_size, out_features, 2)``.
    """

    def __init__(self, linear: nn.Linear, group_size: int = 128) -> None:
        super().__init__()
        if not fits_int4(linear, group_size):
            raise ValueError(
                f"expected in_features to be a multiple of group_size, one of 32, 64, "
                f"128 and 256, and out_features of 16, but got {linear} and {group_size}"
            )
        weight = linear.weight.detach()
        groups = weight.float().view(linear.out_features, -1, group_size)
        least, most = groups.aminmax(dim=2, keepdim=True)
        scales = ((most - least) / 15).clamp(min=1e-6).to(weight.dtype)
        zeros = (least + 8 * scales.float()).to(weight.dtype)
        values = ((groups - zeros.float()) / scales.float()).round() + 8
        values = values.clamp(0, 15).to(torch.int32).view_as(weight)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.group_size = group_size
        self.register_buffer("weight", _packed(values))
        pairs = torch.cat([scales, zeros], 2).transpose(0, 1).contiguous()
        self.register_buffer("scales_and_zeros", pairs)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        multiply = (
            torch._weight_int4pack_mm_for_cpu
            if x.device.type == "cpu"
            else torch._weight_int4pack_mm
        )
        y = multiply(
            rows.contiguous(), self.weight, self.group_size, self.scales_and_zeros
        )
        y = y.view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"group_size={self.group_size}"
        )


def fits_int4(linear: nn.Linear, group_size: int) -> bool:
    """Whether :class:`Int4Linear` takes a layer of this size."""
    return (
        group_size in (32, 64, 128, 256)
        and linear.in_features % group_size == 0
        and linear.out_features % 16 == 0
    )


def quantize_linears(model: nn.Module, bits: int, group_size: int = 128) -> nn.Module:
    """Replaces the ``Linear`` layers of a model by those of eight or four bits.

    Call it where the model will run: weights of four bits are packed for the device.
    Layers that :class:`Int4Linear` does not take get eight bits.

    Args:
        model: changed in place.
        bits: 8 or 4.
        group_size: of weights of four bits.

    Returns:
        The model.
    """
    if bits not in (4, 8):
        raise ValueError(f"expected bits to be 4 or 8, but got {bits}")
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                small = bits == 4 and fits_int4(child, group_size)
                layer = Int4Linear(child, group_size) if small else Int8Linear(child)
                setattr(module, name, layer)
    return model


def _packed(values: Tensor) -> Tensor:
    # Long tiles are read by wide loads.
    depth = values.size(1)
    inner = next(n for n in (8, 4, 2) if depth % (n * _TILE_DEPTH) == 0)
    if values.device.type == "cpu":
        return torch._convert_weight_to_int4pack_for_cpu(values, inner)
    pairs = (values[:, ::2] << 4 | values[:, 1::2]).to(torch.uint8)
    return torch._convert_weight_to_int4pack(pairs, inner)
