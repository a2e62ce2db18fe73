"""Waits for loads ahead of multiplications, found in assembly texts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from gpu import floors, gate
from gpu.compile import Compiled, Program
from gpu.targets import Kernel
from gpu.waits import amd_waits

# The next step is loaded after the barrier, or nothing where there is none.
PRODUCT = """
product:                                ; @product
; %bb.0:
\tglobal_load_dword v0, v[2:3], off
{first}
.LBB0_1:                                ; =>This Loop Header: Depth=1
\ts_barrier
\ts_waitcnt vmcnt(0)                    ; of the step before
\tds_write_b32 v9, v0
\ts_barrier
\ts_cbranch_vccnz .LBB0_4
; %bb.2:
{before}
\tglobal_load_dword v0, v[2:3], off
{after}
.LBB0_4:
\tds_read_b32 v1, v9
\ts_waitcnt lgkmcnt(0)
\tv_fmac_f32_e32 v4, v1, v1
{within}
\tv_fmac_f32_e32 v4, v1, v1
\ts_cbranch_scc0 .LBB0_1
; %bb.5:
\tglobal_load_dword v5, v[6:7], off
\ts_waitcnt vmcnt(0)
\tv_fmac_f32_e32 v4, v5, v8
\ts_endpgm
.Lfunc_end0:
"""
WAIT = "\ts_waitcnt vmcnt(0)"


def _waits(**places: str) -> int | None:
    assembly = PRODUCT.format(
        **dict.fromkeys(("first", "before", "after", "within"), "") | places
    )
    return amd_waits(assembly, "product")


def test_waits_between_a_load_and_multiplications_count() -> None:
    assert _waits() == 0
    assert _waits(after=WAIT) == 1
    assert _waits(within="\ts_wait_loadcnt 0x0") == 1
    assert _waits(after=WAIT, within="\ts_waitcnt vmcnt(0) lgkmcnt(0)") == 2
    # Of what was loaded before the barrier, and before the load.
    assert _waits(first=WAIT) == 0
    assert _waits(before=WAIT) == 0


def test_a_kernel_that_loads_nothing_ahead_is_not_judged() -> None:
    assert amd_waits(PRODUCT, "other") is None
    fills = "fill:                                   ; @fill\n"
    fills += "\tglobal_store_dword v0, v1, s[0:1]\n\ts_endpgm\n.Lfunc_end0:\n"
    assert amd_waits(fills, "fill") is None


def test_a_path_through_another_branch_is_followed() -> None:
    # The wait lies behind the loop in the text, and before the products in time.
    away = PRODUCT.replace("{after}", "\ts_branch .LBB0_6").replace(
        ".Lfunc_end0:", ".LBB0_6:\n" + WAIT + "\n\ts_branch .LBB0_4\n.Lfunc_end0:"
    )
    assembly = away.format(first="", before="", within="")
    assert amd_waits(assembly, "product") == 1


@pytest.mark.parametrize(("name", "number"), [("product_gpu", 1), ("gemv", 0)])
def test_gate_refuses_products_that_wait(name: str, number: int) -> None:
    compiled = Compiled("gfx1030", "key", [Kernel(name)], {}, {}, {name: 3})
    found = gate.faults([compiled], {"key": name}, {})
    assert len(found) == number
    assert all("waits 3 times" in line for line in found)


def test_floor_of_waits_is_of_products() -> None:
    rows = [
        {"kernel": "product_gpu:product_gpu", "target": "gfx1030", "waits": waits}
        for waits in (0, 2)
    ]
    record = {"kernels": rows, "summary": []}
    named = {floor.what: floor for floor in floors.floors(record)}
    what = "products, waits between loads and multiplication, "
    assert named[what + "gfx1030"].verdict == "missed"
    assert named[what + "gfx1100"].verdict == "not judged"


def test_products_of_halves() -> None:
    options = "-D DTYPE=float32 -D OPERAND_DTYPE=float32 -D TILE_ROWS=64"
    product = Program('#line 1 "product_gpu.cl"\n', options)
    other = Program('#line 1 "pack.cl"\n', options)
    (half,) = gate.halves_of([product, other])
    assert half.options == options.replace("float32", "float16")
