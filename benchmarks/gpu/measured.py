"""Predicted beside measured, where there is a GPU."""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from . import tools


@dataclass
class Measured:
    """Milliseconds of a step; `predicted` is None without a card of that name."""

    network: str
    mode: str
    batch: int
    launches: int
    measured: float
    on_device: float
    predicted: float | None


def measure(device: str, network: str, mode: str, quick: bool) -> dict[str, Any]:
    """A network of zoo.py on a device: its median step, and what kernels take.

    Args:
        quick: a batch of 1 and few steps, which shows that it runs.
    """
    import torch

    from . import zoo

    wanted = zoo.ALL[network]
    batch = 1 if quick else zoo.batch_of(network, mode)
    with torch.opencl.device(device), torch.device(zoo.DEVICE):
        model = wanted.build()
        model.train(mode == "train")
        step = functools.partial(wanted.step_of(model, mode), wanted.inputs(batch))

        import measure as timing

        rounds = 1 if quick else 10
        for _ in range(1 if quick else 3):
            step()
        times = [timing.seconds_of(step, device) for _ in range(rounds)]
        with torch.opencl.profile() as profile:
            step()
    return {
        "batch": batch,
        "launches": profile.launches,
        "measured": statistics.median(times) * 1e3,
        "on_device": profile.device_seconds * 1e3,
    }


def real_gpus() -> list[str]:
    import torch

    return [
        f"opencl:{index}"
        for index in range(torch.opencl.device_count())
        if torch.opencl.get_device_properties(index).is_gpu
    ]


def card_of(name: str) -> str | None:
    """The card of cards.py that a device's name names, the longest first."""
    from .cards import CARDS

    plain = name.lower().replace(" ", "")
    for card in sorted(CARDS, key=len, reverse=True):
        if card.lower().replace(" ", "") in plain:
            return card
    return None


def compare(
    device: str, card: str | None, networks: list[str], quick: bool, predicted
) -> list[Measured]:
    """
    Args:
        predicted: milliseconds by (card, network, mode), of the report.
    """
    from . import zoo

    rows = []
    for network in networks:
        for mode in zoo.MODES:
            if not zoo.batch_of(network, mode):
                continue
            found = measure(device, network, mode, quick)
            expected = None if quick else predicted.get((card, network, mode))
            rows.append(Measured(network, mode, **found, predicted=expected))
            show(rows[-1])
    return rows


def show(row: Measured) -> None:
    expected = "no prediction"
    if row.predicted is not None:
        expected = f"predicted {row.predicted:.1f} ms"
    print(
        f"{row.network} {row.mode}, batch {row.batch}: {row.measured:.1f} ms, kernels "
        f"{row.on_device:.1f} ms in {row.launches} launches; {expected}",
        flush=True,
    )


def predictions(record: dict[str, Any]) -> dict[tuple[str, str, str], float]:
    return {
        (card, step["network"], step["mode"]): milliseconds
        for step in record.get("steps", [])
        for card, milliseconds in step["milliseconds"].items()
    }


def add_real_gpu(record: dict[str, Any]) -> None:
    """Measures on the first GPU there is, into the report."""
    import torch

    from . import zoo

    for device in real_gpus()[:1]:
        name = torch.opencl.get_device_name(device)
        card = card_of(name)
        rows = compare(
            device, card, [*zoo.NETWORKS, *zoo.SINGLE], False, predictions(record)
        )
        record["measured"] = {
            "device": name,
            "card": card,
            "rows": [asdict(row) for row in rows],
        }


def main(options: argparse.Namespace) -> int:
    import torch

    from . import zoo

    device = options.measure or next(iter(real_gpus()), None)
    if device is None:
        raise SystemExit("--card without --measure needs a GPU, and there is none")
    report = tools.HERE.parents[1] / "report" / "gpu.json"
    record = json.loads(report.read_text()) if report.exists() else {}
    card = options.card or card_of(torch.opencl.get_device_name(device))
    networks = options.networks or [*zoo.NETWORKS, *zoo.SINGLE]
    print(f"{torch.opencl.get_device_name(device)}, predicted as {card}")
    compare(device, card, networks, options.quick, predictions(record))
    return 0
