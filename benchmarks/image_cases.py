"""What models do to images between their layers: resampling, padding, mirroring,
shuffled channels. Each output is written once, and each input read."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from case import Case, random, size_of
from measure import LAYOUTS
from memory_cases import backward, simple
from torch.nn import functional as F


def images(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    batch = max(1, 8 // scale)
    shape = (batch, 64, 112, 112)
    count = size_of(shape)
    padded = size_of((batch, 64, 114, 114))
    grid = torch.rand(batch, 112, 112, 2, generator=torch.Generator().manual_seed(0))

    def resampled(mode: str, factor: float):
        return lambda x: F.interpolate(x, scale_factor=factor, mode=mode)

    for layout in LAYOUTS:
        for name, results, function, has_gradient in (
            ("nearest x2", 4 * count, resampled("nearest", 2), True),
            ("bilinear x2", 4 * count, resampled("bilinear", 2), True),
            ("bicubic x2", 4 * count, resampled("bicubic", 2), True),
            ("bilinear /2", count // 4, resampled("bilinear", 0.5), True),
            ("reflect 1", padded, lambda x: F.pad(x, (1,) * 4, mode="reflect"), True),
            ("pad 1", padded, lambda x: F.pad(x, (1,) * 4), True),
            ("flip left to right", count, lambda x: x.flip(3), False),
            ("flip top to bottom", count, lambda x: x.flip(2), False),
            ("channel_shuffle 8", count, lambda x: F.channel_shuffle(x, 8), True),
        ):
            title = f"{name} 64x112x112 {layout}"
            arguments = (function, dtype, layout)
            yield simple("image", title, [shape], count, results, *arguments)
            if has_gradient:
                yield backward("image", title, [shape], results, count, *arguments)

        def make(device: str, layout: str = layout):
            x = random(shape, device, dtype, LAYOUTS[layout])
            places = (2 * grid - 1).to(device, dtype)
            return lambda: F.grid_sample(x, places, align_corners=False)

        moved = {
            "read": (count + grid.numel()) * dtype.itemsize,
            "written": count * dtype.itemsize,
        }
        yield Case("image", f"grid_sample 64x112x112 {layout}", make, **moved)
