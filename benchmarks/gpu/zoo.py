"""The networks of the laboratory: eight that stand for what people run, those of
the published table that the model is checked against, and two of a single kind of
launch that a floor is about.

Their weights are random, their sizes those of the real networks where a
network has a name. What one step costs is judged, not what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

DEVICE = "opencl"


class Layer(nn.Module):
    """A transformer's layer, with the normalisations first."""

    def __init__(self, width: int, heads: int, causal: bool, dropout: float = 0.1):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.before_attention = nn.LayerNorm(width)
        self.before_mlp = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        projected = self.projections(self.before_attention(x))
        query, key, value = projected.view(
            batch, length, 3, self.heads, width // self.heads
        ).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=self.causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        x = x + self.drop(self.output(attended.transpose(1, 2).flatten(2)))
        hidden = functional.gelu(self.up(self.before_mlp(x)))
        return x + self.drop(self.down(hidden))


class Transformer(nn.Module):
    def __init__(self, words: int, length: int, layers: int, causal: bool):
        super().__init__()
        width, heads = 768, 12
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.Sequential(
            *(Layer(width, heads, causal) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places[: tokens.shape[1]]
        return self.head(self.norm(self.layers(x)))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """(-b, a) of ``x`` = (a, b), halves of the last dimension: what a rotary embedding
    multiplies by its sines."""
    low, high = x.chunk(2, -1)
    return torch.cat([-high, low], -1)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, out: int, time_width: int):
        super().__init__()
        self.first_norm = nn.GroupNorm(8, channels)
        self.first = nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time_width, out)
        self.second_norm = nn.GroupNorm(8, out)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.first(functional.silu(self.first_norm(x)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        hidden = self.second(functional.silu(self.second_norm(hidden)))
        return self.skip(x) + hidden


class ImageAttention(nn.Module):
    def __init__(self, channels: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, channels)
        self.projections = nn.Conv2d(channels, 3 * channels, 1)
        self.output = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        projected = self.projections(self.norm(x)).view(
            batch, 3, self.heads, channels // self.heads, height * width
        )
        query, key, value = projected.transpose(3, 4).unbind(1)
        attended = functional.scaled_dot_product_attention(query, key, value)
        return x + self.output(attended.transpose(2, 3).reshape(x.shape))


class UNet(nn.Module):
    """Two levels of a diffusion model's network."""

    def __init__(self, channels: int = 64):
        super().__init__()
        wide = 2 * channels
        self.time = nn.Linear(channels, channels)
        self.input = nn.Conv2d(3, channels, 3, padding=1)
        self.fine = ResidualBlock(channels, channels, channels)
        self.shrink = nn.Conv2d(channels, wide, 3, stride=2, padding=1)
        self.coarse = ResidualBlock(wide, wide, channels)
        self.attention = ImageAttention(wide)
        self.middle = ResidualBlock(wide, wide, channels)
        self.grow = nn.Conv2d(wide, channels, 3, padding=1)
        self.joined = ResidualBlock(wide, channels, channels)
        self.norm = nn.GroupNorm(8, channels)
        self.output = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        time = self.time(time)
        fine = self.fine(self.input(x), time)
        x = self.attention(self.coarse(self.shrink(fine), time))
        x = self.middle(x, time)
        x = self.grow(functional.interpolate(x, scale_factor=2.0))
        x = self.joined(torch.cat([fine, x], 1), time)
        return self.output(functional.silu(self.norm(x)))


class WordLSTM(nn.Module):
    def __init__(self, words: int = 1000):
        super().__init__()
        self.words = nn.Embedding(words, 128)
        self.layers = nn.LSTM(128, 256, 2, batch_first=True)
        self.head = nn.Linear(256, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(tokens))[0])


class Product(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import models

        return models.build(name)

    return build


def _images(batch: int, size: int = 224) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, size, size, device=DEVICE),)


def _tokens(words: int, length: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda batch: (torch.randint(words, (batch, length), device=DEVICE),)


def _noise(batch: int) -> tuple[torch.Tensor, ...]:
    return (*_images(batch, 64), torch.randn(batch, 64, device=DEVICE))


def _cross_entropy(output: torch.Tensor) -> torch.Tensor:
    output = output.flatten(0, -2)
    wanted = torch.zeros(output.shape[0], dtype=torch.long, device=DEVICE)
    return functional.cross_entropy(output, wanted)


def _square(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


@dataclass(frozen=True)
class Network:
    """What to build, what to feed it, and the batches of both modes; a network
    whose batch is 0 is left out of that mode."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]
    infer: int
    train: int
    loss: Callable[[torch.Tensor], torch.Tensor] = _cross_entropy

    def step_of(
        self, model: nn.Module, mode: str
    ) -> Callable[[tuple[torch.Tensor, ...]], None]:
        """A step of a mode, of its inputs: training is by Adam."""
        optimizer = torch.optim.Adam(model.parameters(), 1e-4)

        def step(inputs: tuple[torch.Tensor, ...]) -> None:
            if mode == "infer":
                with torch.no_grad():
                    model(*inputs)
                return
            optimizer.zero_grad()
            self.loss(model(*inputs)).backward()
            optimizer.step()

        return step


NETWORKS: dict[str, Network] = {
    "resnet50": Network(_torchvision("resnet50"), _images, 32, 16),
    "mobilenet_v2": Network(_torchvision("mobilenet_v2"), _images, 32, 16),
    "vgg16": Network(_torchvision("vgg16"), _images, 32, 16),
    "vit_b_16": Network(_torchvision("vit_b_16"), _images, 32, 16),
    "gpt": Network(
        lambda: Transformer(50257, 512, 12, True), _tokens(50257, 512), 4, 4
    ),
    "bert": Network(
        lambda: Transformer(30522, 128, 2, False), _tokens(30522, 128), 16, 16
    ),
    "unet": Network(UNet, _noise, 16, 16, _square),
    "lstm": Network(WordLSTM, _tokens(1000, 16), 16, 16),
}
# Only for the comparison with the published table.
PUBLISHED: dict[str, Network] = {
    name: Network(_torchvision(name), _images, 16, 16)
    for name in ("alexnet", "resnet18")
}
# A square product, and what a language model reads for one more token.
SINGLE: dict[str, Network] = {
    "sgemm_2048": Network(
        lambda: Product(2048),
        lambda rows: (torch.randn(rows, 2048, device=DEVICE),),
        infer=2048,
        train=0,
    ),
    "gpt_token": Network(
        lambda: Transformer(50257, 512, 12, True), _tokens(50257, 1), 1, 0
    ),
}
ALL = {**NETWORKS, **PUBLISHED, **SINGLE}
MODES = ("infer", "train")


def batch_of(network: str, mode: str) -> int:
    """0 where the network is left out of the mode."""
    return getattr(ALL[network], mode)
