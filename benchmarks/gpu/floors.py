"""The floors that kernels for GPUs should reach, and what the laboratory found."""

from __future__ import annotations

import re
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
# Useful sectors, of kernels that move more than a share of a step's bytes.
SECTORS, MOVES = 0.8, 0.01
CARDS = ("RX 6600 XT", "RTX 3060")
# Predicted shares of the card's peak or bandwidth: a step, and its kernels (all of
# them where none is named).
REACHED = (
    ("product of 2048", "peak", 0.85, "sgemm_2048", "infer", ""),
    ("resnet50's forward", "peak", 0.75, "resnet50", "infer", ""),
    (
        "resnet50's weight gradients",
        "peak",
        0.65,
        "resnet50",
        "train",
        r"product_gpu of weight gradients",
    ),
    (
        "mobilenet_v2's depthwise layers",
        "bandwidth",
        0.85,
        "mobilenet_v2",
        "infer",
        r"depthwise_\w+",
    ),
    ("batch norm", "bandwidth", 0.85, "resnet50", "train", r"batch_norm_\w+"),
    ("Adam", "bandwidth", 0.85, "gpt", "train", r"multi_tensor"),
    ("softmax", "bandwidth", 0.85, "gpt", "train", r"softmax_\w+"),
    ("layer norm", "bandwidth", 0.85, "gpt", "train", r"layer_norm_\w+"),
    ("weights for one token", "bandwidth", 0.8, "gpt_token", "infer", ""),
)


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


def main_kernel(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of kernels with loops: that of the most multiply-adds, and of several such the
    one whose FMA per issue is their median."""
    most = max(row["loop"]["fma"] for row in rows)
    largest = [row for row in rows if row["loop"]["fma"] == most]
    largest.sort(key=lambda row: row["loop"]["fma_per_issue"])
    return largest[len(largest) // 2]


def _loop(rows: list[dict[str, Any]], target: str) -> float | None:
    own = [row for row in rows if row["target"] == target and "loop" in row]
    return main_kernel(own)["loop"]["fma_per_issue"] if own else None


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


def _reached(record: dict[str, Any]) -> Iterator[Floor]:
    steps = {(s["network"], s["mode"]): s for s in record.get("steps", [])}
    for title, of, floor, network, mode, kernels in REACHED:
        step = steps.get((network, mode))
        for card in CARDS:
            share = None if step is None else _share(step, of, card, kernels)
            shown = "" if share is None else f"{share:.0%}"
            what = f"{title}, predicted share of {of}, {card}"
            holds = share is not None and share >= floor
            yield Floor(what, f">= {floor:.0%}", shown, holds)


def _share(step: dict[str, Any], of: str, card: str, kernels: str) -> float | None:
    """Of the kernels together, or of the whole step, whose operations are those of
    the ops' definitions; None where the step has none of the kernels."""
    if not kernels and of == "peak":
        return step["share of peak"][card]
    seconds = done = 0.0
    for name, row in step["reached"][card].items():
        if not kernels or re.fullmatch(kernels, name):
            seconds += row["seconds"]
            done += row[of] * row["seconds"]
    return done / seconds if seconds else None


def _sectors(record: dict[str, Any]) -> Iterator[Floor]:
    moved: dict[str, float] = defaultdict(float)
    for step in record.get("steps", []):
        for name, share in step["share of bytes"].items():
            moved[name] = max(moved[name], share)
    lowest: dict[str, float] = defaultdict(lambda: 1.0)
    # As in the networks' own launches; where those cannot run, in small ones.
    sampled = set()
    for step in record.get("steps", []):
        for name, share in step.get("useful sectors", {}).items():
            sampled.add(name)
            if step["share of bytes"].get(name, 0.0) > MOVES:
                lowest[name] = min(lowest[name], share)
    for use in record.get("sectors", []):
        name = use["kernel"]
        is_small = bool(moved) and moved.get(name, 0.0) <= MOVES
        if use["global_share"] is not None and not is_small and name not in sampled:
            lowest[name] = min(lowest[name], use["global_share"])
    for name, share in sorted(lowest.items()):
        floor = f">= {SECTORS:.0%}"
        yield Floor(f"useful sectors, {name}", floor, f"{share:.0%}", share >= SECTORS)


def floors(record: dict[str, Any]) -> list[Floor]:
    return [
        *_products(record),
        *_memory(record),
        *_steps(record),
        *_reached(record),
        *_sectors(record),
    ]
