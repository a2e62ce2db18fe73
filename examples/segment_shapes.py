"""Trains a small U-Net to tell discs, squares and triangles apart, pixel by pixel.

    python examples/segment_shapes.py --device opencl:0 --picture shapes.png

The pictures are made while it runs. The file has a row a picture: what the network
sees, what is there, and what it finds.
"""

from __future__ import annotations

import sys

import pictures
import torch
from shapes import CLASSES, COLOURS, draw
from torch import nn
from torch.nn import functional as F

SIZE = 32
BATCH = 32


def block(channels: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Down three times and up again, with the finer features beside the coarse."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 64)) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            block(before, after)
            for before, after in zip((3, *widths), widths, strict=False)
        )
        self.up = nn.ModuleList(
            block(widths[i + 1] + widths[i], widths[i])
            for i in reversed(range(len(widths) - 1))
        )
        self.last = nn.Conv2d(widths[0], len(CLASSES), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        finer = []
        for level, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if level else x)
            finer.append(x)
        finer.pop()
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = layer(torch.cat([x, finer.pop()], 1))
        return self.last(x)


def overlap(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Intersection over union, the mean of the classes."""
    ratios = []
    for kind in range(len(CLASSES)):
        both = ((found == kind) & (truth == kind)).sum()
        either = ((found == kind) | (truth == kind)).sum()
        ratios.append(both / either.clamp(min=1))
    return torch.stack(ratios).mean().item()


def main() -> int:
    parser = pictures.options(__doc__, steps=300)
    arguments = parser.parse_args()
    steps = 12 if arguments.quick else arguments.steps
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    kept = 64 if arguments.quick else 512
    images, truth = (t.to(arguments.device) for t in draw(kept, SIZE, generator))
    test_images, test_truth = draw(32, SIZE, generator)

    model = UNet().to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, steps)
    losses = []
    for step in range(steps):
        chosen = torch.randint(kept, (BATCH,), generator=generator)
        chosen = chosen.to(arguments.device)
        loss = F.cross_entropy(model(images[chosen]), truth[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    pictures.report("loss", losses)

    model.eval()
    with torch.no_grad():
        found = model(test_images.to(arguments.device)).argmax(1).cpu()
    print(f"mean intersection over union: {overlap(found, test_truth):.3f}")
    if arguments.picture:
        rows = [
            [image, *(COLOURS[kinds].permute(2, 0, 1) for kinds in pair)]
            for image, *pair in zip(test_images[:5], test_truth, found, strict=False)
        ]
        rows = [[pictures.enlarge(part, 3) for part in row] for row in rows]
        pictures.save(arguments.picture, pictures.grid(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
