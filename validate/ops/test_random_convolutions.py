"""Convolutions of random sizes, groups, strides, padding, dilation and layouts."""

from __future__ import annotations

import random

import pytest
import torch
from tolerance import to_host
from torch.nn import functional as F

_PARTS = 64
_PROBLEMS = 10  # of a part; PoCL compiles its kernels for a minute
_LIMIT = 3e-6  # float32: a few roundings of the sums' terms


def _triples_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.new_full((*tensor.shape[:-1], 3 * tensor.shape[-1]), float("nan"))
    view = wide[..., ::3]
    return view.copy_(tensor)


def _every_second_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.new_full([2 * size for size in tensor.shape], float("nan"))
    view = wide[tuple(slice(1, None, 2) for _ in tensor.shape)]
    return view.copy_(tensor)


def _permuted(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    order = draw.sample(range(tensor.dim()), tensor.dim())
    back = [order.index(d) for d in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)


def _channels_innermost(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 1:
        return tensor
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def _in_some_layout(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    layouts = (
        lambda t: t,
        _channels_innermost,
        _triples_in_memory,
        _every_second_in_memory,
        lambda t: _permuted(t, draw),
    )
    return draw.choice(layouts)(tensor)


class _Problem:
    """Sizes whose result is not empty, transposed once in four."""

    def __init__(self, draw: random.Random) -> None:
        while True:
            self.dims = draw.choice((1, 2, 2, 3))
            self.groups = draw.choice((1, 1, 2, 3, 8, 32))
            self.is_transposed = draw.random() < 0.25
            self.images = draw.choice((1, 2, 3))
            self.channels = self.groups * draw.choice((1, 1, 2, 5))
            self.out_channels = self.groups * draw.choice((1, 1, 2, 3))
            self.size = self._each(draw, (1, 2, 3, 5, 8, 13), 0)
            self.kernel = self._each(draw, (1, 1, 2, 3, 3, 5), 0.4)
            self.stride = self._each(draw, (1, 1, 2, 3), 0.4)
            self.padding = self._each(draw, (0, 1, 2), 0.4)
            self.dilation = self._each(draw, (1, 1, 2), 0.6)
            self.output_padding = (0,) * self.dims
            if self.is_transposed:
                most = map(max, self.stride, self.dilation)
                self.output_padding = tuple(draw.choice((0, n - 1)) for n in most)
            if min(self._output()) > 0:
                return

    def _each(self, draw: random.Random, values: tuple, alike: float) -> tuple:
        """One a dimension; the same for all with a probability of ``alike``."""
        if draw.random() < alike:
            return (draw.choice(values),) * self.dims
        return tuple(draw.choice(values) for _ in range(self.dims))

    def _output(self) -> list[int]:
        sides = zip(
            self.size,
            self.kernel,
            self.stride,
            self.padding,
            self.dilation,
            self.output_padding,
            strict=True,
        )
        if self.is_transposed:
            return [
                (n - 1) * s - 2 * p + (k - 1) * d + 1 + o for n, k, s, p, d, o in sides
            ]
        return [(n + 2 * p - (k - 1) * d - 1) // s + 1 for n, k, s, p, d, _ in sides]

    def inputs(self) -> list[torch.Tensor]:
        channels = self.out_channels, self.channels // self.groups
        if self.is_transposed:
            channels = self.channels, self.out_channels // self.groups
        return [
            torch.randn(self.images, self.channels, *self.size),
            torch.randn(*channels, *self.kernel),
            torch.randn(self.out_channels),
        ]

    def __call__(self, x, weight, bias):
        if self.is_transposed:
            function = getattr(F, f"conv_transpose{self.dims}d")
            options = (self.output_padding, self.groups, self.dilation)
        else:
            function = getattr(F, f"conv{self.dims}d")
            options = (self.dilation, self.groups)
        return function(x, weight, bias, self.stride, self.padding, *options)


def _results(problem, tensors, grad_output) -> list[torch.Tensor]:
    for tensor in tensors:
        tensor.requires_grad_()
    out = problem(*tensors)
    return [out.detach(), *torch.autograd.grad(out, tensors, grad_output)]


def _error(value, reference, terms) -> float:
    """The error over the sums of the terms' magnitudes: a sum may be almost zero."""
    distance = torch.linalg.vector_norm(to_host(value).double() - reference)
    most = torch.linalg.vector_norm(terms)
    return (distance / most).item() if most > 0 else distance.item()


@pytest.mark.parametrize("part", range(_PARTS))
def test_random_problems(device, part):
    draw = random.Random(int(torch.randint(2**31, ())))
    for _ in range(_PROBLEMS):
        problem = _Problem(draw)
        inputs = problem.inputs()
        grad_output = torch.randn(problem(*inputs).shape)
        wide = [t.double() for t in inputs]
        magnitudes = [t.abs() for t in wide]
        expected = _results(problem, wide, grad_output.double())
        terms = _results(problem, magnitudes, grad_output.double().abs())
        lying = [_in_some_layout(t.to(device), draw) for t in inputs]
        gradient = _in_some_layout(grad_output.to(device), draw)
        found = _results(problem, lying, gradient)
        names = ("output", "gradient of input", "of weight", "of bias")
        for name, *values in zip(names, found, expected, terms, strict=True):
            strides = [t.stride() for t in (*lying, gradient)]
            error = _error(*values)
            assert error < _LIMIT, (name, error, vars(problem), strides)
