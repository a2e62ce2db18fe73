"""What run_oclgrind.py makes of a simulator's and of pytest's words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from script import run_script
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1]))

from oclgrinding import cases, simulator

_FIRST, _SECOND, _THIRD = (f"validate/ops/test_a.py::test_b[x-{i}]" for i in range(3))


def test_outcomes_are_read_between_launches():
    output = f"""
{_FIRST} torch_opencl: launch softmax.cl:softmax_contiguous (1, 1, 1)
PASSED
{_SECOND} FAILED
FAILED {_SECOND} - AssertionError: too far
"""
    found = simulator.outcomes(output, [_FIRST, _SECOND], 1, 60)
    assert found == [
        simulator.Outcome(_FIRST, "passed"),
        simulator.Outcome(_SECOND, "failed", "AssertionError: too far"),
    ]


def test_the_test_that_ended_the_process_is_named():
    late = f"{_FIRST} PASSED\n{_SECOND} \n+++++ Timeout +++++\n"
    found = simulator.outcomes(late, [_FIRST, _SECOND, _THIRD], 1, 60)
    assert [(o.test, o.status) for o in found] == [
        (_FIRST, "passed"),
        (_SECOND, "stopped"),
    ]
    crashed = simulator.outcomes(
        f"{_FIRST} PASSED\n{_SECOND} ", [_FIRST, _SECOND], -11, 60
    )
    assert [(o.test, o.status) for o in crashed] == [
        (_FIRST, "passed"),
        (_SECOND, "failed"),
    ]


def test_kernels_are_found_in_the_sources():
    found = cases.kernels()
    assert {"softmax:softmax_contiguous", "scan:cumulative_sum"} <= found
    assert not any(name.rpartition(":")[2].isupper() for name in found)
    assert len(found) > 150


def test_launches_are_named_as_in_the_sources():
    output = """
torch_opencl: launch softmax.cl:softmax_contiguous (1, 1, 1)
torch_opencl: launch shuffle_pixels:shuffle_pixels (64, 1, 1)
"""
    found = simulator.launched(output)
    assert found == {"softmax:softmax_contiguous", "shuffle_pixels:shuffle_pixels"}
    assert found <= cases.kernels()


def test_a_stray_write_is_a_report(tmp_path):
    if not simulator.LIBRARY.exists():
        pytest.skip("oclgrind is not installed")
    log = tmp_path / "oclgrind.log"
    run_script(
        """
        kernel = torch_opencl.RawKernel(
            "kernel void stray(TENSOR(float, x), long i) { POINTER(x)[i] = 1; }",
            "stray",
        )
        x = torch.zeros(100, device="opencl")
        kernel((1,), (1,), (x, 1 << 21))
        torch.opencl.synchronize()
        """,
        **simulator.environment("gpu", tmp_path),
    )
    run = simulator.Run("gpu")
    run.add_reports(log.read_text())
    run.add_reports(log.read_text().replace("0x1", "0x2").replace("(0,0,0)", "(1,0,0)"))
    assert len(run.reports) == 1
    assert "Invalid write of size 4" in run.reports[0] and "stray" in run.reports[0]


def test_what_is_left_out_exists():
    folder = Path(__file__).parents[1] / "ops"
    assert set(cases.LEFT_OUT_KERNELS) <= cases.kernels()
    ops = {info.name for info in op_db}
    by_stem = [*cases.LEFT_OUT.items(), *cases.LEFT_OUT_OF_GPU_CLASS.items()]
    for stem, tests in by_stem:
        text = (folder / f"test_{stem}.py").read_text()
        for test in tests:
            function, _, op = test.partition("[")
            assert f"def {function}(" in text, f"{stem}: {test}"
            assert not op or op in ops, f"{stem}: {test}"
