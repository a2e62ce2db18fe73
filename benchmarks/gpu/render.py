"""The report as HTML, and its tables in docs/gpu.md."""

from __future__ import annotations

import html as escape
from collections.abc import Callable, Iterable
from typing import Any

from . import floors

BEGIN, END = "<!-- tables: make gpu-lab writes these -->", "<!-- end of tables -->"
SHOWN_CARDS = ("RX 6600 XT", "RX 7900 XTX", "Arc A770", "RTX 3060", "H100")

Table = tuple[str, list[str], list[list[str]]]  # title, heads, rows


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _summary(record: dict[str, Any]) -> Table:
    heads = ["target", "cards", "programs", "do not compile", "kernels"]
    heads += ["most registers", "spilling", "with private memory", "most bytes of it"]
    heads += ["most local memory", "median occupancy", "lanes of a wave"]
    rows = []
    for row in record["summary"]:
        lanes = ", ".join(
            f"{simd} ({count})"
            for simd, count in sorted(row["simd"].items(), key=lambda i: int(i[0]))
        )
        values = [row["target"], row["cards"], row["programs"], row["errors"]]
        values += [row["kernels"], row["registers"], row["spilling"], row["private"]]
        values += [row["private bytes"], row["local bytes"]]
        rows.append([*map(str, values), percent(row["occupancy"]), lanes])
    return f"{record['programs']} programs by target", heads, rows


def _loops(record: dict[str, Any], name: str, title: str) -> Table:
    heads = ["kernel", "target", "registers", "private", "FMA per issue"]
    heads += ["local words per FMA", "occupancy"]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in record.get(name, []):
        if "loop" in row and row["loop"]["fma"] >= 4:
            found.setdefault((row["kernel"], row["target"]), []).append(row)
    best = {key: floors.main_kernel(rows) for key, rows in found.items()}
    rows = [
        [
            kernel,
            target,
            str(row["registers"]),
            str(row["private"]),
            f"{row['loop']['fma_per_issue']:.2f}",
            f"{row['loop']['words_per_fma']:.2f}",
            percent(row["occupancy"]),
        ]
        for (kernel, target), row in sorted(best.items())
    ]
    return title, heads, rows


def _sectors(record: dict[str, Any]) -> Table:
    heads = ["case", "kernel", "useful sectors", "of reads", "of writes"]
    heads += ["local memory without conflicts"]
    names = ["global_share", "read_share", "write_share", "bank_share"]
    rows = [
        [use["case"], use["kernel"], *(percent(use[name]) for name in names)]
        for use in record.get("sectors", [])
    ]
    return "Sectors and banks of small launches, waves of 32", heads, rows


def _steps(record: dict[str, Any]) -> Table:
    heads = ["network", "mode", "batch", "launches", "large products"]
    heads += ["of them below 72 groups"]
    heads += [f"{card}, ms" for card in SHOWN_CARDS]
    rows = []
    for step in record.get("steps", []):
        values = [step["network"], step["mode"], step["batch"], step["launches"]]
        values += [step["products"]["large"], step["products"]["few groups"]]
        predicted = [
            f"{step['milliseconds'][card]:.1f} ({step['share of peak'][card]:.0%})"
            for card in SHOWN_CARDS
        ]
        rows.append([*map(str, values), *predicted])
    return "Predicted steps, in brackets the share of the card's peak", heads, rows


def _slowest(record: dict[str, Any]) -> Table:
    heads = ["network", "mode", "where the time of an RX 6600 XT goes, and its bound"]
    rows = [
        [
            step["network"],
            step["mode"],
            "; ".join(
                f"{part['kernel'].rpartition(':')[2]} {part['share']:.0%} "
                f"({part['bound']})"
                for part in step["slowest"]["RX 6600 XT"][:5]
            ),
        ]
        for step in record.get("steps", [])
    ]
    return "The slowest kernels", heads, rows


def _validation(record: dict[str, Any]) -> Table:
    heads = ["card", "network", "published, ms", "predicted, ms", "error"]
    checked = record.get("validation", {"rows": [], "error": 0.0})
    rows = [
        [
            row["card"],
            row["network"],
            f"{row['published']:.1f}",
            f"{row['predicted']:.1f}",
            f"{row['error']:+.0%}",
        ]
        for row in checked["rows"]
    ]
    title = (
        "The model against published training steps of another library; mean error "
        f"{checked['error']:.0%}, each card by constants fitted to the other two"
    )
    return title, heads, rows


def _measured(record: dict[str, Any]) -> Table:
    found = record.get("measured", {"device": "", "rows": []})
    heads = ["network", "mode", "batch", "launches", "measured, ms", "predicted, ms"]
    rows = [
        [
            row["network"],
            row["mode"],
            str(row["batch"]),
            str(row["launches"]),
            f"{row['measured']:.1f}",
            "" if row["predicted"] is None else f"{row['predicted']:.1f}",
        ]
        for row in found["rows"]
    ]
    return f"Measured on {found['device']}", heads, rows


def _floors(record: dict[str, Any]) -> Table:
    rows = [
        [floor.what, floor.floor, floor.found, floor.verdict]
        for floor in floors.floors(record)
    ]
    held = sum(row[3] == "holds" for row in rows)
    heads = ["what", "floor", "found", ""]
    title = f"Floors: {held} of {len(rows)} hold"
    constants = record.get("validation", {}).get("constants")
    if constants is not None:
        title += (
            f"; the model lets no kernel reach more than {constants['compute']:.0%} "
            f"of a card's peak or {constants['memory']:.0%} of its bandwidth"
        )
    return title, heads, rows


def tables(record: dict[str, Any]) -> list[Table]:
    """Those that have rows."""
    made: Iterable[Callable[[dict[str, Any]], Table]] = (
        _measured,
        _floors,
        _summary,
        lambda r: _loops(r, "kernels", "Hottest loops of dense kernels"),
        lambda r: _loops(r, "peer", "CLBlast's, by default parameters"),
        _sectors,
        _steps,
        _slowest,
        _validation,
    )
    return [table for table in (make(record) for make in made) if table[2]]


def _markdown(table: Table) -> str:
    title, heads, rows = table
    lines = [f"### {title}", "", "| " + " | ".join(heads) + " |"]
    lines.append("|" + "---|" * len(heads))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def into_page(page: str, record: dict[str, Any]) -> str:
    """The page with its tables replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("docs/gpu.md has lost the place of its tables")
    used = ", ".join(f"{name}: {text}" for name, text in record["tools"].items())
    made = "\n".join(_markdown(table) for table in tables(record))
    return f"{before}{begin}\n\nCompilers: {used}.\n\n{made}\n{end}{after}"


def html(record: dict[str, Any]) -> str:
    """One file, without anything from elsewhere."""
    parts = []
    for title, heads, rows in tables(record):
        head = "".join(f"<th>{escape.escape(text)}" for text in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape.escape(text)}" for text in row)
            for row in rows
        )
        parts.append(f"<h2>{escape.escape(title)}</h2><table><tr>{head}{body}</table>")
    style = (
        "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #bbb;padding:2px 6px;text-align:left}"
    )
    used = escape.escape(", ".join(f"{k}: {v}" for k, v in record["tools"].items()))
    return (
        "<!doctype html><meta charset=utf-8><title>Kernels for GPUs</title>"
        f"<style>{style}</style><h1>Kernels for GPUs</h1><p>{used}</p>"
        + "".join(parts)
        + "\n"
    )
