"""Times a 4x super-resolution network, and says what its layouts cost.

    python benchmarks/superres.py
    python benchmarks/superres.py --devices opencl:1 --dtypes float16 --size 180 320

The network is of EDSR's kind: 3x3 convolutions of 64 channels, two residual
blocks, and two steps of convolution and pixel_shuffle. Layout-changing ops are
those that only move values to other places: copies and clones, but not
pixel_shuffle, which the network asks for. What convolutions arrange inside
their own kernels is theirs. Exits with 1 where layout-changing ops take more
than 3 % of the kernels' time, or any runs although the picture is channels_last.
"""

from __future__ import annotations

import argparse
import sys

import measure
import torch
from torch import nn

_MOST = 0.03
_MOVES = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy")


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.LeakyReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class SuperResolution(nn.Module):
    def __init__(self, channels: int = 64, blocks: int = 2) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(
            *(Residual(channels) for _ in range(blocks)),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        self.tail = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(channels // 2, channels, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(channels // 4, 3, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x)
        return self.tail(x + self.body(x))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    parser.add_argument("--dtypes", nargs="+", choices=measure.DTYPES)
    parser.add_argument(
        "--size", nargs=2, type=int, default=(180, 320), metavar=("HEIGHT", "WIDTH")
    )
    parser.add_argument(
        "--seconds", type=float, default=5, help="of measuring a dtype and layout"
    )
    options = parser.parse_args(arguments)
    options.dtypes = options.dtypes or ["float32", "float16"]
    if options.quick:
        options.size, options.seconds = (24, 40), 1
    return options


def step_of(device: str, dtype: str, layout: str, size: tuple[int, int]):
    torch.manual_seed(0)
    kind, format = measure.DTYPES[dtype], measure.LAYOUTS[layout]
    network = SuperResolution().to(device, kind, memory_format=format).eval()
    picture = torch.randn(1, 3, *size).to(device, kind).contiguous(memory_format=format)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return network(picture)

    return step


def moves_of(step) -> tuple[float, int, torch.opencl.profile]:
    """Share of layout-changing ops in the kernels' time, and how many ran."""
    with torch.opencl.profile(by_op=True) as profile:
        step()
    moves = [entry for entry in profile.ops if entry.name.startswith(_MOVES)]
    seconds = sum(entry.seconds for entry in moves)
    return (
        seconds / profile.device_seconds,
        sum(entry.launches for entry in moves),
        profile,
    )


def main() -> int:
    options = parse()
    console = measure.console_of(options)
    measure.apply_common_options(options)
    rows = []
    failed = False
    for dtype in options.dtypes:
        for layout in measure.LAYOUTS:
            steps = {
                device: step_of(device, dtype, layout, options.size)
                for device in options.devices
            }
            for step in steps.values():
                step()
            times = measure.interleave(steps, seconds=options.seconds)
            for device, found in times.items():
                row = {"dtype": dtype, "layout": layout, "device": device}
                row["seconds"] = sorted(found)[len(found) // 2]
                row["ratio"] = measure.ratio(found, times[options.devices[-1]])
                text = f"{dtype} {layout} {device}: {row['seconds'] * 1e3:.1f} ms, "
                text += f"{row['ratio']:.2f} times as fast as {options.devices[-1]}"
                if torch.device(device).type == "opencl":
                    share, launches, profile = moves_of(steps[device])
                    row |= {"moves": share, "launches": launches}
                    text += f"; layout changes {share:.1%}, {launches} launches"
                    shuffle = sum(
                        entry.seconds
                        for entry in profile.ops
                        if entry.name.startswith("aten::pixel_shuffle")
                    )
                    row["pixel_shuffle"] = shuffle / profile.device_seconds
                    text += f"; pixel_shuffle {row['pixel_shuffle']:.1%}"
                    failed |= share > _MOST
                    failed |= layout == "channels_last" and launches > 0
                console.print(text, markup=False, soft_wrap=True)
                rows.append(row)
    if options.json:
        record = {
            "benchmark": "superres",
            "machine": measure.describe_machine(options.devices),
            "size": list(options.size),
            "rows": rows,
        }
        measure.write_json(options.json, record)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
