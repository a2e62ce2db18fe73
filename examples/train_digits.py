"""Trains a small convolutional network on scikit-learn's handwritten digits.

    python examples/train_digits.py --device opencl:0
    python examples/train_digits.py --device opencl:0 --compare-cpu --plot loss.png

The plot has the loss of every step, and the pictures that were read wrongly.
--compare-cpu trains the same network once more on the CPU, from the same weights
and in the same order. The two loss curves start out equal to within rounding, and
every step amplifies the difference a little, as it does between any two
libraries: the first steps are held to a tighter bound than the whole curve.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from sklearn.datasets import load_digits
from torch import nn

COMPARED_STEPS = 20
COMPARED_TOLERANCE = 1e-5
CURVE_TOLERANCE = 1e-2
REQUIRED_ACCURACY = 0.97


@dataclass
class Dataset:
    images: torch.Tensor
    labels: torch.Tensor

    def to(self, device: str) -> Dataset:
        return Dataset(self.images.to(device), self.labels.to(device))

    def __len__(self) -> int:
        return len(self.labels)


@dataclass
class Run:
    """One training: the loss of every step and what came of it."""

    device: str
    losses: list[float]
    accuracy: float
    seconds: float
    wrong: list[tuple[int, int]]  # places of pictures in the test set, and answers


def load(seed: int) -> tuple[Dataset, Dataset]:
    """Four fifths to train on, one fifth to test."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 8 - 1
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    return Dataset(images[train], labels[train]), Dataset(images[test], labels[test])


def network(dropout: float) -> nn.Module:
    """Smooth throughout, so that its loss depends smoothly on rounding: one
    element that falls on the other side of a ReLU's kink moves gradients by
    thousands of roundings, on any device.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(64 * 2 * 2, 10),
    )


def batches(count: int, size: int, epoch: int, seed: int) -> tuple[torch.Tensor, ...]:
    """The order of one epoch, the same on every device."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.randperm(count, generator=generator).split(size)


@torch.no_grad()
def answers(model: nn.Module, data: Dataset) -> list[int]:
    model.eval()
    return model(data.images).argmax(1).tolist()


def train(
    model: nn.Module,
    train_data: Dataset,
    test_data: Dataset,
    device: str,
    options: argparse.Namespace,
    progress: Progress,
) -> Run:
    model = copy.deepcopy(model).to(device)
    train_data, test_data = train_data.to(device), test_data.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    losses = []
    task = progress.add_task(device, total=options.epochs, note="")
    start = time.perf_counter()
    for epoch in range(options.epochs):
        model.train()
        of_epoch = []
        for chosen in batches(len(train_data), options.batch, epoch, options.seed):
            chosen = chosen.to(device)
            output = model(train_data.images[chosen])
            loss = nn.functional.cross_entropy(output, train_data.labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            of_epoch.append(loss.detach())
        # One transfer an epoch: reading each loss would wait for the device.
        losses += torch.stack(of_epoch).tolist()
        progress.update(task, advance=1, note=f"loss {losses[-1]:.4f}")
    found = answers(model, test_data)
    seconds = time.perf_counter() - start
    pairs = enumerate(zip(found, test_data.labels.tolist(), strict=True))
    wrong = [(place, answer) for place, (answer, label) in pairs if answer != label]
    final = 1 - len(wrong) / len(found)
    progress.update(task, note=f"test accuracy {final:.2%}, {seconds:.1f} s")
    return Run(device, losses, final, seconds, wrong)


def largest_difference(run: Run, other: Run, steps: int | None = None) -> float:
    """Of two loss curves, relative to the losses."""
    pairs = zip(run.losses[:steps], other.losses[:steps], strict=True)
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)


def plot(path: Path, runs: list[Run], test_data: Dataset) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(11, 4))
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    for run in runs:
        axes.semilogy(run.losses, label=run.device, alpha=0.7)
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    wrong = runs[0].wrong[:12]
    right.suptitle(f"{len(runs[0].wrong)} of {len(test_data)} read wrongly")
    for axes, (place, answer) in zip(right.subplots(3, 4).flat, wrong, strict=False):
        axes.imshow(test_data.images[place, 0], cmap="gray_r")
        axes.set_title(f"{test_data.labels[place]} read as {answer}", fontsize=8)
    for axes in right.axes:
        axes.axis("off")
    figure.savefig(path)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="opencl:0", help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument(
        "--dropout",
        type=float,
        default=0.0,
        help="probability; 0 by default, because devices draw different numbers",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare-cpu", action="store_true")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write the picture: .png, .pdf"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one epoch, to see that it runs"
    )
    parser.add_argument("--json", metavar="FILE", help="write the runs; - for stdout")
    options = parser.parse_args(arguments)
    if options.compare_cpu and options.dropout:
        parser.error("--compare-cpu needs --dropout 0")
    if options.plot and options.plot.suffix == ".ppm":
        parser.error("matplotlib writes no .ppm: use .png or .pdf")
    if options.quick:
        options.epochs = 1
    return options


def main() -> int:
    options = parse()
    torch.manual_seed(options.seed)
    model = network(options.dropout)
    train_data, test_data = load(options.seed)
    console = Console(stderr=options.json == "-")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    devices = [options.device] + (["cpu"] if options.compare_cpu else [])
    with Progress(*columns, console=console) as progress:
        runs = [
            train(model, train_data, test_data, device, options, progress)
            for device in devices
        ]
    passed = options.quick or all(run.accuracy > REQUIRED_ACCURACY for run in runs)
    for run in runs:
        console.print(f"{run.device}: test accuracy {run.accuracy:.2%}")
    if options.compare_cpu:
        early = largest_difference(*runs, steps=COMPARED_STEPS)
        whole = largest_difference(*runs)
        console.print(
            f"largest relative difference of the loss: {early:.1e} in the first "
            f"{COMPARED_STEPS} steps (allowed: {COMPARED_TOLERANCE:.0e}), {whole:.1e} "
            f"in all {len(runs[0].losses)} (allowed: {CURVE_TOLERANCE:.0e})"
        )
        passed = passed and early <= COMPARED_TOLERANCE and whole <= CURVE_TOLERANCE
    if options.plot:
        plot(options.plot, runs, test_data)
    if options.json:
        text = json.dumps([asdict(run) for run in runs], indent=1)
        print(text) if options.json == "-" else Path(options.json).write_text(text)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
