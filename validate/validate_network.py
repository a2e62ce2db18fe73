"""Classifies pictures, or checks a training step, on one device.

    python validate/validate_network.py --model resnet18 --device opencl:0 \\
        --weights DEFAULT validate/images/*.ppm
prints a line `file,class index,class name` for each picture, the same on every
device.

    python validate/validate_network.py --model googlenet --device opencl:0 --check
runs forward, loss, backward and an optimizer step on the device and on the CPU,
compares every tensor with a float64 reference, and exits with 1 when one is
wrong or an op fell back to the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from networks import models
from networks.images import classify
from networks.problem import make_problem
from networks.report import print_result, wide_console, write_json
from networks.step import check
from rich.console import Console


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="*", type=Path, help="pictures to classify")
    parser.add_argument("--model", default="resnet18", help="as torchvision names it")
    parser.add_argument("--device", default="opencl:0", help="default: %(default)s")
    parser.add_argument(
        "--weights",
        default="none",
        metavar="none|DEFAULT|FILE",
        help="seeded random weights (default), torchvision's trained ones, or a file "
        "with a state_dict",
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--check", action="store_true", help="check a training step")
    parser.add_argument(
        "--batch", type=int, default=2, help="of --check, without images"
    )
    parser.add_argument("--image-size", type=int, default=224, help="of --check")
    parser.add_argument("--optimizer", choices=models.OPTIMIZERS, default="sgd")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - for stdout")
    options = parser.parse_args(arguments)
    if not options.images and not options.check:
        parser.error("give pictures to classify, or --check")
    for path in options.images:
        if not path.is_file():
            parser.error(f"no such picture: {path}")
    if options.check and options.image_size < models.smallest_image(options.model):
        parser.error(
            f"{options.model} needs --image-size of at least "
            f"{models.smallest_image(options.model)}"
        )
    return options


def classify_command(options: argparse.Namespace, console: Console) -> int:
    model = models.build(options.model, options.weights, options.seed)
    with console.status(f"{options.model} on {options.device}"):
        predictions = classify(
            model, options.images, models.pretrained(options.model), options.device
        )
    if options.json != "-":
        print(*predictions, sep="\n")
    if options.json:
        text = json.dumps([vars(prediction) for prediction in predictions], indent=1)
        print(text) if options.json == "-" else Path(options.json).write_text(
            text + "\n"
        )
    return 0


def check_command(options: argparse.Namespace, console: Console) -> int:
    problem, dropouts = make_problem(
        options.model,
        weights=options.weights,
        images=options.images,
        batch=options.batch,
        image_size=options.image_size,
        optimizer=options.optimizer,
        seed=options.seed,
    )
    with console.status("") as status:

        def progress(text: str) -> None:
            status.update(f"{options.model}: {text}")

        result = check(problem, options.device, progress=progress)
    print_result(wide_console(stderr=options.json == "-"), result, dropouts)
    if options.json:
        write_json(options.json, [result])
    return 0 if result.passed else 1


def main() -> int:
    options = parse()
    console = Console(stderr=True)
    try:
        torch.empty(1, device=options.device)
        command = check_command if options.check else classify_command
        return command(options, console)
    except (RuntimeError, ValueError, OSError) as error:
        console.print(f"[red]{type(error).__name__}[/red]: ", end="")
        console.print(str(error), markup=False, soft_wrap=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
