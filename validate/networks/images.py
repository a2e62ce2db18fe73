"""Pictures for a network, and what it sees in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from networks.models import Pretrained
from PIL import Image


@dataclass(frozen=True)
class Prediction:
    file: str
    index: int
    name: str
    probability: float

    def __str__(self) -> str:
        return f"{self.file},{self.index},{self.name}"


def load_batch(paths: list[Path], pretrained: Pretrained) -> torch.Tensor:
    pictures = [Image.open(path).convert("RGB") for path in paths]
    return torch.stack([pretrained.transform(picture) for picture in pictures])


def classify(
    model: torch.nn.Module, paths: list[Path], pretrained: Pretrained, device: str
) -> list[Prediction]:
    batch = load_batch(paths, pretrained).to(device)
    with torch.no_grad():
        probabilities = model.to(device).eval()(batch).softmax(dim=1).cpu()
    best = probabilities.max(dim=1)
    return [
        Prediction(path.name, index, pretrained.categories[index], probability)
        for path, index, probability in zip(
            paths, best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]
