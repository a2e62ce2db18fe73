"""The GPU laboratory's readers, model and gate, without compilers or devices."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from gpu import (
    gate,
    isa,
    lab,
    model,
    peer,
    published,
    report,
    sectors,
    targets,
    units,
    work,
)
from gpu.cards import CARDS
from gpu.compile import Compiled, Program
from gpu.targets import Argument, Kernel
from gpu.trace import Blocks

AMD = """
\t.text
scale:                                  ; @scale
; %bb.0:
\ts_load_dwordx2 s[0:1], s[4:5], 0x0
\ts_waitcnt lgkmcnt(0)
\ts_cbranch_scc1 .LBB0_2
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\tds_read2_b64 v[0:3], v9 offset1:1
\tv_fmac_f32_e32 v4, v0, v1
\tv_dual_fmac_f32 v5, v0, v1 :: v_dual_fmac_f32 v6, v2, v3
\ts_cbranch_scc1 .LBB0_1
.LBB0_2:
\tglobal_store_dword v0, v4, s[0:1]
\tscratch_store_dword off, v4, s32
\ts_endpgm
.Lfunc_end0:
; Occupancy: 8
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .is_const:       true
        .name:           in_memory
        .offset:         0
        .size:           8
        .type_name:      'storage_t*'
        .value_kind:     global_buffer
      - .name:           depth
        .offset:         8
        .size:           4
        .type_name:      int
        .value_kind:     by_value
      - .offset:         16
        .size:           8
        .value_kind:     hidden_global_offset_x
    .group_segment_fixed_size: 512
    .name:           scale
    .private_segment_fixed_size: 24
    .reqd_workgroup_size:
      - 16
      - 8
      - 1
    .sgpr_spill_count: 3
    .vgpr_count:     40
    .vgpr_spill_count: 2
    .wavefront_size: 32
amdhsa.target:   amdgcn-amd-amdhsa--gfx1030
amdhsa.version:
  - 1
  - 2
...
"""
PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_86'
ptxas info    : Function properties for gemm
    64 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 70 registers, used 1 barriers, 128 bytes cumulative stack size, \
8192 bytes smem, 476 bytes cmem[0]
ptxas info    : Compiling entry function 'add' for 'sm_86'
ptxas info    : Function properties for add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, 380 bytes cmem[0]
"""
SASS = """
gemm:
.text.gemm:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0030*/                   CALL.REL.NOINC `($gemm$__clang_ocl_kern_imp_gemm) ;
        /*0040*/                   EXIT ;
$gemm$__clang_ocl_kern_imp_gemm:
.L_x_3:
        /*0050*/                   LDS.128 R4, [R1] ;
        /*0060*/              @!P0 LDL R9, [R1+0x40] ;
        /*0070*/                   FFMA R3, R4, R5, R3 ;
        /*0080*/                   FFMA R2, R4, R6, R2 ;
        /*0090*/               @P1 BRA `(.L_x_3) ;
        /*00a0*/                   STG.E [R2.64], R3 ;
        /*00b0*/                   RET.REL.NODEC R38 `(gemm) ;
"""
INTEL = """junk kernels:
  - name:            gemm
    execution_env:
      grf_count:       128
      required_work_group_size: [ 16, 16, 1 ]
      simd_size:       8
      slm_size:        8192
      spill_size:      64
    payload_arguments:
      - arg_type:        local_size
        size:            12
    per_thread_memory_buffers:
      - type:            scratch
        usage:           private_space
        size:            1088
kernels_misc_info:
  - name:            gemm
    args_info:
      - index:           0
"""


INLINED = """
\t.text
scale:                                  ; @scale
; %bb.0:
\tds_read_b128 v[0:3], v9
\tv_fmac_f32_e32 v4, v0, v1
\ts_endpgm
.Lfunc_end0:
__clang_ocl_kern_imp_scale:             ; @__clang_ocl_kern_imp_scale
; %bb.0:
\tv_fmac_f32_e32 v4, v0, v1
\ts_setpc_b64 s[30:31]
.Lfunc_end1:
"""


def test_amd_metadata_and_hot_loop() -> None:
    (kernel,) = targets.read_amd(AMD, "gfx1030")
    assert (kernel.name, kernel.registers, kernel.spills) == ("scale", 40, 2)
    assert (kernel.private, kernel.local, kernel.group) == (16, 512, 128)
    assert (kernel.occupancy, kernel.simd) == (0.5, 32)
    assert kernel.arguments == [
        Argument("in_memory", "storage_t*", True, True),
        Argument("depth", "int", False, False),
    ]
    blocks = isa.amd_blocks(AMD)
    loop = isa.hottest([kernel], blocks, isa.AMD)["scale"]
    assert loop == isa.Loop(issued=4, fma=3, local_words=4, loads=0, private=0)
    assert loop.fma_per_issue == 0.75
    assert isa.instructions([kernel], blocks, isa.AMD) == {"scale": 9}


def test_output_without_kernels_is_an_error() -> None:
    with pytest.raises(ValueError, match="no metadata"):
        targets.read_amd("\t.text\n", "gfx1030")
    with pytest.raises(ValueError, match="ze_info"):
        targets.read_intel("")
    with pytest.raises(ValueError, match="no occupancy"):
        targets.read_amd(AMD.replace("; Occupancy: 8", ""), "gfx1030")


def test_nvidia_log_and_hot_loop() -> None:
    gemm, add = targets.read_nvidia(PTXAS, "sm_86", {"gemm": 256})
    assert (gemm.registers, gemm.spills, gemm.private, gemm.local) == (70, 8, 120, 8192)
    # 72 registers of 65536 leave room for three groups of eight waves.
    assert gemm.occupancy == pytest.approx(24 / 48)
    assert (add.registers, add.private, add.occupancy) == (12, 0, 1.0)
    loop = isa.hottest([gemm], isa.nvidia_blocks(SASS), isa.NVIDIA)["gemm"]
    assert loop == isa.Loop(issued=5, fma=2, local_words=4, loads=0, private=1)


def test_intel_binary() -> None:
    (kernel,) = targets.read_intel(INTEL)
    assert (kernel.simd, kernel.spills, kernel.private) == (8, 64, 128)
    assert (kernel.group, kernel.local, kernel.registers) == (256, 8192, 128)


def test_simulator_lines() -> None:
    record = {
        "kernel": "pack",
        "global reads": [4, 80, 10, 40],
        "global writes": [4, 20, 15, 20],
    }
    record |= {"local reads": [2, 8, 2, 0], "local writes": [0, 0, 0, 0]}
    lines = [json.dumps({"case": "mm"}), json.dumps(record)]
    (use,) = sectors.read("\n".join(lines))
    assert (use.case, use.kernel, use.global_share) == ("mm", "pack", 0.25)
    assert (use.read_share, use.write_share, use.bank_share) == (0.125, 0.75, 0.25)
    assert sectors.worst([use]) == {"pack": 0.25}


def test_recorded_programs_of_a_peer() -> None:
    lines = [
        {"program": 0, "options": "-w", "text": "kernel void a() {}"},
        {"program": 1, "options": "", "text": "kernel void b() {}"},
        {"launch": "b", "of": 1},
    ]
    programs = peer.read("\n".join(map(json.dumps, lines)))
    assert programs == [Program("kernel void b() {}", "")]


def test_the_kernel_goes_before_what_was_inlined() -> None:
    loop = isa.hottest([Kernel("scale")], isa.amd_blocks(INLINED), isa.AMD)["scale"]
    assert (loop.fma, loop.local_words) == (1, 4)


def test_blocks_of_buffers() -> None:
    blocks = Blocks()
    blocks.add_buffer(3, 4096)
    inside = [
        {"address": 9000, "requested_size": 100, "state": "active_allocated"},
        {"address": 9512, "requested_size": 0, "state": "inactive"},
    ]
    segment = {"address": 9000, "total_size": 4096, "blocks": inside}
    blocks.update([segment])
    assert blocks.find(3, 40) == (0, 100)
    assert blocks.find(3, 200) is None  # behind what was asked for
    assert blocks.find(3, 600) is None  # free
    assert blocks.find(4, 0) is None
    other = {**segment, "address": 1 << 20}
    with pytest.raises(RuntimeError, match="no buffer"):
        blocks.update([segment, other])


def _buffer(offset: int, start: int, size: int) -> dict:
    return {"buffer": 0, "offset": offset, "blocks": {"4": [start, size]}}


def _number(value: int) -> dict:
    return {"hex": value.to_bytes(4, "little").hex()}


def _trace() -> dict:
    launch = {
        "launch": "product_gpu",
        "of": 0,
        "global": [256, 1, 2],
        "local": [128, 1, 1],
        "arguments": [
            _buffer(0, 0, 4000),
            _buffer(1100, 4096, 1000),
            _number(60),
            _number(50),
            _number(20),
            _number(4),
            _number(32),
        ],
    }
    op = {"name": "aten::bmm", "flops": 1e6, "bytes": 9e9, "begin": 0, "end": 1}
    options = "-D DTYPE=float32 -D TILE_ROWS=64 -D TILE_COLUMNS=64 -D STEP=16"
    return {
        "programs": {"0": {"options": options, "text": "x"}},
        "launches": [launch, {"command": "copy", "bytes": 10}],
        "ops": [op],
    }


GEMM = Kernel(
    "product_gpu",
    occupancy=1.0,
    simd=32,
    group=128,
    arguments=[
        Argument("left_memory", "compute_t*", True, True),
        Argument("out_memory", "storage_t*", True, False),
        Argument("rows", "int", False, False),
        Argument("columns", "int", False, False),
        Argument("depth", "int", False, False),
        Argument("batches", "int", False, False),
        Argument("depth_of_part", "int", False, False),
    ],
)


def test_work_of_a_fixed_trace() -> None:
    product, copy = work.works_of(_trace(), {(0, "product_gpu"): GEMM})
    assert (product.groups, product.items, product.op) == (4, 512, "aten::bmm")
    # Four tiles, a depth of 20 in steps of 16.
    assert product.flops == 2 * 4 * 64 * 64 * 32
    assert product.useful == 2 * 4 * 60 * 50 * 20
    assert product.bytes == 4000 + (4096 + 1000 - 4400)
    assert product.requested == 4 * 4 * 2 * 64 * 32
    assert (copy.bytes, copy.program, copy.op) == (20, -1, "(deferred)")


@pytest.mark.parametrize(
    ("name", "dtype", "size"),
    [
        ("storage_t*", "float16", 2),
        ("compute_t*", "float16", 4),
        ("compute_t*", "float64", 8),
        ("storage_t*", "int64", 8),
        ("storage_bfloat16*", "float32", 2),
        ("storage_bool*", "float32", 1),
        ("long*", "float32", 8),
        ("uchar*", "float32", 1),
    ],
)
def test_element_sizes(name: str, dtype: str, size: int) -> None:
    assert work.element_size(name, dtype) == size


def _launch(**changes) -> work.Work:
    values = {
        "kernel": "product_gpu:product_gpu",
        "program": 0,
        "flops": 1e9,
        "bytes": 1e3,
        "requested": 1e3,
        "groups": 64,
        "items": 64 * 256,
        "op": "",
    }
    return work.Work(**{**values, **changes})


def test_model_of_a_product() -> None:
    card = CARDS["RX 6600 XT"]
    all_ = model.Constants(1.0, 1.0)
    shape = model.Shape(rate=0.5, words=0.5, waves=8)
    found = model.predict(_launch(), shape, card, all_)
    assert found.bound == "operations"
    assert found.seconds == pytest.approx(1e9 / (10.6e12 * 0.5) + card.launch)
    # One group more is one round more; two words a multiply-add halve the rate.
    more = model.predict(_launch(groups=65, flops=1e9 * 65 / 64), shape, card, all_)
    assert more.seconds - card.launch == pytest.approx(
        1.5 * (found.seconds - card.launch)
    )
    slow = model.Shape(rate=1.0, words=2.0, waves=8)
    assert model.share_of_peak(slow, card) == 0.25
    pairs = CARDS["RX 7900 XTX"]
    assert model.share_of_peak(model.Shape(rate=0.8), pairs) == 0.4
    # A single group has one unit.
    one = model.predict(_launch(groups=1), shape, card, all_)
    assert one.seconds > 31 * found.seconds / 2


def test_model_of_memory() -> None:
    card = CARDS["RTX 3060"]
    all_ = model.Constants(1.0, 1.0)
    copied = _launch(flops=0, bytes=36e7, requested=36e7, groups=10000)
    found = model.predict(copied, model.Shape(), card, all_)
    assert (found.bound, found.seconds) == ("bytes", pytest.approx(1e-3, rel=0.01))
    wasted = model.predict(copied, model.Shape(sectors=0.125), card, all_)
    assert wasted.bound == "sectors"
    assert wasted.seconds == pytest.approx(2e-3, rel=0.01)
    assert model.predict(
        _launch(flops=0, bytes=8, requested=8), model.Shape(), card, all_
    ).bound == "launch"  # fmt: skip


def test_validation_judges_a_card_by_the_others() -> None:
    convolution = {
        "name": "aten::convolution",
        "shapes": ["16x64x56x56", "64x64x3x3"],
        "flops": 2.0 * 16 * 56 * 56 * 64 * 64 * 9,
        "bytes": 2 * 16 * 64 * 56 * 56 * 4.0,
    }
    backward = {
        **convolution,
        "name": "aten::convolution_backward",
        "shapes": ["16x64x56x56", *convolution["shapes"]],
        "flops": 2 * convolution["flops"],
        "bytes": 2 * convolution["bytes"],
    }
    relu = {"name": "aten::relu_", "shapes": [], "flops": 0, "bytes": 4e8}
    ops = [convolution, relu, backward] * 10
    trace = {"ops": ops, "parameters": 1e7}
    kinds = [w.kernel for w, _ in published.works({**trace, "ops": ops[:3]})]
    assert kinds == ["convolution", "relu_", "convolution", "weight gradient", "Adam"]
    first = published.works(trace)[0][0]
    assert first.flops == pytest.approx(convolution["flops"] / 2.25)
    found = published.validate({"vgg16": trace})
    assert [row.card for row in found.rows] == list(published.MILLISECONDS)
    assert found.error == published.error_of(found.rows) > 0
    steps = published.steps_of({"vgg16": trace})
    for row in found.rows:
        others = [name for name in published.MILLISECONDS if name != row.card]
        constants = published.fit(steps, others)
        (again,) = published.predict_all(steps, constants, [row.card])
        assert again.predicted == row.predicted


def _compiled(**changes) -> Compiled:
    return Compiled("dg2", "key", [Kernel("gemm", **changes)], {}, {}, {})


def test_gate_lets_private_memory_only_shrink() -> None:
    names = {"key": "gemm"}
    baseline = {"dg2": {"gemm:gemm": 64}}
    assert gate.faults([_compiled(private=64)], names, baseline) == []
    (more,) = gate.faults([_compiled(private=65)], names, baseline)
    assert "65 bytes of private memory on dg2" in more
    (less,) = gate.faults([_compiled()], names, baseline)
    assert "update-baseline" in less
    (new,) = gate.faults([_compiled(private=1)], names, {})
    assert "allows 0" in new
    (spill,) = gate.faults([_compiled(spills=4)], names, {})
    assert "gemm:gemm spills 4 on dg2" in spill
    broken = Compiled("dg2", "key", [], {}, {}, {}, "error: no such type")
    (fault,) = gate.faults([broken], names, {})
    assert "no such type" in fault


def test_gate_s_baseline_keeps_reasons() -> None:
    known = {"dg2": {"a:a": {"bytes": 64, "reason": "indexed"}, "b:b": {"bytes": 8}}}
    made = gate.updated(known, {"dg2": {"a:a": 32, "c:c": 4}})
    assert made["dg2"]["a:a"] == {"bytes": 32, "reason": "indexed"}
    assert set(made["dg2"]) == {"a:a", "c:c"}
    assert gate.bytes_of(made) == {"dg2": {"a:a": 32, "c:c": 4}}


def test_gate_counts_launches() -> None:
    most = gate.floors.LAUNCHES["unet"]
    assert gate.launch_faults({"unet": most}) == []
    (more,) = gate.launch_faults({"unet": most + 1, "lstm": 1})
    assert f"unet has {most + 1} launches" in more


def test_gate_compiles_one_product_of_a_tile() -> None:
    def product(rows: int, loads: str) -> Program:
        options = f"-DTILE_ROWS={rows} -DLEFT_LOADS={loads}"
        return Program('#line 1 "product_gpu.cl"', options)

    plain = [Program("kernel a", ""), Program("kernel b", "")]
    given = [product(64, "1"), product(64, "2"), product(128, "1"), *plain]
    assert gate.slice_of(given) == [given[0], given[2], *plain]


def test_each_target_has_the_traces_of_its_device(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(lab.tools, "BUILD", tmp_path)
    compiled: list[tuple[str, str]] = []

    class Compilers:
        def compile(self, programs, names, **_):
            compiled.extend((p.text, name) for p in programs for name in names)
            return []

    monkeypatch.setattr("gpu.compile.Compilers", Compilers)
    traces = [
        {"device": "", "programs": {"0": {"text": "a", "options": ""}}},
        {"device": "intel", "programs": {"0": {"text": "b", "options": ""}}},
    ]
    programs, _ = lab.compile_for(traces, ["gfx1030", "dg2", "sm_86"], 1)
    assert [program.text for program in programs] == ["a", "b"]
    assert compiled == [("a", "gfx1030"), ("a", "sm_86"), ("b", "dg2")]


def test_rows_of_two_devices_are_one() -> None:
    def row(card: str, launches: int) -> dict:
        by_card = {"milliseconds": {card: 1.0}, "share of peak": {card: 0.5}}
        by_card |= {"slowest": {card: []}, "reached": {card: {}}}
        return {"network": "bert", "mode": "train", "launches": launches, **by_card}

    (whole,) = report.merged([row("RTX 3060", 88), row("Arc A770", 90)])
    assert whole["launches"] == 88
    assert list(whole["milliseconds"]) == ["RTX 3060", "Arc A770"]


def test_programs_of_matrix_units() -> None:
    made = units.programs()
    assert made.keys() <= set(targets.TARGETS)
    for own in made.values():
        assert len({program.key for program in own}) == len(own)
        assert {program.name for program in own} == {
            "product_matrix",
            "attention_matrix",
            "attention_matrix_grad_query",
            "attention_matrix_grad_key_value",
        }
        assert "kernel" in own[0].text and "#include" not in own[0].text
