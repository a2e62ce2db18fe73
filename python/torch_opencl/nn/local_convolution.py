"""Locally connected layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from . import functional


class LocallyConnected2d(torch.nn.Module):
    """:class:`torch.nn.Conv2d` whose weights are not shared between positions.

    Every position of the output has weights and a bias of its own, so the size
    of the input is part of the layer.

    Args:
        in_channels, out_channels: of the input and the output.
        input_size: rows and columns of the input.
        kernel_size, stride, padding, dilation: as in ``Conv2d``, one number or
            (rows, columns).
        bias: whether the layer has a bias.
        device, dtype: of the parameters.

    Attributes:
        weight: ``(out_channels, in_channels, kernel rows, kernel columns, output
            rows, output columns)``, drawn as in ``Conv2d``.
        bias: ``(out_channels, output rows, output columns)`` or None.

    Example::

        layer = LocallyConnected2d(16, 16, 28, 3, padding=1, device="opencl")
        layer(torch.randn(100, 16, 28, 28, device="opencl"))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        input_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        bias: bool = True,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        if in_channels <= 0 or out_channels <= 0:
            raise ValueError("in_channels and out_channels must be positive")
        pair = functional._pair
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.input_size = pair(input_size, "input_size")
        self.kernel_size = pair(kernel_size, "kernel_size")
        self.stride = pair(stride, "stride")
        self.padding = pair(padding, "padding")
        self.dilation = pair(dilation, "dilation")
        self.output_size = functional.local_conv2d_size(
            self.input_size, self.kernel_size, self.stride, self.padding, self.dilation
        )
        options = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(
            torch.empty(
                (out_channels, in_channels, *self.kernel_size, *self.output_size),
                **options,
            )
        )
        if bias:
            self.bias = torch.nn.Parameter(
                torch.empty((out_channels, *self.output_size), **options)
            )
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias uniformly within 1 / sqrt(fan in)."""
        bound = 1 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_conv2d(
            input, self.weight, self.bias, self.stride, self.padding, self.dilation
        )

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, input_size={self.input_size}, "
            f"kernel_size={self.kernel_size}, stride={self.stride}"
        )
        if self.padding != [0, 0]:
            text += f", padding={self.padding}"
        if self.dilation != [1, 1]:
            text += f", dilation={self.dilation}"
        return text if self.bias is not None else f"{text}, bias=False"
