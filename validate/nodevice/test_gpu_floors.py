"""What the GPU laboratory judges and reports, without compilers or devices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from gpu import floors, model, render, report, work
from gpu.cards import CARDS
from gpu.compile import Program


def test_what_kernels_of_a_step_reach() -> None:
    """Weight gradients' products apart, padding left out."""
    card = CARDS["RX 6600 XT"]
    programs = {0: Program("", ""), 1: Program("", "-D IS_WEIGHT_GRADIENT=1")}
    name = "product_gpu:product_gpu"
    works = [
        work.Work(name, 0, 1e9, 3e6, 3e6, 64, 64 * 256, "", useful=1e9),
        work.Work(name, 1, 1e9, 1e6, 1e6, 64, 64 * 256, "", useful=0.5e9),
        work.Work(name, 1, 1e9, 1e6, 1e6, 64, 64 * 256, "", useful=0.5e9),
        work.Work("copy", -1, 0, 5e6, 5e6, 1, 1, ""),
    ]
    predictions = [model.Prediction(1e-3, "operations")] * 4
    reached = report._reached(works, programs, predictions, card)
    assert set(reached) == {"product_gpu", "product_gpu of weight gradients", "copy"}
    gradients = reached["product_gpu of weight gradients"]
    assert gradients["peak"] == pytest.approx(1e9 / 2e-3 / 10.6e12)
    assert gradients["bandwidth"] == pytest.approx(2e6 / 2e-3 / 256e9)
    shares = report._shares_of_bytes(works)
    assert shares == {"product_gpu": pytest.approx(0.5), "copy": pytest.approx(0.5)}


def test_floors_hold_only_where_something_was_found() -> None:
    loop = {"fma": 64, "fma_per_issue": 0.95}
    kernel = {"kernel": "product_gpu:product_gpu", "target": "gfx1030", "loop": loop}
    step = {"network": "lstm", "mode": "train", "launches": 61}
    step |= {"products": {"few groups": 0}, "milliseconds": {}}
    step["share of bytes"] = {"scan": 0.02, "sort": 0.01}
    record = {"kernels": [kernel], "summary": [], "steps": [step]}
    uses = [{"kernel": name, "global_share": 0.5} for name in ("scan", "sort")]
    found = floors.floors({**record, "sectors": uses})
    verdicts = {floor.what: floor.verdict for floor in found}
    assert (found[0].verdict, found[0].found) == ("holds", "0.95")
    assert found[1].verdict == "not judged"  # against CLBlast
    assert verdicts["main product, FMA per issue, gfx1100"] == "not judged"
    assert verdicts["launches of a training step, lstm"] == "missed"
    assert verdicts["launches of a training step, bert"] == "not judged"
    assert verdicts["useful sectors, scan"] == "missed"
    assert "useful sectors, sort" not in verdicts  # it moves too little
    peer = [{**kernel, "loop": {"fma": 8, "fma_per_issue": 0.96}}]
    assert floors.floors({**record, "peer": peer})[1].verdict == "missed"


def test_the_main_kernel_is_the_median_of_the_largest_loops() -> None:
    rates = [(64, 0.9), (8, 1.8), (64, 1.7), (64, 0.2)]
    rows = [{"loop": {"fma": fma, "fma_per_issue": rate}} for fma, rate in rates]
    assert floors.main_kernel(rows) == rows[0]
    assert floors.main_kernel(rows[1:2]) == rows[1]


def test_floors_of_shares_of_a_card() -> None:
    """By the kernels' time together; a whole step by its definition."""
    reached = {
        "softmax_short": {"seconds": 1.0, "peak": 0.0, "bandwidth": 0.9},
        "softmax_rows": {"seconds": 3.0, "peak": 0.0, "bandwidth": 0.5},
        "product_gpu": {"seconds": 6.0, "peak": 0.4, "bandwidth": 0.1},
    }
    step = {"share of peak": {"RX 6600 XT": 0.8}, "reached": {"RX 6600 XT": reached}}
    of = {
        name: floors._share(step, quantity, "RX 6600 XT", name)
        for name, quantity in [(r"softmax_\w+", "bandwidth"), ("scan", "peak")]
    }
    assert of == {r"softmax_\w+": pytest.approx(0.6), "scan": None}
    assert floors._share(step, "peak", "RX 6600 XT", "") == 0.8
    assert floors._share(step, "bandwidth", "RX 6600 XT", "") == pytest.approx(0.3)


def test_report_replaces_the_page_s_tables() -> None:
    record = {
        "tools": {"clang": "22"},
        "programs": 1,
        "summary": [],
        "kernels": [],
        "validation": {
            "error": 0.21,
            "constants": {"compute": 0.4, "memory": 0.55},
            "rows": [
                {
                    "card": "RX",
                    "network": "vgg16",
                    "published": 1.0,
                    "predicted": 1.5,
                    "error": 0.5,
                }
            ],
        },
    }
    page = f"before\n{render.BEGIN}\nstale\n{render.END}\nafter\n"
    text = render.into_page(page, record)
    assert "stale" not in text and "mean error 21%" in text
    assert "no kernel reach more than 40% of a card's peak or 55%" in text
    assert "| RX | vgg16 | 1.0 | 1.5 | +50% |" in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert render.into_page(text, record) == text
    assert "<td>+50%" in render.html(record)
    with pytest.raises(ValueError, match="lost the place"):
        render.into_page("nothing", record)
