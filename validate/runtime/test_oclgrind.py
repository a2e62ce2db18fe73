"""What run_oclgrind.py makes of a simulator's and of pytest's words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from script import run_script
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1]))

import run_oclgrind
from oclgrinding import cases, simulator

_TESTS = """
import sys
import pytest

def test_prints():
    print("validate/ops/test_a.py::test_fails PASSED")
    sys.stderr.write("a warning without an end of line")

def test_fails():
    raise ValueError("too far\\nby much")

@pytest.fixture
def broken():
    yield
    raise OSError("in teardown")

def test_fails_late(broken):
    pass

def test_skips():
    pytest.skip("no such device")

def test_ends_the_process():
    import os
    os._exit(3)

def test_is_not_reached():
    pass
"""


def test_outcomes_do_not_depend_on_what_is_printed(tmp_path):
    tests = tmp_path / "test_sample.py"
    tests.write_text(_TESTS)
    events = tmp_path / "outcomes"
    plugins = ["-p", "no:cacheprovider", "-p", "oclgrinding.outcome_file"]
    options = ["-s", "-v", "--rootdir", str(tmp_path), "--outcomes", str(events)]
    subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options, str(tests)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
    )
    found = simulator.outcomes(events.read_text(), "", "the end")
    assert found == [
        simulator.Outcome("test_sample.py::test_prints", "passed"),
        simulator.Outcome(
            "test_sample.py::test_fails", "failed", "ValueError: too far"
        ),
        simulator.Outcome(
            "test_sample.py::test_fails_late", "failed", "OSError: in teardown"
        ),
        simulator.Outcome("test_sample.py::test_skips", "skipped"),
        simulator.Outcome("test_sample.py::test_ends_the_process", "failed", "the end"),
    ]
    late = simulator.outcomes(events.read_text(), "not done in 60 seconds", "")
    assert late[-1] == simulator.Outcome(
        "test_sample.py::test_ends_the_process", "stopped", "not done in 60 seconds"
    )


def test_a_test_has_its_seconds():
    """A stopped one has those until its process ended."""
    lines = ""
    for test, event, at in (
        ("a", "started", 1), ("a", "passed", 3), ("a", "ended", 4), ("b", "started", 5),
    ):  # fmt: skip
        line = {"test": test, "event": event, "reason": "", "time": at}
        lines += json.dumps(line) + "\n"
    first, second = simulator.outcomes(lines, "late", "")
    assert first.seconds == 3 and second.seconds > 1e9
    slowest = run_oclgrind.slowest([simulator.Run("gpu", [first, second])])
    assert slowest[0].endswith("gpu b") and slowest[1] == "3 s: gpu a"


def test_only_a_run_of_all_is_full():
    full = run_oclgrind.parse([])
    assert run_oclgrind.is_full(full)
    for arguments in (["--classes", "gpu"], ["--tests", "scan"]):
        assert not run_oclgrind.is_full(run_oclgrind.parse(arguments))


@pytest.mark.parametrize(
    ("outcome", "report", "idle", "status"),
    [
        ("passed", [], [], 0),
        ("skipped", [], [], 0),
        ("stopped", [], [], 1),
        ("failed", [], [], 1),
        ("passed", ["Kernel: a"], [], 1),
        ("passed", [], ["scan:cumulative_sum"], 1),
    ],
)
def test_what_the_exit_status_says(monkeypatch, outcome, report, idle, status):
    def tests(run, ids, limit):
        run.outcomes = [simulator.Outcome("a", outcome)]
        run.reports = report
        run.kernels = cases.kernels() - set(idle)
        return run.outcomes

    monkeypatch.setattr(simulator.Run, "tests", tests)
    monkeypatch.setattr(cases, "choose", lambda *arguments: {"scan": ["a"]})
    monkeypatch.setattr(simulator, "LIBRARY", Path(__file__))
    monkeypatch.setattr(sys, "argv", ["run_oclgrind.py"])
    assert run_oclgrind.main() == status
    monkeypatch.setattr(sys, "argv", ["run_oclgrind.py", "--tests", "scan"])
    assert run_oclgrind.main() == (0 if idle else status)


def test_kernels_are_found_in_the_sources():
    found = cases.kernels()
    assert {"softmax:softmax_contiguous", "scan:cumulative_sum"} <= found
    # A macro is the name or begins the definition, or the text is included.
    made = {"scan_groups:scan_groups", "scan_groups:scan_totals"}
    made |= {"random:random_cauchy", "attention_matrix:attention_matrix"}
    assert made | {"random:random_by_rejection"} <= found
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
    by_stem += cases.FASTEST.items()
    for stem, tests in by_stem:
        text = (folder / f"test_{stem}.py").read_text()
        for test in tests:
            function, _, op = test.partition("[")
            assert f"def {function}(" in text, f"{stem}: {test}"
            assert not op or op in ops, f"{stem}: {test}"
