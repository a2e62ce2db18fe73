"""Compiles a network's kernels and measures its algorithms, for later processes.

    python -m torch_opencl.tune resnet50 --input 16 3 224 224
    python -m torch_opencl.tune resnet50 --train --memory-format channels_last
    python -m torch_opencl.tune my_package.networks:build --input 8 1 28 28 --json
    python -m torch_opencl.tune --export my-card.json

A network runs once in evaluation and, with --train, forward and backward in
training, with torch.backends.opencl.benchmark on. Programs and choices go to the
cache's directory. Choices are used where benchmark is on; the programs always.

--export writes the choices into a file. TORCH_OPENCL_TUNING=my-card.json uses them
everywhere, and the project is glad to have it: then all owners of that card do.
Without a network, three are trained with 16 images.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._pytree import tree_leaves

from ._tuning import entry_of, with_finite_seconds

_NETWORKS = ("resnet50", "mobilenet_v2", "vit_b_16")
_FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
_DTYPES = ("float32", "float16", "bfloat16")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_opencl.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "networks",
        nargs="*",
        metavar="network",
        help="a torchvision model, or module:callable that makes a module; "
        f"default: training of {', '.join(_NETWORKS)}",
    )
    parser.add_argument(
        "--input",
        type=int,
        nargs="+",
        metavar="SIZE",
        help="shape; default: 1 3 224 224, and 16 images without a network",
    )
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--train", action="store_true", help="training steps, too")
    parser.add_argument("--memory-format", choices=_FORMATS, default="contiguous")
    parser.add_argument("--dtype", choices=_DTYPES, default="float32")
    parser.add_argument("--json", action="store_true", help="the choices, as JSON")
    parser.add_argument("--export", type=Path, metavar="FILE", help="keep the choices")
    options = parser.parse_args(arguments)
    images = 1 if options.networks else 16
    options.input = options.input or [images, 3, 224, 224]
    options.train = options.train or not options.networks
    options.networks = options.networks or list(_NETWORKS)
    return options


def _build(name: str) -> torch.nn.Module:
    if ":" in name:
        module, function = name.split(":", 1)
        return getattr(importlib.import_module(module), function)()
    import torchvision

    return torchvision.models.get_model(name, weights=None)


def _run(network: torch.nn.Module, x: torch.Tensor, train: bool) -> None:
    network.train(train)
    with torch.set_grad_enabled(train):
        outputs = network(x)
    if train:
        losses = [
            value.float().sum()
            for value in tree_leaves(outputs)
            if torch.is_tensor(value) and value.requires_grad
        ]
        torch.stack(losses).sum().backward()
    torch.opencl.synchronize(x.device)


def tune(
    network: torch.nn.Module, x: torch.Tensor, train: bool = False
) -> list[dict[str, object]]:
    """Measures what ``network`` needs for inputs like ``x``.

    Args:
        network: a module on an OpenCL device; left in training mode with ``train``.
        x: its input, on the same device.
        train: run forward and backward of a training step as well.

    Returns:
        The choices that were made, as of ``torch.backends.opencl.choices()``.
    """
    before = len(torch.backends.opencl.choices())
    with torch.backends.opencl.flags(benchmark=True):
        for mode in (False, True) if train else (False,):
            _run(network, x, mode)
    return torch.backends.opencl.choices()[before:]


def _table(choices: list[dict]) -> Table:
    table = Table(box=None)
    table.add_column("problem", overflow="fold")
    table.add_column("fastest")
    table.add_column("ms")
    for choice in choices:
        times = ", ".join(
            f"{name} {1e3 * seconds:.3g}" for name, seconds in choice["seconds"].items()
        )
        table.add_row(choice["problem"], choice["fastest"], times or "known")
    return table


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    options = _parse(arguments)
    console = Console(stderr=options.json)
    device = torch.device(options.device)
    target = {
        "dtype": getattr(torch, options.dtype),
        "memory_format": _FORMATS[options.memory_format],
    }
    x = torch.randn(options.input).to(device, **target)
    choices = []
    for name in options.networks:
        network = _build(name).to(device, **target)
        with console.status(f"{name} on {device}"):
            choices += tune(network, x, options.train)
    if options.export is not None:
        entry = entry_of(x.device, choices)
        options.export.write_text(json.dumps(entry, indent=2) + "\n")
    if options.json:
        print(json.dumps(list(map(with_finite_seconds, choices)), indent=2))
        return 0
    measured = sum(bool(choice["seconds"]) for choice in choices)
    built = torch.opencl.program_cache_stats(device)["built"]
    console.print(_table(choices))
    console.print(
        f"{len(choices)} problems, {measured} of them measured now; "
        f"{built} programs compiled"
    )
    return 0


if __name__ == "__main__":
    import torch_opencl  # noqa: F401  # gives torch its device, installed or not

    sys.exit(main())
