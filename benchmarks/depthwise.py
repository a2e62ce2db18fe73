"""Times depthwise convolutions against patches, on one and the same device.

    python benchmarks/depthwise.py
    python benchmarks/depthwise.py --layout channels_last --shape 96 112 2 --shape 960 7 1
    python benchmarks/depthwise.py --devices opencl:1 cpu --multiplier 2 --json -

Patches are what was there before: unfold, and a product of matrices for each
channel. Backward is both gradients. The columns at the right are how many times
as fast the convolution is as patches on that device and as the convolution on
the last of --devices, and what it moves at least (image and output once) as a
share of the bandwidth that copying the image reaches in the same turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import measure
import torch
import torch.nn.functional as F
from rich.table import Table

# mobilenet_v2's largest, and smaller ones: channels, rows and columns, stride.
SHAPES = [(32, 112, 1), (96, 112, 2), (144, 56, 1), (192, 28, 1), (384, 14, 1)]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    parser.add_argument(
        "--shape",
        type=int,
        nargs=3,
        action="append",
        metavar=("CHANNELS", "SIZE", "STRIDE"),
        help="default: five of mobilenet_v2's",
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--kernel", type=int, default=3)
    parser.add_argument("--multiplier", type=int, default=1, help="outputs a channel")
    parser.add_argument("--layout", choices=measure.LAYOUTS, default="contiguous")
    parser.add_argument("--seconds", type=float, default=4, help="of a shape and pass")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds = 0.5
    return options


def depthwise(x: torch.Tensor, weight: torch.Tensor, stride: int) -> torch.Tensor:
    return F.conv2d(x, weight, None, stride, weight.size(2) // 2, 1, x.size(1))


def patches(x: torch.Tensor, weight: torch.Tensor, stride: int) -> torch.Tensor:
    """Patches, then one matrix product for each channel and image."""
    kernel = weight.size(2)
    columns = F.unfold(x, kernel, 1, kernel // 2, stride)
    columns = columns.unflatten(1, (x.size(1), kernel * kernel))
    matrices = weight.reshape(x.size(1), -1, kernel * kernel)
    side = (x.size(2) - 1) // stride + 1
    return torch.matmul(matrices, columns).flatten(1, 2).unflatten(2, (side, side))


def make(
    function: Callable,
    device: str,
    shape: tuple[int, int, int],
    is_backward: bool,
    options: argparse.Namespace,
) -> Callable[[], object]:
    channels, size, stride = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(options.batch, channels, size, size, generator=generator)
    x = x.contiguous(memory_format=measure.LAYOUTS[options.layout]).to(device)
    kernel_size = (options.kernel, options.kernel)
    weight = torch.randn(
        channels * options.multiplier, 1, *kernel_size, generator=generator
    )
    weight = weight.to(device)
    if not is_backward:
        return lambda: function(x, weight, stride)
    leaves = (x.requires_grad_(), weight.requires_grad_())
    out = function(*leaves, stride)
    gradient = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, leaves, gradient, retain_graph=True)


def main() -> int:
    options = parse()
    measure.apply_common_options(options)
    console = measure.console_of(options)
    table = Table()
    headings = ("", "pass", "device", "ms", "patches ms", "x patches")
    for heading in (*headings, f"x {options.devices[-1]}", "of copy"):
        table.add_column(heading, justify="left" if len(table.columns) < 3 else "right")
    rows = []
    with measure.progress_bar(console) as bar:
        shapes = options.shape or SHAPES
        task = bar.add_task("measuring", total=2 * len(shapes), doing="")
        for shape in shapes:
            for is_backward in (False, True):
                rows += measure_shape(tuple(shape), is_backward, options)
                bar.advance(task)
    for row in rows:
        numbers = (f"{row['milliseconds']:.2f}", f"{row['patches_milliseconds']:.1f}")
        ratios = (f"{row['times_patches']:.1f}", f"{row['times_last']:.2f}")
        share = f"{row['of_copy']:.0%}" if row["of_copy"] else ""
        cells = (row["shape"], row["pass"], row["device"])
        table.add_row(*cells, *numbers, *ratios, share)
    console.print(table)
    if options.json:
        machine = measure.describe_machine(options.devices)
        measure.write_json(options.json, {"machine": machine, "results": rows})
    return 0


def measure_shape(
    shape: tuple[int, int, int], is_backward: bool, options: argparse.Namespace
) -> list[dict]:
    """A row for each device."""
    functions, places = {}, {}
    for device in options.devices:
        image = torch.empty(options.batch, shape[0], shape[1], shape[1], device=device)
        functions[f"copy {device}"] = image.clone
        for function in (depthwise, patches):
            name = f"{function.__name__} {device}"
            functions[name] = make(function, device, shape, is_backward, options)
        for name in list(functions)[-3:]:
            places[name] = device
    times = measure.interleave(functions, seconds=options.seconds, places=places)
    last = times[f"depthwise {options.devices[-1]}"]
    channels, size, stride = shape
    outputs = options.multiplier / stride**2
    rows = []
    for device in options.devices:
        found, before = times[f"depthwise {device}"], times[f"patches {device}"]
        rows.append(
            {
                "shape": f"{channels} x {size} x {size}, stride {stride}",
                "pass": "backward" if is_backward else "forward",
                "device": device,
                "milliseconds": statistics.median(found) * 1e3,
                "patches_milliseconds": statistics.median(before) * 1e3,
                "times_patches": measure.ratio(found, before),
                "times_last": measure.ratio(found, last),
                # Copying reads and writes the image once.
                "of_copy": None
                if is_backward
                else measure.ratio(found, times[f"copy {device}"]) * (1 + outputs) / 2,
            }
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
