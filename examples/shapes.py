"""Made pictures: discs, squares and triangles, with the class of every pixel."""

from __future__ import annotations

import torch

CLASSES = ("background", "disc", "square", "triangle")
# Of a picture of predictions.
COLOURS = torch.tensor(
    [[0.1, 0.1, 0.1], [0.9, 0.3, 0.2], [0.2, 0.7, 0.3], [0.3, 0.4, 1]]
)
_FINER = 3  # drawn so much larger, for smooth edges


def _inside(kind: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of a shape of radius 1 around (0, 0)."""
    if kind == 1:
        return x * x + y * y < 1
    if kind == 2:
        return (x.abs() < 0.8) & (y.abs() < 0.8)
    return (y < 0.6) & (y > 1.8 * x.abs() - 1)


def draw(
    count: int, size: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """``count`` images (count, 3, size, size) and classes (count, size, size)."""

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    axis = (torch.arange(size * _FINER) + 0.5) / (size * _FINER)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    images, classes = [], []
    for _ in range(count):
        slope = random(3, 1, 1) * rows + random(3, 1, 1) * columns
        image = 0.5 * random(3, 1, 1) + 0.25 * slope
        kinds = torch.zeros(rows.shape, dtype=torch.long)
        for _ in range(int(torch.randint(2, 5, (), generator=generator))):
            kind = int(torch.randint(1, len(CLASSES), (), generator=generator))
            radius = 0.12 + 0.18 * random(1)
            angle = 0.6 * random(1) - 0.3
            x, y = columns - random(1), rows - random(1)
            turned_x = (x * angle.cos() - y * angle.sin()) / radius
            turned_y = (x * angle.sin() + y * angle.cos()) / radius
            inside = _inside(kind, turned_x, turned_y)
            image = torch.where(inside, random(3, 1, 1), image)
            kinds[inside] = kind
        images.append(torch.nn.functional.avg_pool2d(image, _FINER))
        classes.append(kinds[_FINER // 2 :: _FINER, _FINER // 2 :: _FINER])
    return torch.stack(images), torch.stack(classes)
