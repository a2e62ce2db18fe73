"""Draws the pictures of this directory; they are dedicated to the public domain
(CC0 1.0).

    python validate/images/make_images.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

SIZE = 64


def grid() -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each pixel's centre, from -1 to 1."""
    axis = (np.arange(SIZE) + 0.5) / SIZE * 2 - 1
    return np.meshgrid(axis, axis, indexing="ij")


def colour(*channels: float) -> np.ndarray:
    return np.array(channels, dtype=float)


def disc(y: float, x: float, radius: float) -> np.ndarray:
    """Coverage of a disc with a soft edge, to broadcast against colours."""
    rows, columns = grid()
    distance = np.hypot(rows - y, columns - x)
    return np.clip((radius - distance) * SIZE / 2, 0, 1)[..., None]


def over(canvas: np.ndarray, coverage: np.ndarray, paint: np.ndarray) -> np.ndarray:
    return canvas * (1 - coverage) + paint * coverage


def sphere() -> np.ndarray:
    """An orange ball under a lamp, on a lawn."""
    rows, columns = grid()
    canvas = colour(60, 120, 50) * (0.75 + 0.25 * rows[..., None])
    canvas = over(canvas, 0.5 * disc(0.62, 0.08, 0.55), colour(10, 30, 10))
    light = 1.1 - 0.8 * np.hypot(rows + 0.25, columns + 0.25)
    ball = np.clip(light, 0.15, 1)[..., None] * colour(255, 140, 20)
    canvas = over(canvas, disc(0.05, 0.0, 0.62), ball)
    return over(canvas, 0.8 * disc(-0.25, -0.25, 0.09), colour(255, 240, 220))


def lights() -> np.ndarray:
    """Three lamps in a dark case before a pale sky."""
    rows, columns = grid()
    canvas = colour(150, 190, 230) + 40 * rows[..., None]
    case = (abs(columns) < 0.34) & (abs(rows) < 0.92)
    canvas = over(canvas, case[..., None], colour(28, 28, 30))
    lamps = ((-0.58, (250, 40, 30)), (0.0, (120, 90, 10)), (0.58, (10, 80, 40)))
    for y, paint in lamps:
        canvas = over(canvas, disc(y, 0.0, 0.25), colour(*paint))
    return over(canvas, 0.7 * disc(-0.64, -0.07, 0.09), colour(255, 200, 190))


def stripes() -> np.ndarray:
    """Wavy black and white bands."""
    rows, columns = grid()
    bands = np.sin(14 * (columns + 0.18 * np.sin(4 * rows)))
    value = 130 + 110 * np.tanh(4 * bands)
    return value[..., None] * colour(1.0, 0.97, 0.9)


def write(path: Path, pixels: np.ndarray) -> None:
    """Plain PPM (P3): text, so that a change of it can be read."""
    values = np.clip(np.rint(pixels), 0, 255).astype(int).reshape(SIZE, -1)
    rows = "\n".join(" ".join(map(str, row)) for row in values)
    path.write_text(f"P3\n{SIZE} {SIZE}\n255\n{rows}\n")


def main() -> None:
    directory = Path(__file__).parent
    for draw in (sphere, lights, stripes):
        write(directory / f"{draw.__name__}.ppm", draw())


if __name__ == "__main__":
    main()
