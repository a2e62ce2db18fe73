"""Twenty steps of small networks of other kinds: the loss goes as on the CPU.

A loss may differ by 0.1 %: rounding grows from step to step, by about a decimal
place in twenty steps here, from 1e-6.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

_STEPS = 20
_TOLERANCE = 1e-3


class Tagger(nn.Module):
    """Labels every character of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True)
        self.head = nn.Linear(32, 20)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class Decoder(nn.Module):
    """A GPT: predicts the next token."""

    def __init__(self, tokens: int = 20, width: int = 24, length: int = 15) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(Block(width, 3), Block(width, 3))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.blocks(self.tokens(tokens) + self.positions)
        return self.norm(x) @ self.tokens.weight.T


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = self._stage(3, 8)
        self.bottom = self._stage(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge = self._stage(16, 8)
        self.head = nn.Conv2d(8, 4, 1)

    @staticmethod
    def _stage(channels: int, width: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.SiLU(),
        )

    def forward(self, x):
        skip = self.down(x)
        deep = self.bottom(F.max_pool2d(skip, 2))
        return self.head(self.merge(torch.cat([skip, self.up(deep)], 1)))


class Adversaries(nn.Module):
    """DCGAN's pair for 16x16 images."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
            nn.Tanh(),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 1, 4),
            nn.Flatten(),
        )


def _supervised(loss: Callable) -> Callable:
    """Steps of Adam on one batch; the losses."""

    def train(model, x, target) -> list[float]:
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        losses = []
        for _ in range(_STEPS):
            optimizer.zero_grad()
            value = loss(model(x), target)
            value.backward()
            optimizer.step()
            losses.append(value.item())
        return losses

    return train


def _adversarial(model, real, noise) -> list[float]:
    options = {"lr": 2e-4, "betas": (0.5, 0.999)}
    makes = torch.optim.Adam(model.generator.parameters(), **options)
    judges = torch.optim.Adam(model.critic.parameters(), **options)
    loss = F.binary_cross_entropy_with_logits
    losses = []
    for step in range(_STEPS):
        fake = model.generator(noise[step])
        verdicts = model.critic(real), model.critic(fake.detach())
        ones = torch.ones_like(verdicts[0])
        judges.zero_grad()
        of_critic = loss(verdicts[0], ones) + loss(verdicts[1], 0 * ones)
        of_critic.backward()
        judges.step()
        makes.zero_grad()
        of_generator = loss(model.critic(fake), ones)
        of_generator.backward()
        makes.step()
        losses += [of_critic.item(), of_generator.item()]
    return losses


def _tokens_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def _problems() -> dict[str, tuple]:
    tokens = torch.randint(20, (6, 16))
    images = torch.randn(2, 3, 16, 16)
    return {
        "lstm": (Tagger(), _supervised(_tokens_loss), tokens, tokens.flip(0)),
        "gpt": (Decoder(), _supervised(_tokens_loss), tokens[:, :-1], tokens[:, 1:]),
        "unet": (
            UNet(),
            _supervised(F.cross_entropy),
            images,
            torch.randint(4, (2, 16, 16)),
        ),
        "dcgan": (
            Adversaries(),
            _adversarial,
            images.tanh(),
            torch.randn(_STEPS, 2, 8, 1, 1),
        ),
    }


@pytest.mark.parametrize("name", ["lstm", "gpt", "unet", "dcgan"])
def test_loss_goes_as_on_the_cpu(device, name):
    torch.manual_seed(11)
    model, train, *data = _problems()[name]
    curves = [
        train(copy.deepcopy(model).to(place), *(value.to(place) for value in data))
        for place in ("cpu", device)
    ]
    assert curves[0][-1] != curves[0][0]
    assert curves[1] == pytest.approx(curves[0], rel=_TOLERANCE)
