"""A training step of each network: every tensor right, no op on the CPU.

Images are small here; `make validate` runs the same at full size.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from networks import models
from networks.problem import Problem, make_problem
from networks.report import failures
from networks.step import check

VALIDATE = Path(__file__).parent.parent
SIZES = {"alexnet": 64, "resnet18": 64, "squeezenet1_0": 48, "googlenet": 64}


@cache
def small_problem(network: str, optimizer: str = "sgd") -> Problem:
    size = SIZES[network]
    return make_problem(network, image_size=size, optimizer=optimizer)[0]


def assert_step(device: torch.device, network: str, optimizer: str = "sgd") -> None:
    result = check(small_problem(network, optimizer), str(device))
    assert result.passed, "\n".join(failures(result))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("network", models.NETWORKS)
def test_training_step(device, network):
    assert_step(device, network)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_optimizer(device, optimizer):
    assert_step(device, "squeezenet1_0", optimizer)


def test_signs_at_kinks_are_all_that_a_stem_differs_by(device):
    """The first layer of timm's volo_d1_224 (docs/lab/how-measured.md): its gradient
    along the device's own signs of the ReLU is as near to float64 as the CPU's."""
    torch.manual_seed(1)
    convolution = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    stem = torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(64)).eval()
    image, weights = torch.randn(1, 3, 224, 224), torch.randn(1, 64, 112, 112)

    def gradient(there, dtype, is_positive=None):
        model = copy.deepcopy(stem).to(there, dtype)
        features = model(image.to(there, dtype))
        kept = features.relu() if is_positive is None else features * is_positive
        (kept * weights.to(there, dtype)).mean().backward()
        return (features > 0).cpu(), model[0].weight.grad.double().cpu()

    errors = {}
    for there in ("cpu", device):
        is_positive, found = gradient(there, torch.float32)
        _, expected = gradient("cpu", torch.float64, is_positive)
        errors[there] = ((found - expected).norm() / expected.norm()).item()
    assert errors[device] <= 4 * errors["cpu"] + 1e-6, errors


def test_classification_prints_the_same_on_the_device_and_the_cpu(device):
    outputs = [classify("--device", name).stdout for name in ("cpu", str(device))]
    assert outputs[0] == outputs[1]
    lines = [line.split(",") for line in outputs[0].splitlines()]
    assert [line[0] for line in lines] == ["lights.ppm", "sphere.ppm", "stripes.ppm"]
    assert all(line[1].isdigit() and line[2] for line in lines)


def test_weights_from_a_file(device, tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(models.build("squeezenet1_0", seed=5).to(device).state_dict(), path)
    arguments = ("--model", "squeezenet1_0", "--device", str(device))
    from_file = classify(*arguments, "--weights", str(path)).stdout
    assert from_file == classify(*arguments, "--seed", "5").stdout


def test_wrong_device_and_missing_picture_are_reported(device):
    failed = classify("--device", "opencl:99", check=False)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    assert "99" in failed.stderr
    failed = classify("no_such_picture.ppm", check=False)
    assert failed.returncode == 2
    assert "no_such_picture.ppm" in failed.stderr


def classify(*arguments: str, check: bool = True) -> subprocess.CompletedProcess:
    pictures = sorted(map(str, (VALIDATE / "images").glob("*.ppm")))
    done = subprocess.run(
        [sys.executable, str(VALIDATE / "validate_network.py"), *arguments, *pictures],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done
