"""Times a locally connected layer against conv2d and against patches.

    python benchmarks/local_conv.py
    python benchmarks/local_conv.py --batch 1 --size 56 --channels 8 32 --padding 0
    python benchmarks/local_conv.py --only forward --devices opencl:1 cpu --json -

What is timed is the forward pass and all gradients, in turns: local_conv2d and
conv2d of the same shape on each OpenCL device, and torch's way on its CPU, unfold
and a product of matrices for each position. The two columns at the right are how
much longer local_conv2d takes than conv2d on that device, and how many times as
fast it is as unfold on the last of --devices.
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
from torch_opencl.nn.functional import local_conv2d, local_conv2d_size


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--size", type=int, default=28, help="rows and columns")
    parser.add_argument(
        "--channels", type=int, nargs=2, default=(16, 16), metavar=("IN", "OUT")
    )
    parser.add_argument("--kernel", type=int, default=3)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--padding", type=int, default=1)
    parser.add_argument("--dilation", type=int, default=1)
    parser.add_argument("--dtype", choices=measure.DTYPES, default="float32")
    parser.add_argument("--only", choices=("forward", "input", "weight"))
    parser.add_argument("--seconds", type=float, default=10, help="of measuring")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds = 1
    return options


def unfold_and_bmm(x, weight, bias, stride, padding, dilation):
    """Patches, then one matrix product for each position."""
    columns = F.unfold(x, weight.shape[2:4], dilation, padding, stride)
    matrices = weight.flatten(4).flatten(1, 3)
    out = torch.bmm(columns.permute(2, 0, 1), matrices.permute(2, 1, 0))
    return out.permute(1, 2, 0).reshape(-1, *bias.shape) + bias


def conv2d(x, weight, bias, stride, padding, dilation):
    return F.conv2d(x, weight, bias, stride, padding, dilation)


def make(
    function: Callable, device: str, options: argparse.Namespace
) -> Callable[[], object]:
    """The function's pass, forward and backward or a part of it, on a device."""
    dtype = measure.DTYPES[options.dtype]
    generator = torch.Generator().manual_seed(0)
    channels, out_channels = options.channels
    steps = ([options.stride] * 2, [options.padding] * 2, [options.dilation] * 2)
    out = local_conv2d_size([options.size] * 2, [options.kernel] * 2, *steps)
    is_shared = function is conv2d

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    x = random(options.batch, channels, options.size, options.size)
    kernel_size = (options.kernel, options.kernel)
    weight = random(out_channels, channels, *kernel_size, *(() if is_shared else out))
    bias = random(out_channels, *(() if is_shared else out))
    gradient = random(options.batch, out_channels, *out)
    wanted = {None: (x, weight, bias), "input": (x,), "weight": (weight,)}
    leaves = wanted.get(options.only, ())
    for leaf in leaves:
        leaf.requires_grad_()

    def run():
        result = function(x, weight, bias, *steps)
        return torch.autograd.grad(result, leaves, gradient) if leaves else result

    return run


def main() -> int:
    options = parse()
    measure.apply_common_options(options)
    *devices, reference = options.devices
    functions, places = {}, {}
    for device in devices:
        for function in (local_conv2d, conv2d):
            name = f"{function.__name__} {device}"
            functions[name] = make(function, device, options)
            places[name] = device
    for function in (unfold_and_bmm, conv2d):
        name = f"{function.__name__} {reference}"
        functions[name] = make(function, reference, options)
        places[name] = reference
    console = measure.console_of(options)
    with measure.progress_bar(console) as bar:
        task = bar.add_task("measuring", total=None, doing="")
        times = measure.interleave(
            functions,
            seconds=options.seconds,
            places=places,
            progress=lambda text: bar.update(task, doing=text),
        )
    patches = times[f"unfold_and_bmm {reference}"]
    table = Table()
    for heading in ("", "ms", "conv2d x", f"times unfold on {reference}"):
        table.add_column(heading, justify="right" if heading else "left")
    record = {"machine": measure.describe_machine(options.devices), "results": {}}
    for name, found in times.items():
        shared = times[f"conv2d {places[name]}"]
        slower = measure.ratio(shared, found)
        faster = measure.ratio(found, patches)
        milliseconds = statistics.median(found) * 1e3
        table.add_row(name, f"{milliseconds:.2f}", f"{slower:.2f}", f"{faster:.1f}")
        record["results"][name] = {
            "milliseconds": milliseconds,
            "times_of_conv2d": slower,
            "times_as_fast_as_unfold": faster,
        }
    console.print(table)
    if options.json:
        measure.write_json(options.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
