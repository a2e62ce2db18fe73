"""Trains a character-level GPT on a text, and samples from it.

    python examples/char_gpt.py --device opencl:0 --picture sample.png
    python examples/char_gpt.py --text novel.txt --steps 2000

The text is this project's own documentation unless --text says otherwise. The file
has the loss of every step and what the network writes.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pictures
import torch
from torch import nn
from torch.nn import functional as F

DOCS = Path(__file__).resolve().parents[1] / "docs"
CONTEXT = 64
BATCH = 32


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.after_attention = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, -1)
        parts = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        seen = seen.transpose(1, 2).reshape(batch, length, width)
        x = x + self.after_attention(seen)
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, characters: int, width: int = 96, layers: int = 3) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(layers)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        places = torch.arange(codes.size(1), device=codes.device)
        return self.last(self.layers(self.characters(codes) + self.places(places)))


@torch.no_grad()
def sample(model: GPT, codes: torch.Tensor, count: int, temperature: float = 0.8):
    """``codes`` (1, n) and ``count`` more. Nothing waits: codes stay on the device."""
    for _ in range(count):
        scores = model(codes[:, -CONTEXT:])[:, -1] / temperature
        codes = torch.cat([codes, torch.multinomial(scores.softmax(-1), 1)], 1)
    return codes[0]


def draw(path: Path, losses: list[torch.Tensor], text: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5))
    left.plot(torch.stack(losses).cpu())
    left.set(xlabel="step", ylabel="loss (nats a character)")
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, 60)]
    right.text(0, 1, "\n".join(lines[:24]), va="top", family="monospace", fontsize=8)
    right.axis("off")
    figure.tight_layout()
    figure.savefig(path)
    print(f"wrote {path}")


def main() -> int:
    parser = pictures.options(__doc__, steps=800, file=pictures.figure)
    parser.add_argument("--text", type=Path, metavar="FILE", help="to learn from")
    parser.add_argument("--characters", type=int, default=400, help="to sample")
    arguments = parser.parse_args()
    steps = 15 if arguments.quick else arguments.steps
    torch.manual_seed(arguments.seed)
    files = [arguments.text] if arguments.text else sorted(DOCS.glob("*.md"))
    # Of characters that pictures can show.
    text = "".join(file.read_text() for file in files if file.name != "operators.md")
    text = text.encode("ascii", "ignore").decode()
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(c) for c in text], device=arguments.device)
    print(f"{len(text)} characters, {len(alphabet)} different ones")

    model = GPT(len(alphabet)).to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps)
    places = torch.arange(CONTEXT + 1, device=arguments.device)
    losses = []
    for step in range(steps):
        begins = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1))
        chosen = codes[begins.to(arguments.device) + places]
        scores = model(chosen[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), chosen[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    pictures.report("loss", losses)

    model.eval()
    count = 40 if arguments.quick else arguments.characters
    written = sample(model, codes[None, :1], count).tolist()
    written = "".join(alphabet[code] for code in written)
    print(written)
    if arguments.picture:
        draw(arguments.picture, losses, written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
