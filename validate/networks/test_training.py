"""Training over many steps: accuracy, memory, two processes at once."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tolerance import MULTIPLE, perturbed, relative_distance
from torch import nn

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "train_digits.py"
# Well under a minute: a step of the tiny network takes about 1 ms.
ITERATIONS = int(os.environ.get("TORCH_OPENCL_TEST_ITERATIONS", "5000"))


# In a working copy that is not installed, `import torch` loads no device.
LAUNCHER = """
import runpy, sys, torch_opencl
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_example(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(EXAMPLE), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen, accurate: bool = True) -> list[dict]:
    output, errors = process.communicate(timeout=170)
    # the example exits with 1 when it does not reach its accuracy
    assert process.returncode in ((0,) if accurate else (0, 1)), f"{output}\n{errors}"
    return json.loads(output)


def test_digits_reach_their_accuracy(device):
    [on_device] = finish(run_example("--device", str(device), "--json", "-"))
    assert on_device["accuracy"] > 0.97


@pytest.mark.gpu_class
def test_digits_begin_on_the_cpus_curve(device):
    arguments = ("--device", str(device), "--epochs", "1", "--compare-cpu")
    process = run_example(*arguments, "--json", "-")
    on_device, on_cpu = finish(process, accurate=False)
    assert on_device["losses"][:5] == pytest.approx(on_cpu["losses"][:5], rel=1e-5)


def _lbfgs(state, x, device, dtype, lr, noise=None):
    """Parameters after five steps, 100 iterations, of a network of 13. With a generator
    ``noise`` each gradient is changed by a rounding before it is used."""
    layers = nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 1), nn.Sigmoid()
    network = nn.Sequential(*layers)
    network.load_state_dict(state)
    network.to(device, dtype)
    optimizer = torch.optim.LBFGS(network.parameters(), lr=lr)

    def closure():
        optimizer.zero_grad()
        loss = network(x.to(device, dtype)).sum()
        loss.backward()
        for parameter in network.parameters() if noise else ():
            parameter.grad = perturbed(parameter.grad, noise)
        return loss

    for _ in range(5):
        optimizer.step(closure)
    return nn.utils.parameters_to_vector(network.parameters()).detach()


@pytest.mark.parametrize("lr", [1, 0.01])
def test_lbfgs_is_as_sensitive_as_on_the_cpu(device, lr):
    """Gradients a rounding away, whose differences set the steps, lead the CPU 1e-3 off
    (how-measured.md)."""
    state = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 1)).state_dict()
    x = torch.rand(3, 2)
    reference = _lbfgs(state, x, "cpu", torch.float64, lr)
    noise = torch.Generator().manual_seed(0)
    spread = [relative_distance(_lbfgs(state, x, "cpu", torch.float32, lr), reference)]
    for _ in range(6):
        near = {name: perturbed(value, noise) for name, value in state.items()}
        run = _lbfgs(near, perturbed(x, noise), "cpu", torch.float32, lr, noise)
        spread.append(relative_distance(run, reference))
    result = _lbfgs(state, x, device, torch.float32, lr)
    assert relative_distance(result, reference) <= MULTIPLE * max(spread)


STEPS = """
import sys, torch, torch_opencl
from torch import nn

device = sys.argv[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
inputs, target = torch.randn(4, 1, 8, 8).to(device), torch.tensor([0, 1, 2, 0])
for _ in range(10):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), target.to(device))
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_two_processes_share_a_cold_cache(device, tmp_path):
    def start() -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", STEPS, str(device)],
            env={**os.environ, "TORCH_OPENCL_CACHE_DIR": str(tmp_path / "cache")},
            stdout=subprocess.PIPE,
            text=True,
        )

    def losses(process: subprocess.Popen) -> list[float]:
        output, _ = process.communicate(timeout=170)
        assert process.returncode == 0
        return [float(line) for line in output.split()]

    first, second = (losses(process) for process in [start(), start()])
    assert first == second
    assert len(first) == 10 and first[-1] < first[0]
    assert losses(start()) == first, "a third process, which finds a warm cache"


@pytest.mark.timeout(600)
def test_constant_memory_over_many_steps(device):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 3)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    inputs = torch.randn(4, 1, 8, 8, device=device)
    target = torch.tensor([0, 1, 2, 0], device=device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), target).backward()
        optimizer.step()

    def memory() -> tuple[int, int, int]:
        gc.collect()
        torch.accelerator.synchronize(device)
        return (
            torch.opencl.memory_allocated(device),
            torch.opencl.memory_reserved(device),
            resident_bytes(),
        )

    for _ in range(50):
        step()
    allocated, reserved, resident = memory()
    for iteration in range(ITERATIONS):
        step()
        # As a loop that reports its loss does; drivers keep memory for as many
        # commands as have ever waited at once.
        if iteration % 100 == 0:
            torch.accelerator.synchronize(device)
    now = memory()
    # What tests before left behind may be freed meanwhile.
    assert now[0] <= allocated and now[1] <= reserved
    # The host's own: events, kernel arguments, driver objects of each launch.
    assert now[2] - resident < 64 * 2**20
    assert all(p.isfinite().all() for p in model.cpu().parameters())


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
