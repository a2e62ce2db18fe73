"""Collects what the laboratory found and writes it."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import peer, published, render, sampled, sectors, tools
from .cards import CARDS, Card
from .compile import Compiled, Compilers, Program
from .model import Constants, Prediction, Shape, predict, shape_of, total
from .targets import TARGETS, Kernel, recorded_as
from .trace import name_of
from .work import Work, is_dense, programs_of, works_of

# Of whom arguments are read, and the loops of targets without disassembler.
REFERENCE = "gfx1030"
# A product of the training floors: more operations than this, and fewer groups
# than two for each of 36 units.
LARGE_PRODUCT, FEW_GROUPS = 2.0**23, 72


class Kernels:
    """Compiled kernels by program, target and name."""

    def __init__(self, compiled: list[Compiled]) -> None:
        self._by_program = {(c.program, c.target): c for c in compiled if not c.error}

    def find(self, program: str, target: str, name: str) -> Kernel | None:
        compiled = self._by_program.get((program, target))
        if compiled is None:
            return None
        return next((k for k in compiled.kernels if k.name == name), None)

    def shape(self, program: str, target: str, name: str, useful: float) -> Shape:
        """For the model. A target that was not compiled for is as REFERENCE."""
        reference = self._by_program[program, REFERENCE]
        own = self._by_program.get((program, target), reference)
        known = own if own.instructions else reference
        kernel = self.find(program, own.target, name)
        if kernel is None:
            raise ValueError(f"{name} was not compiled for {own.target}")
        loop, instructions = known.loops.get(name), known.instructions.get(name, 0)
        return shape_of(kernel, own.target, loop, instructions, useful)


def references(programs: list[Program], compiled: list[Compiled]) -> list[Compiled]:
    """Of the programs that were not compiled for REFERENCE."""
    known = {c.program for c in compiled if c.target == REFERENCE}
    others = [program for program in programs if program.key not in known]
    return Compilers().compile(others, [REFERENCE], jobs=os.cpu_count() or 1)


def summary(compiled: list[Compiled]) -> list[dict[str, Any]]:
    """A row a target: what all kernels together have."""
    rows = []
    for target in TARGETS:
        own = [c for c in compiled if c.target == target]
        if not own:
            continue
        kernels = [k for c in own for k in c.kernels]
        occupancies = sorted(k.occupancy for k in kernels if k.occupancy is not None)
        rows.append(
            {
                "target": target,
                "cards": TARGETS[target].cards,
                "programs": len(own),
                "errors": sum(bool(c.error) for c in own),
                "kernels": len(kernels),
                "registers": max((k.registers for k in kernels), default=0),
                "spilling": sum(k.spills > 0 for k in kernels),
                "private": sum(k.private > 0 for k in kernels),
                "private bytes": max((k.private for k in kernels), default=0),
                "local bytes": max((k.local for k in kernels), default=0),
                "occupancy": occupancies[len(occupancies) // 2]
                if occupancies
                else None,
                "simd": dict(Counter(k.simd for k in kernels)),
            }
        )
    return rows


def kernel_rows(
    compiled: list[Compiled], names: dict[str, str]
) -> list[dict[str, Any]]:
    """A row a kernel and target, the dense ones with their loops."""
    rows = []
    for program in compiled:
        for kernel in program.kernels:
            row = asdict(kernel)
            del row["arguments"]
            row |= {"kernel": f"{names[program.program]}:{kernel.name}"}
            row |= {"program": program.program, "target": program.target}
            if kernel.name in program.waits:
                row["waits"] = program.waits[kernel.name]
            loop = program.loops.get(kernel.name)
            if loop is not None and is_dense(kernel.name):
                row["loop"] = {
                    **asdict(loop),
                    "fma_per_issue": loop.fma_per_issue,
                    "words_per_fma": loop.words_per_fma,
                }
            rows.append(row)
    return rows


class Sectors:
    """What launches ask memory for: of a program as it was sampled, else as small
    launches of its kernel do, the worst of them."""

    def __init__(self, uses: list[sectors.Use], found: dict) -> None:
        self._worst = sectors.worst(uses)
        self._sampled: dict[tuple[str, str], sampled.Found] = found

    def reaching(self, program: str, name: str) -> float:
        """Requested bytes over those of the sectors that are asked of L2."""
        if found := self._sampled.get((program, name)):
            return 1 / found.of_requested
        return self._worst.get(name, 1.0)

    def useful(self, works: list[Work], programs: dict[int, Program]) -> dict:
        """The useful share of a step's sectors, by kernel, of what was sampled."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for work in works:
            name = work.kernel.rpartition(":")[2]
            if work.program >= 0:
                key = programs[work.program].key, name
                found = self._sampled.get(key)
                if found and work.requested:
                    sums[name][0] += work.requested
                    sums[name][1] += work.requested / found.share
        return {name: least / taken for name, (least, taken) in sums.items()}


def arguments_of(
    trace: dict[str, Any], kernels: Kernels
) -> dict[tuple[int, str], Kernel]:
    """The kernels of a trace's launches, as the reference's compiler has them."""
    programs = programs_of(trace)
    arguments = {}
    for launch in trace["launches"]:
        if "launch" in launch:
            key = launch["of"], launch["launch"]
            found = kernels.find(programs[key[0]].key, REFERENCE, key[1])
            if found is None:
                raise ValueError(f"{key[1]} was not compiled for {REFERENCE}")
            arguments[key] = found
    return arguments


def sample(
    traces: list[dict[str, Any]], works: list[list[Work]], kernels: Kernels
) -> list[dict]:
    """A trace each: runs a work-group of a launch of each program in the simulator."""
    folder = tools.BUILD / "sampled"
    tools.build_plugin()  # once, ahead of the threads

    def found(
        trace: dict[str, Any], own: list[Work]
    ) -> dict[tuple[str, str], sampled.Found]:
        chosen = sampled.choose(trace, own, arguments_of(trace, kernels))
        process = name_of(trace["network"], trace["mode"], trace["device"])
        sampled.simulate(chosen, trace["buffers"], folder, process)
        return sampled.read(chosen, folder)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(found, traces, works))


def step_of(
    trace: dict[str, Any],
    works: list[Work],
    kernels: Kernels,
    asked: Sectors,
    constants: Constants,
) -> dict[str, Any]:
    """A network's step on every card that its trace holds for."""
    programs = programs_of(trace)
    flops = sum(op["flops"] for op in trace["ops"])
    row: dict[str, Any] = {
        "network": trace["network"],
        "mode": trace["mode"],
        "batch": trace["batch"],
        "launches": len(works),
        "tera operations": flops / 1e12,
        "gigabytes": sum(work.bytes for work in works) / 1e9,
        "kernels": dict(Counter(work.kernel for work in works).most_common()),
        "products": _products(works),
        "milliseconds": {},
        "share of peak": {},
        "slowest": {},
        "reached": {},
        "share of bytes": _shares_of_bytes(works),
        "useful sectors": asked.useful(works, programs),
    }
    for card in CARDS.values():
        if recorded_as(card.target) != trace["device"]:
            continue
        predictions = predict_step(works, programs, kernels, asked, card, constants)
        seconds = total(predictions)
        row["milliseconds"][card.name] = seconds * 1e3
        row["share of peak"][card.name] = flops / seconds / card.tera / 1e12
        row["slowest"][card.name] = _slowest(works, predictions)
        row["reached"][card.name] = _reached(works, programs, predictions, card)
    return row


def merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a network and mode, its cards those of all its rows; all else is the
    first one's."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        whole = found.setdefault((row["network"], row["mode"]), row)
        for what in ("milliseconds", "share of peak", "slowest", "reached"):
            whole[what] |= row[what]
    return list(found.values())


def predict_step(works, programs, kernels, asked, card, constants) -> list[Prediction]:
    shapes: dict[tuple[int, str], Shape] = {}
    predictions = []
    for work in works:
        key = (work.program, work.kernel)
        if key not in shapes:
            name = work.kernel.rpartition(":")[2]
            if work.program < 0:
                shapes[key] = Shape()
            else:
                program = programs[work.program].key
                reaching = asked.reaching(program, name)
                shapes[key] = kernels.shape(program, card.target, name, reaching)
        predictions.append(predict(work, shapes[key], card, constants))
    return predictions


def _products(works: list[Work]) -> dict[str, int]:
    """How many large products there are, and with too few work-groups."""
    products = [w for w in works if w.flops > LARGE_PRODUCT]
    few = sum(w.groups < FEW_GROUPS for w in products)
    return {"large": len(products), "few groups": few}


def _shares_of_bytes(works: list[Work]) -> dict[str, float]:
    """Of what the step moves, by kernel."""
    moved: dict[str, float] = defaultdict(float)
    for work in works:
        moved[work.kernel.rpartition(":")[2]] += work.bytes
    whole = sum(moved.values())
    return {name: share / whole for name, share in moved.items()}


def _reached(works, programs, predictions, card: Card) -> dict[str, dict[str, float]]:
    """Of the card's peak and bandwidth, by kernel; products of weight gradients
    stand beside the others."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for work, prediction in zip(works, predictions, strict=True):
        name = work.kernel.rpartition(":")[2]
        program = programs.get(work.program)
        if program is not None and "IS_WEIGHT_GRADIENT=1" in program.options:
            name += " of weight gradients"
        values = work.useful, work.bytes, prediction.seconds
        sums[name] = [a + b for a, b in zip(sums[name], values, strict=True)]
    return {
        name: {
            "seconds": seconds,
            "peak": useful / seconds / card.tera / 1e12,
            "bandwidth": moved / seconds / card.giga / 1e9,
        }
        for name, (useful, moved, seconds) in sums.items()
    }


def _slowest(works, predictions) -> list[dict[str, Any]]:
    seconds: dict[str, float] = defaultdict(float)
    bounds: dict[str, Counter] = defaultdict(Counter)
    for work, prediction in zip(works, predictions, strict=True):
        seconds[work.kernel] += prediction.seconds
        bounds[work.kernel][prediction.bound] += prediction.seconds
    whole = sum(seconds.values())
    ranked = sorted(seconds, key=lambda name: -seconds[name])[:8]
    return [
        {
            "kernel": name,
            "share": seconds[name] / whole,
            "bound": bounds[name].most_common(1)[0][0],
        }
        for name in ranked
    ]


def collect(
    traces: list[dict[str, Any]],
    programs: list[Program],
    compiled: list[Compiled],
    references: list[Compiled],
    steps: list[str],
) -> dict[str, Any]:
    """Everything, as plain values; `references` are for REFERENCE alone."""
    names = {program.key: program.name for program in programs}
    record: dict[str, Any] = {
        "tools": tools.versions(),
        "programs": len(programs),
        "summary": summary(compiled),
        "kernels": kernel_rows(compiled, names),
        "errors": [
            {"program": names[c.program], "target": c.target, "error": c.error}
            for c in compiled
            if c.error
        ],
        "cards": {name: asdict(card) for name, card in CARDS.items()},
    }
    uses: list[sectors.Use] = []
    found: list[dict] = [{} for _ in traces]
    kernels = Kernels([*compiled, *references])
    works: list[list[Work]] = []
    if "sectors" in steps or "model" in steps:
        works = [works_of(trace, arguments_of(trace, kernels)) for trace in traces]
    if "sectors" in steps:
        found = sample(traces, works, kernels)
        uses = sectors.simulate(tools.BUILD / "simulated")
        record["sectors"] = [asdict(use) for use in uses]
    if "peer" in steps:
        of_peer = peer.programs(tools.build_recorder(), tools.BUILD / "peer")
        targets = list(dict.fromkeys(c.target for c in compiled))
        peers = Compilers().compile(of_peer, targets)
        record["peer"] = kernel_rows(peers, {p.key: "CLBlast" for p in of_peer})
    if "model" in steps:
        training = {
            t["network"]: t for t in traces if t["mode"] == "train" and not t["device"]
        }
        checked = published.validate(training)
        record["validation"] = {
            "constants": asdict(checked.constants),
            "rows": [{**asdict(row), "error": row.error} for row in checked.rows],
            "error": checked.error,
        }
        record["steps"] = merged(
            [
                step_of(trace, own, kernels, Sectors(uses, of_it), checked.constants)
                for trace, own, of_it in zip(traces, works, found, strict=True)
            ]
        )
    return record


def write(record: dict[str, Any], root: Path) -> None:
    (root / "report").mkdir(exist_ok=True)
    text = json.dumps(record, indent=1)
    (root / "report" / "gpu.json").write_text(text + "\n")
    (root / "report" / "gpu.html").write_text(render.html(record))
    page = root / "docs" / "gpu.md"
    page.write_text(render.into_page(page.read_text(), record))
