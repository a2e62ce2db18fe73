"""The networks that are measured, with random weights: torchvision's for classification,
and transformers for text."""

from __future__ import annotations

import torch
import torch_opencl.vision
from gpu.zoo import Transformer, rotated
from torch import nn
from torch.nn import functional as F

# Beside a CPU build of torch, torchvision does not import without this.
torch_opencl.vision.install()

import torchvision  # noqa: E402

NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16", "mobilenet_v2")
# The vocabulary of each network for text.
TEXT = {"bert": 30522, "gpt2": 50257, "llama": 32000}
_TOKENS = 128


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads = heads, key_heads
        joined = width // heads * (heads + 2 * key_heads)
        self.qkv = nn.Linear(width, joined, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, -1, width // self.heads).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.key_heads, self.key_heads], 1)
        q, k = (y * cos + rotated(y) * sin for y in (q, k))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(seen.transpose(1, 2).reshape(batch, length, width))


class _LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int, hidden: int) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = _Attention(width, heads, key_heads)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        x = x + self.attention(self.before(x), cos, sin)
        gate, up = self.gate_up(self.after(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """Of 100 million parameters: RMSNorm, rotary embedding, grouped heads, SwiGLU."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 640)
        self.layers = nn.ModuleList(_LlamaLayer(640, 10, 5, 1728) for _ in range(12))
        self.norm = nn.RMSNorm(640)
        self.head = nn.Linear(640, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        rates = 10000 ** (-torch.arange(0, 64, 2, device=tokens.device) / 64)
        turns = places[:, None] * rates.repeat(2)
        cos, sin = turns.cos(), turns.sin()
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def build(name: str) -> nn.Module:
    """A network of torchvision, ``vit_s_16``, or one of ``TEXT``."""
    if name == "llama":
        return Llama(TEXT[name])
    if name in TEXT:
        return Transformer(TEXT[name], _TOKENS, layers=12, causal=name == "gpt2")
    if name == "vit_s_16":
        return torchvision.models.VisionTransformer(224, 16, 12, 6, 384, 1536)
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **extra)


def build_shapes(name: str) -> nn.Module:
    """The network without memory, which computes shapes only."""
    with torch.device("meta"):
        return build(name)


def data_of(
    name: str, batch: int, image_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pictures (batch, 3, image_size, image_size) or tokens (batch, 128), and
    the class of each, on the CPU."""
    if name in TEXT:
        tokens = torch.randint(TEXT[name], (batch, _TOKENS))
        return tokens, tokens.flatten()
    pictures = torch.randn(batch, 3, image_size, image_size)
    return pictures, torch.arange(batch) % 1000
