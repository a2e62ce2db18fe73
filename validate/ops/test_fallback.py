"""What happens to an op without a kernel, by TORCH_OPENCL_FALLBACK.

The policy is read once a process, so each case is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# Of torch's own tests, with a kernel on the CPU alone: it returns its first operand.
_OP = "aten::_test_functorch_fallback"
PROGRAM = """
import json, sys, warnings
import torch, torch_opencl

device = sys.argv[1]
x, y = torch.rand(5), torch.rand(5)
counts, errors = [], []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        try:
            result = torch._test_functorch_fallback(x.to(device), y.to(device))
            assert result.device == torch.device(device), result.device
            assert torch.equal(result.cpu(), x)
        except NotImplementedError as error:
            errors.append(str(error))
        counts.append(torch.opencl.fallback_stats())
torch.opencl.reset_fallback_stats()
print(json.dumps({
    "warnings": [str(w.message) for w in caught if "CPU" in str(w.message)],
    "errors": errors, "counts": counts, "after": torch.opencl.fallback_stats(),
}))
"""


@pytest.fixture
def run(device):
    def run(policy: str | None) -> dict:
        environment = dict(os.environ)
        environment.pop("TORCH_OPENCL_FALLBACK", None)
        if policy is not None:
            environment["TORCH_OPENCL_FALLBACK"] = policy
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(device)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("policy", [None, "warn"])
def test_warns_once_an_op(run, policy):
    outcome = run(policy)
    assert outcome["errors"] == []
    assert len(outcome["warnings"]) == 1
    assert _OP in outcome["warnings"][0]


def test_silent(run):
    outcome = run("silent")
    assert outcome["warnings"] == []
    assert outcome["errors"] == []


@pytest.mark.parametrize("policy", ["warn", "silent"])
def test_counts_by_op(run, policy):
    outcome = run(policy)
    totals = [sum(n for op, n in c.items() if _OP in op) for c in outcome["counts"]]
    assert totals == [1, 2, 3]
    assert outcome["after"] == {}


def test_error_names_the_op_and_the_variable(run):
    outcome = run("error")
    assert len(outcome["errors"]) == 3
    assert _OP in outcome["errors"][0]
    assert "TORCH_OPENCL_FALLBACK" in outcome["errors"][0]
    assert outcome["warnings"] == []


def test_this_suite_forbids_the_fallback(device):
    assert os.environ["TORCH_OPENCL_FALLBACK"] == "error"


def test_unknown_policy_is_refused(device):
    program = "import torch, torch_opencl, sys; torch.ones(1, device=sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(device)],
        env=dict(os.environ, TORCH_OPENCL_FALLBACK="never"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    text = done.stdout + done.stderr
    assert "TORCH_OPENCL_FALLBACK" in text
    assert "never" in text
