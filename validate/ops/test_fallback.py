"""What happens to an op without a kernel, by TORCH_OPENCL_FALLBACK.

The policy is read once a process, so each case is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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
            result = OP_CALL
            assert result.device == torch.device(device), result.device
            assert torch.equal(result.cpu(), OP_EXPECTED)
        except NotImplementedError as error:
            errors.append(str(error))
        counts.append(torch.opencl.fallback_stats())
torch.opencl.reset_fallback_stats()
print(json.dumps({
    "warnings": [str(w.message) for w in caught if "CPU" in str(w.message)],
    "errors": errors, "counts": counts, "after": torch.opencl.fallback_stats(),
}))
"""


def missing_op() -> tuple[str, str, str]:
    """Name, call and expectation of an op that has no kernel here yet."""
    import torch

    candidates = {
        "aten::_add_relu": (
            "torch._add_relu(x.to(device), y.to(device))",
            "torch._add_relu(x, y)",
        ),
        "aten::_aminmax": (
            "torch._aminmax(x.to(device))[1]",
            "torch._aminmax(x)[1]",
        ),
        "aten::_dirichlet_grad": (
            "torch._dirichlet_grad(*(t.to(device) for t in (x, y, x + y)))",
            "torch._dirichlet_grad(x, y, x + y)",
        ),
    }
    for name, (call, expected) in candidates.items():
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
        overloads = [
            getattr(packet, overload).name() for overload in packet.overloads()
        ]
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        if not any(has_kernel(overload, "PrivateUse1") for overload in overloads):
            return name, call, expected
    pytest.fail("every candidate has a kernel by now: name other ops here")


@pytest.fixture
def run(device):
    name, call, expected = missing_op()
    program = PROGRAM.replace("OP_CALL", call).replace("OP_EXPECTED", expected)

    def run(policy: str | None) -> dict:
        environment = dict(os.environ)
        environment.pop("TORCH_OPENCL_FALLBACK", None)
        if policy is not None:
            environment["TORCH_OPENCL_FALLBACK"] = policy
        done = subprocess.run(
            [sys.executable, "-c", program, str(device)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # the name without the overload, which is the dispatcher's choice
        return json.loads(done.stdout) | {"op": name}

    return run


@pytest.mark.parametrize("policy", [None, "warn"])
def test_warns_once_an_op(run, policy):
    outcome = run(policy)
    assert outcome["errors"] == []
    assert len(outcome["warnings"]) == 1
    assert outcome["op"] in outcome["warnings"][0]


def test_silent(run):
    outcome = run("silent")
    assert outcome["warnings"] == []
    assert outcome["errors"] == []


@pytest.mark.parametrize("policy", ["warn", "silent"])
def test_counts_by_op(run, policy):
    outcome = run(policy)
    totals = [
        sum(n for op, n in c.items() if outcome["op"] in op) for c in outcome["counts"]
    ]
    assert totals == [1, 2, 3]
    assert outcome["after"] == {}


def test_error_names_the_op_and_the_variable(run):
    outcome = run("error")
    assert len(outcome["errors"]) == 3
    assert outcome["op"] in outcome["errors"][0]
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
