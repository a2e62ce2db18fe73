"""Trains a network that doubles the size of pictures, and shows it on one.

    python examples/super_resolution.py --device opencl:0 --picture larger.png
    python examples/super_resolution.py --image photo.png --picture larger.png

It learns from made pictures of shapes, and adds what it has learned to a bicubic
enlargement. The file has, from left to right: the picture at half its size, its
bicubic enlargement, the network's, and the original.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pictures
import torch
from shapes import draw
from torch import nn
from torch.nn import functional as F

SIZE = 32
BATCH = 16
IMAGE = Path(__file__).resolve().parents[1] / "validate" / "images" / "sphere.ppm"


class Enlarger(nn.Module):
    """Convolutions on the small picture; each pixel then becomes 2 x 2."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 12, 3, padding=1),
            nn.PixelShuffle(2),
        )
        nn.init.zeros_(self.body[-2].weight)
        nn.init.zeros_(self.body[-2].bias)

    def forward(self, small: torch.Tensor) -> torch.Tensor:
        return bicubic(small) + self.body(small)


def bicubic(small: torch.Tensor) -> torch.Tensor:
    return F.interpolate(small, scale_factor=2.0, mode="bicubic", align_corners=False)


def psnr(image: torch.Tensor, original: torch.Tensor) -> float:
    """Peak signal to noise ratio in decibels: higher is better."""
    return -10 * (image.clamp(0, 1) - original).square().mean().log10().item()


def main() -> int:
    parser = pictures.options(__doc__, steps=600)
    parser.add_argument("--image", type=Path, default=IMAGE, metavar="FILE")
    arguments = parser.parse_args()
    steps = 20 if arguments.quick else arguments.steps
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    kept = 64 if arguments.quick else 512
    large = draw(kept, SIZE, generator)[0].to(arguments.device)
    small = F.avg_pool2d(large, 2)

    model = Enlarger().to(arguments.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        chosen = torch.randint(kept, (BATCH,), generator=generator)
        chosen = chosen.to(arguments.device)
        loss = F.mse_loss(model(small[chosen]), large[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.5f}", flush=True)
    pictures.report("loss", losses)

    original = pictures.load(arguments.image)
    original = original[:, : original.size(1) // 2 * 2, : original.size(2) // 2 * 2]
    original = original[None].to(arguments.device)
    with torch.no_grad():
        halved = F.avg_pool2d(original, 2)
        plain, learned = bicubic(halved), model(halved)
    print(
        f"{arguments.image.name}: bicubic {psnr(plain, original):.2f} dB, "
        f"network {psnr(learned, original):.2f} dB"
    )
    if arguments.picture:
        factor = max(1, 256 // original.size(-1))
        parts = [pictures.enlarge(halved, 2), plain, learned, original]
        row = [pictures.enlarge(part[0], factor) for part in parts]
        pictures.save(arguments.picture, pictures.grid([row]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
