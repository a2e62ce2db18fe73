"""torch.compile traces networks with FakeTensorMode and runs the device's kernels:
they have to agree about strides. Inductor is not used."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from script import run_python
from torch import nn


class _Residual(nn.Module):
    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(out_channels)
        self.second = nn.Conv2d(out_channels, out_channels, 3, 1, 1, groups=2)
        self.second_norm = nn.BatchNorm2d(out_channels)
        self.skip = nn.Conv2d(channels, out_channels, 1, stride)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.skip(x))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        _Residual(8, 8, 1),
        _Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU()
        )
        self.middle = nn.Sequential(
            nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU()
        )
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.norm = nn.GroupNorm(2, 16)
        self.last = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x):
        wide = self.down(x)
        y = torch.cat([wide, self.up(self.middle(wide))], 1)
        y = F.interpolate(F.silu(self.norm(y)), scale_factor=2)
        return self.last(F.avg_pool2d(y, 2))


class _GPTBlock(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = (
            part.view(batch, steps, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        # a view, as the output is in the query's order
        x = x + self.out(y.transpose(1, 2).view(batch, steps, width))
        return x + self.mlp(self.norms[1](x))


class _Conv1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(6, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.convolution(x.transpose(1, 2))).transpose(1, 2)


_NETWORKS = {
    "cnn": (_cnn, (2, 3, 32, 32)),
    "unet": (_UNet, (2, 3, 16, 16)),
    "gpt": (_GPTBlock, (2, 10, 32)),
    "conv1d": (_Conv1d, (2, 9, 6)),
}


def _step(call, model, x) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    model.zero_grad()
    out = call(x)
    out.square().sum().backward()
    return [out, x.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize(
    "network, channels_last, dynamic",
    [
        ("cnn", False, False),
        ("cnn", True, True),
        ("unet", False, True),
        ("unet", True, False),
        ("gpt", False, False),
        ("conv1d", False, True),
    ],
)
def test_aot_eager(device, network, channels_last, dynamic):
    make, shape = _NETWORKS[network]
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    model = make().to(device, memory_format=memory_format)
    compiled_model = copy.deepcopy(model)
    compiled = torch.compile(
        compiled_model, backend="aot_eager", fullgraph=True, dynamic=dynamic
    )
    for batch in (2, 3) if dynamic else (2,):
        x = torch.randn(batch, *shape[1:], device=device)
        x = x.contiguous(memory_format=memory_format)
        expected = _step(model, model, x)
        results = _step(compiled, compiled_model, x)
        for mine, theirs in zip(results, expected, strict=True):
            assert mine.stride() == theirs.stride()
            torch.testing.assert_close(mine, theirs)


def test_import_loads_no_compiler():
    modules = "('torch._dynamo', 'torch._inductor', 'torch_opencl.inductor.device')"
    code = f"import sys, torch; print(*(m in sys.modules for m in {modules}))"
    assert run_python(code).split() == ["False"] * 3
