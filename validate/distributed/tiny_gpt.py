"""A GPT that trains in moments, and its data."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, CONTEXT = 31, 24, 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class TinyGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_model(device: torch.device) -> TinyGPT:
    """The same weights in every process."""
    torch.manual_seed(1)
    return TinyGPT().to(device)


def batch(step: int, rows: slice, device: torch.device) -> torch.Tensor:
    """Rows of a step's batch of 4 sequences."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (4, CONTEXT), generator=generator)
    return tokens[rows].to(device)


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    predicted = model(tokens[:, :-1])
    return functional.cross_entropy(predicted.flatten(0, 1), tokens[:, 1:].flatten())
