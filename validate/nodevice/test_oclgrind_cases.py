"""Which cases run in the simulator: one of each op of the op tables."""

from __future__ import annotations

import pytest
from oclgrinding import cases

_FILE = "validate/ops/test_op_table.py::test_forward"


def test_ops_of_the_op_tables_are_groups():
    names = {
        "add-float32-opencl0-Oclgrind": "add",
        "add-int64-opencl0-Oclgrind": "add",
        "div-floor_rounding-int16-opencl0-Oclgrind": "div-floor_rounding",
        "div-trunc_rounding-int16-opencl0-Oclgrind": "div-trunc_rounding",
    }
    for parameters, op in names.items():
        assert cases._group(f"{_FILE}[{parameters}]") == f"{_FILE}[{op}"


def test_cases_of_a_test_are_a_group():
    test = "validate/ops/test_scan.py::test_sums"
    assert cases._group(f"{test}[3-opencl0-Oclgrind]") == test


def test_kernels_that_are_seldom_chosen_are_groups():
    test = "validate/ops/test_seldom_chosen.py::test_kernel"
    names = [f"{test}[opencl0-Oclgrind-{kernel}]" for kernel in ("a_b", "c")]
    assert len({cases._group(name) for name in names}) == 2


def test_cases_with_a_parameter():
    tests = [f"test_a[opencl0-Oclgrind-size{i}-True]" for i in (1, 10, 2)]
    assert cases._fastest(tests, "size1") == tests[:1]
    assert cases._fastest(tests, None) == tests
    with pytest.raises(ValueError, match="size3"):
        cases._fastest(tests, "size3")
