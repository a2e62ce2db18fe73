"""What the examples share: their options, and pictures as files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch


def figure(name: str) -> Path:
    """The name of a file that matplotlib can write."""
    if name.endswith(".ppm"):
        raise argparse.ArgumentTypeError("matplotlib writes no .ppm: use .png or .pdf")
    return Path(name)


def options(
    description: str, steps: int, file: Callable[[str], Path] = Path
) -> argparse.ArgumentParser:
    """A parser with the options that every example has; `file` reads --picture."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="opencl", help="default: %(default)s")
    parser.add_argument(
        "--steps", type=int, default=steps, help="of training; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--picture",
        type=file,
        metavar="FILE",
        help="write the picture, by its ending: .png, .pdf and the like"
        + (", or .ppm" if file is Path else ""),
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few steps, to see that it runs"
    )
    return parser


def report(name: str, losses: list[torch.Tensor]) -> None:
    """Prints the loss at the begin and at the end, and reads it from the device."""
    values = torch.stack(losses).cpu()
    few = max(1, len(values) // 10)
    first, last = values[:few].mean(), values[-few:].mean()
    print(f"{name}: {first:.4f} -> {last:.4f} in {len(values)} steps")


def enlarge(images: torch.Tensor, factor: int) -> torch.Tensor:
    """Every pixel as a square, so that it can be seen."""
    return images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)


def grid(rows: list[list[torch.Tensor]], gap: int = 4) -> torch.Tensor:
    """Images (3, height, width) of one size as one image, between white lines."""

    def join(parts: list[torch.Tensor], dim: int) -> torch.Tensor:
        shape = list(parts[0].shape)
        shape[dim] = gap
        between = torch.ones(shape)
        joined = [between]
        for part in parts:
            joined += [part, between]
        return torch.cat(joined, dim)

    return join([join([image.cpu() for image in row], 2) for row in rows], 1)


def save(path: Path, image: torch.Tensor) -> None:
    """An image (3, height, width) of values from 0 to 1."""
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous()
    if path.suffix == ".ppm":
        height, width, _ = pixels.shape
        head = f"P6\n{width} {height}\n255\n".encode()
        path.write_bytes(head + pixels.numpy().tobytes())
    else:
        from matplotlib import image as files

        files.imsave(path, pixels.numpy())
    print(f"wrote {path}")


def load(path: Path) -> torch.Tensor:
    """An image file as (3, height, width), values from 0 to 1."""
    import numpy
    from PIL import Image

    pixels = numpy.array(Image.open(path).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
