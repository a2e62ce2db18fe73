"""Networks of complex numbers train on the device: none of their ops runs on the CPU."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check
from tolerance import assert_matches

pytestmark = pytest.mark.usefixtures("without_fallbacks")


def test_fourier_neural_operator(device):
    """A block of an FNO: lowest modes are mixed, the rest goes through 1x1."""
    modes = 3

    def block(x, weights, kernel):
        size = x.shape[-2:]
        spectrum = torch.fft.rfft2(x)
        mixing = torch.view_as_complex(weights)
        out = torch.zeros(
            (*x.shape[:1], mixing.shape[2], *spectrum.shape[2:]),
            dtype=spectrum.dtype,
            device=x.device,
        )
        low, high = slice(modes), slice(-modes, None)
        for number, rows in enumerate((low, high)):
            out[:, :, rows, low] = torch.einsum(
                "bixy,ioxy->boxy", spectrum[:, :, rows, low], mixing[number]
            )
        return F.gelu(torch.fft.irfft2(out, s=size) + F.conv2d(x, kernel))

    inputs = [
        torch.randn(2, 3, 8, 10),
        torch.randn(2, 3, 4, modes, modes, 2) / 4,
        torch.randn(4, 3, 1, 1),
    ]
    check(block, inputs, device)


def test_rotary_embedding_of_complex_numbers(device):
    """As Llama's reference code rotates queries and keys."""
    heads, width, tokens = 2, 8, 6

    def attention(x, projection):
        angles = torch.outer(
            torch.arange(tokens, device=x.device),
            1 / 100 ** (torch.arange(0, width, 2, device=x.device) / width),
        ).to(x.dtype)
        turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
        shape = (*x.shape[:2], heads, width)
        q, k, v = (y.view(shape) for y in F.linear(x, projection).chunk(3, -1))

        def turned(y):
            pairs = torch.view_as_complex(y.reshape(*y.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turns).flatten(3)

        scores = torch.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", scores, v)

    inputs = [torch.randn(2, tokens, 16), torch.randn(48, 16) / 4]
    check(attention, inputs, device)


def test_complex_convolutions(device):
    def network(x, first, second):
        z = torch.view_as_complex(x)
        z = F.conv2d(z, torch.view_as_complex(first), padding=1)
        z = torch.view_as_complex(torch.view_as_real(z).relu())
        z = z / (1 + z.abs())
        z = F.conv2d(z, torch.view_as_complex(second), stride=2)
        return z.abs().square().mean((2, 3)), torch.view_as_real(z)

    inputs = [
        torch.randn(2, 3, 7, 8, 2),
        torch.randn(4, 3, 3, 3, 2) / 3,
        torch.randn(2, 4, 3, 3, 2) / 3,
    ]
    check(network, inputs, device)


def test_training_of_complex_parameters(device):
    """Adam's steps, with a weight that is complex."""

    def train(on):
        torch.manual_seed(0)
        weight = torch.randn(4, 4, dtype=torch.complex64)
        x = torch.randn(16, 4, dtype=torch.complex64)
        weight = weight.to(on).requires_grad_()
        x = x.to(on)
        optimizer = torch.optim.Adam([weight], lr=0.05)
        for _ in range(5):
            loss = (x @ weight - 1j * x).abs().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return weight.detach().cpu()

    torch.testing.assert_close(train(device), train("cpu"), rtol=1e-4, atol=1e-5)


_MODULES = {
    "linear": (lambda: torch.nn.Linear(5, 3), (4, 5)),
    "linear without bias": (lambda: torch.nn.Linear(5, 3, bias=False), (2, 3, 5)),
    "conv1d": (lambda: torch.nn.Conv1d(3, 5, 3, padding=1), (2, 3, 9)),
    "conv2d": (lambda: torch.nn.Conv2d(4, 6, 3, stride=2, groups=2), (2, 4, 7, 9)),
    "conv_transpose2d": (lambda: torch.nn.ConvTranspose2d(3, 2, 3), (2, 3, 5, 4)),
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("in_one_call", [False, True])
@pytest.mark.parametrize("name", _MODULES)
def test_modules_become_complex(device, name, in_one_call, dtype):
    """Parameters change dtype on the device, with the CPU's warning, and train there."""
    make, size = _MODULES[name]
    original = make()
    values = [torch.randn(p.shape, dtype=dtype) for p in original.parameters()]
    x = torch.randn(size, dtype=dtype)

    def run(place, dtype):
        module = copy.deepcopy(original)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if in_one_call:
                module.to(place, dtype)
            else:
                module.to(place).to(dtype)
        parameters = list(module.parameters())
        before = [p.detach().cpu().clone() for p in parameters]
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)
        leaf = x.to(place, dtype, copy=True).requires_grad_()
        y = module(leaf)
        (y.abs() + y.real * y.imag).sum().backward()
        found = [y, leaf.grad, *(p.grad for p in parameters)]
        assert all(value.device.type == torch.device(place).type for value in found)
        return found, before, [str(warning.message) for warning in caught]

    mine, before, warned = run(device, dtype)
    cpu, cpu_before, said = run("cpu", dtype)
    double, _, _ = run("cpu", torch.complex128)
    assert warned == said
    assert any("Complex modules are a new feature" in text for text in said)
    for value, expected in zip(before, cpu_before, strict=True):
        assert value.dtype == dtype
        assert torch.equal(value, expected)
    for index, values_of in enumerate(zip(mine, double, cpu, strict=True)):
        assert_matches(*values_of, name=str(index), multiple=8.0)
