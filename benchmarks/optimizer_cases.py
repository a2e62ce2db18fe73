"""A step of each optimizer over the parameters of real networks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from case import Case, Run
from models import build_shapes

# Tensors of the parameters' size that a step reads, and that it writes.
_OPTIMIZERS = {
    "SGD": (2, 1, torch.optim.SGD, {"lr": 0.01}),
    "SGD momentum": (3, 2, torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "Adam": (4, 3, torch.optim.Adam, {"lr": 1e-4}),
    "AdamW": (4, 3, torch.optim.AdamW, {"lr": 1e-4}),
    "AdamW fused": (4, 3, torch.optim.AdamW, {"lr": 1e-4, "fused": True}),
}


def optimizers(dtype: torch.dtype, models: list[str]) -> Iterator[Case]:
    for model in models:
        shapes = [tuple(p.shape) for p in build_shapes(model).parameters()]
        count = sum(torch.Size(shape).numel() for shape in shapes)
        for name, (reads, writes, kind, options) in _OPTIMIZERS.items():

            def make(device: str, shapes=shapes, kind=kind, options=options) -> Run:
                values = [
                    torch.nn.Parameter(torch.ones(shape, device=device, dtype=dtype))
                    for shape in shapes
                ]
                for value in values:
                    value.grad = torch.full_like(value, 1e-3)
                optimizer = kind(values, **options)
                other = torch.zeros((), device=device)

                # Something comes between two steps: they are not to be joined.
                def run() -> None:
                    optimizer.step()
                    other.zero_()

                return run

            title = f"{name}, {model}, {count / 1e6:.1f} M in {len(shapes)}"
            size = count * dtype.itemsize
            moved = {"read": reads * size, "written": writes * size}
            yield Case("optimizer", title, make, **moved)
