"""The floors that kernels for GPUs should reach, and what the laboratory found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LAUNCHES = {"resnet50": 480, "mobilenet_v2": 420, "unet": 260, "lstm": 60, "bert": 90}
FMA_PER_ISSUE = {"gfx1030": 0.92, "gfx1100": 1.7}
# A training step of batch 16 on an RX 6600 XT, in milliseconds.
MILLISECONDS = {
    "alexnet": 22,
    "resnet18": 34,
    "resnet50": 95,
    "vgg16": 150,
    "mobilenet_v2": 45,
}
SECTORS = 0.8


@dataclass
class Floor:
    """`found` is empty where the laboratory did not look, which is no pass."""

    what: str
    floor: str
    found: str
    holds: bool

    @property
    def verdict(self) -> str:
        return ("holds" if self.holds else "missed") if self.found else "not judged"


def _at_most(what: str, limit: float, found: float | None, form: str = "g") -> Floor:
    shown = "" if found is None else f"{found:{form}}"
    return Floor(what, f"<= {limit:g}", shown, found is not None and found <= limit)


def _loop(rows: list[dict[str, Any]], target: str) -> float | None:
    """FMA per issue of the loop with the most multiply-adds."""
    own = [row for row in rows if row["target"] == target and "loop" in row]
    best = max(own, key=lambda row: row["loop"]["fma"], default=None)
    return None if best is None else best["loop"]["fma_per_issue"]


def _products(record: dict[str, Any]) -> Iterator[Floor]:
    rows = [r for r in record["kernels"] if r["kernel"].endswith(":product_gpu")]
    for target, floor in FMA_PER_ISSUE.items():
        found = _loop(rows, target)
        peer = _loop(record.get("peer", []), target)
        shown = "" if found is None else f"{found:.2f}"
        what = f"main product, FMA per issue, {target}"
        yield Floor(what, f">= {floor}", shown, (found or 0.0) >= floor)
        judged = shown if peer is not None else ""
        limit = "CLBlast's" if peer is None else f">= {peer:.2f}, CLBlast's"
        yield Floor(what, limit, judged, (found or 0.0) >= (peer or 0.0))
    for target in FMA_PER_ISSUE:
        waits = [r["waits"] for r in rows if r["target"] == target and "waits" in r]
        what = f"products, waits between loads and multiplication, {target}"
        yield _at_most(what, 0, max(waits, default=None))


def _memory(record: dict[str, Any]) -> Iterator[Floor]:
    for row in record["summary"]:
        yield _at_most(f"kernels that spill, {row['target']}", 0, row["spilling"])
    for row in record["summary"]:
        if row["target"] in ("sm_86", "dg2"):
            what = f"kernels with private memory, {row['target']}"
            yield _at_most(what, 0, row["private"])


def _steps(record: dict[str, Any]) -> Iterator[Floor]:
    training = {
        s["network"]: s for s in record.get("steps", []) if s["mode"] == "train"
    }
    resnet50 = training.get("resnet50")
    few = None if resnet50 is None else resnet50["products"]["few groups"]
    yield _at_most("resnet50's training products below 72 groups", 0, few)
    for network, limit in LAUNCHES.items():
        found = training.get(network)
        what = f"launches of a training step, {network}"
        yield _at_most(what, limit, None if found is None else found["launches"])
    for network, limit in MILLISECONDS.items():
        found = training.get(network)
        time = None if found is None else found["milliseconds"]["RX 6600 XT"]
        what = f"predicted training step, RX 6600 XT, ms, {network}"
        yield _at_most(what, limit, time, ".0f")
    forward = next(
        (
            step
            for step in record.get("steps", [])
            if (step["network"], step["mode"]) == ("resnet50", "infer")
        ),
        None,
    )
    for card in ("RX 6600 XT", "RTX 3060"):
        share = None if forward is None else forward["share of peak"][card]
        shown = "" if share is None else f"{share:.0%}"
        what = f"resnet50's forward, predicted share of peak, {card}"
        yield Floor(what, ">= 75%", shown, share is not None and share >= 0.75)


def _sectors(record: dict[str, Any]) -> Iterator[Floor]:
    lowest: dict[str, float] = defaultdict(lambda: 1.0)
    for use in record.get("sectors", []):
        if use["global_share"] is not None:
            name = use["kernel"]
            lowest[name] = min(lowest[name], use["global_share"])
    for name, share in sorted(lowest.items()):
        floor = f">= {SECTORS:.0%}"
        yield Floor(f"useful sectors, {name}", floor, f"{share:.0%}", share >= SECTORS)


def floors(record: dict[str, Any]) -> list[Floor]:
    return [
        *_products(record),
        *_memory(record),
        *_steps(record),
        *_sectors(record),
    ]
