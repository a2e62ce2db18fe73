"""Says which kernels and ops a network's time goes into.

    python benchmarks/profile_network.py --model resnet50 --device opencl:0
    python benchmarks/profile_network.py --model vgg16 --mode infer --shapes
    python benchmarks/profile_network.py --model alexnet --json -

Kernels are measured in one step, ops in another, because finding out which op
launched a kernel slows the host down. GFLOP/s of an op are those of its
definition, GB/s count every operand once.
"""

from __future__ import annotations

import argparse
import sys

import measure
import torch
from networks import MODES, Place, step_of


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = measure.parser_of(__doc__)
    parser.add_argument("--model", default="resnet50", help="default: %(default)s")
    parser.add_argument("--mode", choices=MODES, default="train")
    parser.add_argument("--device", default="opencl:0", help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument(
        "--memory-format", choices=measure.LAYOUTS, default="contiguous"
    )
    parser.add_argument("--dtype", choices=measure.DTYPES, default="float32")
    parser.add_argument("--autocast", choices=("float16", "bfloat16"))
    parser.add_argument("--shapes", action="store_true", help="ops by their shapes")
    parser.add_argument("--rows", type=int, default=25, help="of a table")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - for stdout")
    parser.add_argument("--quick", action="store_true", help="small pictures")
    options = parser.parse_args(arguments)
    if torch.device(options.device).type != "opencl":
        parser.error("torch.opencl.profile measures opencl devices")
    if options.quick:
        options.batch, options.image_size = 2, 64
    return options


def main() -> int:
    options = parse()
    console = measure.console_of(options)
    place = Place(options.device, options.memory_format)
    step = step_of(options.model, options.mode, place, options)
    with console.status(f"{options.model} on {options.device}"):
        for _ in range(2):
            step()
        wall = measure.seconds_of(step, options.device)
        with torch.opencl.profile() as kernels:
            step()
        with torch.opencl.profile(True, options.shapes) as ops:
            step()
    for text in (
        kernels.table(rows=options.rows),
        ops.table("op", rows=options.rows),
        f"{options.model} {options.mode} on {options.device}: {wall * 1e3:.1f} ms "
        f"without profiling, {kernels.launches} launches, kernels take "
        f"{kernels.device_seconds / wall:.0%} of it",
    ):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    if options.json:
        settings = ("model", "mode", "device", "batch", "image_size", "memory_format")
        record = {
            "benchmark": "profile_network",
            "machine": measure.describe_machine([options.device]),
            "settings": {name: getattr(options, name) for name in settings},
            "seconds": wall,
            "kernels": kernels.as_dict()["kernels"],
            "ops": ops.as_dict()["ops"],
        }
        measure.write_json(options.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
