"""Matrix products and convolutions, with the shapes of real networks.

The layers are collected from torchvision's models by hooks, while the models
run on torch's meta device, which computes shapes only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from case import Case, Run, gradients, random, size_of
from measure import LAYOUTS
from models import build_shapes

_SQUARE = 2048
_LONG = 4096
_TALL_SKINNY = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Convolution:
    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.batch, self.channels, self.height, self.width)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.filters, self.channels // self.groups, *self.kernel)

    @property
    def output_shape(self) -> tuple[int, ...]:
        sizes = (
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(
                (self.height, self.width),
                self.kernel,
                self.stride,
                self.padding,
                self.dilation,
                strict=True,
            )
        )
        return (self.batch, self.filters, *sizes)

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.channels > 1

    @property
    def flops(self) -> float:
        return 2.0 * size_of(self.output_shape) * size_of(self.weight_shape[1:])

    def __str__(self) -> str:
        text = f"{self.channels}x{self.height}x{self.width} -> {self.filters}"
        text += f" {self.kernel[0]}x{self.kernel[1]}"
        for value, letter in ((self.stride, "s"), (self.dilation, "d")):
            if max(value) > 1:
                text += f" {letter}{value[0]}"
        return text + (f" g{self.groups}" if self.groups > 1 else "")


@dataclass(frozen=True)
class Linear:
    rows: int
    inputs: int
    outputs: int


Layer = Convolution | Linear


def layers_of(
    models: list[str], batch: int, image_size: int
) -> dict[Layer, dict[str, int]]:
    """Each distinct layer, and how often it is in which network."""
    found: dict[Layer, Counter[str]] = defaultdict(Counter)
    for name in models:

        def note(module, inputs, output, name: str = name) -> None:
            shape = tuple(inputs[0].shape)
            if isinstance(module, torch.nn.Linear):
                rows = size_of(shape[:-1])
                layer = Linear(rows, module.in_features, module.out_features)
            else:
                layer = Convolution(
                    *shape,
                    module.out_channels,
                    module.kernel_size,
                    module.stride,
                    module.padding,
                    module.dilation,
                    module.groups,
                )
            found[layer][name] += 1

        model = build_shapes(name).eval()
        for module in model.modules():
            if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
                module.register_forward_hook(note)
        model(torch.empty(batch, 3, image_size, image_size, device="meta"))
    return found


def listed(uses: dict[str, int]) -> str:
    return ", ".join(f"{name} x{count}" for name, count in uses.items())


def product(
    family: str,
    name: str,
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    transposes: str = "NN",
    uses: str = "",
) -> Case:
    """out[m, n] = left[m, k] @ right[k, n], operands stored as is (N) or
    transposed (T)."""

    def make(device: str) -> Run:
        left, right = (
            random(shape, device, dtype)
            if letter == "N"
            else random(shape[::-1], device, dtype).t()
            for shape, letter in zip(((m, k), (k, n)), transposes, strict=True)
        )
        return lambda: left @ right

    read = size_of((m, k), (k, n)) * dtype.itemsize
    written = size_of((m, n)) * dtype.itemsize
    text = f"{name} {m}x{n}x{k} {transposes}"
    return Case(family, text, make, 2.0 * m * n * k, read, written, uses)


def gemm(dtype: torch.dtype, layers: dict[Layer, dict[str, int]]) -> Iterator[Case]:
    for transposes in ("NN", "NT", "TN", "TT"):
        yield product("gemm", "square", *[_SQUARE] * 3, dtype, transposes)
    for size in _TALL_SKINNY:
        yield product("gemm", "few rows", size, _LONG, _LONG, dtype)
        yield product("gemm", "few rows", size, _LONG, _LONG, dtype, "NT")
        yield product("gemm", "few columns", _LONG, size, _LONG, dtype)
        yield product("gemm", "few columns", _LONG, size, _LONG, dtype, "TN")
    for layer, uses in layers.items():
        if isinstance(layer, Linear):
            m, n, k = layer.rows, layer.outputs, layer.inputs
            text = listed(uses)
            yield product("gemm", "linear fwd", m, n, k, dtype, "NT", text)
            yield product("gemm", "linear dgrad", m, k, n, dtype, "NN", text)
            yield product("gemm", "linear wgrad", n, k, m, dtype, "TN", text)
        elif max(layer.kernel) == 1 and max(layer.stride) == 1:
            pixels = layer.batch * layer.height * layer.width
            m, k = layer.filters, layer.channels
            yield product("gemm", "1x1", m, pixels, k, dtype, "NN", listed(uses))
    yield batched_product(64, 256, 256, 64, dtype)
    yield batched_product(64, 256, 64, 256, dtype)


def batched_product(batch: int, m: int, n: int, k: int, dtype: torch.dtype) -> Case:
    def make(device: str) -> Run:
        left = random((batch, m, k), device, dtype)
        right = random((batch, k, n), device, dtype)
        return lambda: torch.bmm(left, right)

    read = batch * size_of((m, k), (k, n)) * dtype.itemsize
    written = batch * size_of((m, n)) * dtype.itemsize
    flops = 2.0 * batch * m * n * k
    return Case("gemm", f"bmm {batch}x {m}x{n}x{k}", make, flops, read, written)


def convolution(
    layer: Convolution, direction: str, layout: str, dtype: torch.dtype, uses: str
) -> Case:
    def make(device: str) -> Run:
        memory_format = LAYOUTS[layout]
        x = random(layer.input_shape, device, dtype, memory_format)
        weight = random(layer.weight_shape, device, dtype, memory_format)

        def forward() -> torch.Tensor:
            return torch.nn.functional.conv2d(
                x,
                weight,
                None,
                layer.stride,
                layer.padding,
                layer.dilation,
                layer.groups,
            )

        if direction == "fwd":
            return forward
        wanted = x if direction == "dgrad" else weight
        wanted.requires_grad_()
        return gradients(forward(), [wanted])

    shapes = {
        "fwd": layer.output_shape,
        "dgrad": layer.input_shape,
        "wgrad": layer.weight_shape,
    }
    written = size_of(shapes.pop(direction)) * dtype.itemsize
    return Case(
        "depthwise" if layer.is_depthwise else "convolution",
        f"{direction} {layer} {layout}",
        make,
        # Depthwise has too few operations for its bytes to be judged by them.
        0 if layer.is_depthwise else layer.flops,
        size_of(*shapes.values()) * dtype.itemsize,
        written,
        uses,
    )


def convolutions(
    dtype: torch.dtype, layers: dict[Layer, dict[str, int]]
) -> Iterator[Case]:
    for layer, uses in layers.items():
        if isinstance(layer, Convolution):
            for direction in ("fwd", "dgrad", "wgrad"):
                for layout in LAYOUTS:
                    yield convolution(layer, direction, layout, dtype, listed(uses))
