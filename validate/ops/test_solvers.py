"""Every solver of convolutions and products, also where another is preferred."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, channels_last, check

# Images, channels, outputs, groups, kernel, stride, padding, dilation, size.
CONVOLUTIONS = [
    (2, 3, 5, 1, 3, 1, 1, 1, (7, 9)),
    (1, 17, 18, 1, 3, 1, 0, 1, (3, 4)),
    (2, 4, 24, 4, 3, 1, 1, 1, (6, 20)),
    (2, 4, 24, 4, 5, 2, 2, 2, (11, 9)),
    (2, 6, 6, 6, 3, 1, 1, 1, (9, 8)),
    (2, 6, 6, 6, 3, 2, 1, 1, (8, 16)),
    (2, 7, 5, 1, 1, 1, 0, 1, (6, 8)),
    (2, 6, 4, 2, 1, 1, 0, 1, (5, 3)),
    (3, 3, 9, 1, 7, 2, 3, 1, (15, 12)),
    (2, 50, 33, 1, 3, 2, 1, 1, (7, 8)),
    (1, 48, 17, 1, 3, 1, 2, 2, (9, 5)),
    (2, 32, 49, 1, 2, 3, 0, 1, (11, 8)),
    # Sums in parts, outputs in parts, several strips of rows.
    (1, 160, 80, 2, 3, 1, 1, 1, (5, 7)),
    (1, 48, 48, 2, 3, 1, 1, 1, (19, 47)),
    (1, 4, 4, 4, 5, 1, 2, 1, (70, 40)),
]
PRODUCTS = [(1, 1, 1), (3, 5, 7), (16, 33, 16), (17, 300, 4), (5, 9, 40), (33, 20, 35)]


@pytest.fixture(autouse=True)
def _settings_stay():
    with torch.backends.opencl.flags():
        yield


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize(
    "solver",
    [
        "depthwise",
        "direct_grouped",
        "implicit",
        "conv1x1",
        "winograd",
        "rotated_filter",
        "direct",
        "im2col",
    ],
)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(device, case, solver, layout):
    images, channels, outputs, groups, kernel, *geometry, size = case
    stride, padding, dilation = geometry
    x = torch.randn(images, channels, *size)
    if layout == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(outputs, channels // groups, kernel, kernel)
    inputs = [x, weight, torch.randn(outputs)]
    torch.backends.opencl.solver = solver
    check(
        lambda *tensors: F.conv2d(*tensors, stride, padding, dilation, groups),
        inputs,
        device,
    )


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dimensions", [1, 3])
def test_direct_in_other_dimensions(device, dimensions, is_transposed):
    size = {1: (19,), 3: (5, 7, 6)}[dimensions]
    name = f"conv{'_transpose' if is_transposed else ''}{dimensions}d"
    channels, outputs = (17, 50) if is_transposed else (50, 17)
    weight = torch.randn(17, 50, *[3] * dimensions)
    inputs = [torch.randn(2, channels, *size), weight, torch.randn(outputs)]
    torch.backends.opencl.solver = "direct"
    check(lambda *t: getattr(F, name)(*t, stride=2, padding=1), inputs, device)


# channels, outputs: of one tile of columns, of two, of a last tile of rows that
# begins in its neighbour, of fewer rows than a tile.
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "channels", [(16, 12), (48, 19), (64, 9), (96, 33), (32, 5), (2, 20)]
)
def test_gradient_as_it_lies(device, channels, stride):
    """1x1 weight gradients of channels_last images by direct sums."""
    inputs, outputs = channels
    torch.backends.opencl.solver = "direct"
    x = channels_last(torch.randn(3, inputs, 9, 7))
    weight = channels_last(torch.randn(outputs, inputs, 1, 1))
    check(lambda x, w: F.conv2d(x, w, stride=stride), [x, weight], device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("solver", ["tall_skinny", "packed", "tiles", "strided"])
@pytest.mark.parametrize("shape", PRODUCTS)
def test_product(device, shape, solver, dtype):
    rows, depth, columns = shape
    left, right = torch.rand(rows, depth) + 1, torch.rand(depth, columns) + 1
    bias = torch.randn(columns)
    torch.backends.opencl.solver = solver
    check(lambda *t: torch.addmm(*t, alpha=0.5, beta=2), [bias, left, right], device)
    check(torch.mm, [left, right.t().contiguous().t()], device, dtype)


def _choices_for(text: str) -> list[dict]:
    return [c for c in torch.backends.opencl.choices() if text in c["problem"]]


def test_the_fastest_is_taken_and_kept(device):
    # Sizes that nothing else in the tests has.
    x = torch.randn(2, 37, 23, 29)
    weight = torch.randn(41, 37, 3, 3)
    torch.backends.opencl.benchmark = True
    for _ in range(2):
        check(lambda *t: F.conv2d(*t, padding=1), [x, weight], device)
    choices = _choices_for("37 -> 41 channels")
    assert {c["problem"].split(":")[0] for c in choices} >= {
        "convolution",
        "convolution, data gradient",
        "convolution, weight gradient",
    }
    here = [c for c in choices if c["device"] == device.index]
    assert len({c["problem"] for c in here}) == len(here)
    for choice in here:
        times = choice["seconds"]
        assert not times or choice["fastest"] == min(times, key=times.get)


def test_what_adds_to_its_own_output_is_not_measured(device):
    torch.backends.opencl.benchmark = True
    out = torch.ones(19, 61)
    left, right = torch.rand(19, 3), torch.rand(3, 61)
    result = out.to(device).addmm_(left.to(device), right.to(device))
    torch.testing.assert_close(result.cpu(), out.addmm(left, right))
    assert not _choices_for("(19 x 3) (3 x 61)")
    assert not _choices_for("(19 x 3,")


def test_flags_restore(device):
    assert not torch.backends.opencl.benchmark
    with torch.backends.opencl.flags(benchmark=True, solver="im2col"):
        assert torch.backends.opencl.benchmark
        assert torch.backends.opencl.solver == "im2col"
        with torch.backends.opencl.flags(benchmark=False):
            assert not torch.backends.opencl.benchmark
            assert torch.backends.opencl.solver == "im2col"
    assert not torch.backends.opencl.benchmark
    assert not torch.backends.opencl.solver


_NETWORK = """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 24, 1),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.Flatten(),
        nn.Linear(24 * 16 * 16, 10),
    )
"""


def test_tune_tells_later_processes(device, tmp_path):
    (tmp_path / "small_network.py").write_text(_NETWORK)
    environment = {
        **os.environ,
        "TORCH_OPENCL_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(tmp_path),
    }
    command = [sys.executable, "-m", "torch_opencl.tune", "small_network:build"]
    command += ["--json", "--train", "--device", str(device)]
    command += ["--input", "2", "3", "33", "33"]
    exported = tmp_path / "card.json"
    command += ["--export", str(exported)]
    runs = []
    for _ in range(2):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        runs.append(json.loads(done.stdout))
    first, second = runs
    assert len(first) >= 8
    assert all(choice["seconds"] for choice in first)
    assert not any(choice["seconds"] for choice in second)
    # What only a solver that lost asked for is not asked again.
    known = {choice["problem"]: choice["fastest"] for choice in first}
    entry = json.loads(exported.read_text())
    assert entry["name"] == torch.opencl.get_device_properties(device).name
    assert entry["choices"].items() <= known.items()
    assert set(entry["choices"]) == {choice["problem"] for choice in second}
    assert second
    assert all(known[c["problem"]] == c["fastest"] for c in second)


@pytest.fixture
def captures(request):
    if request.config.getoption("guard"):
        pytest.skip("in guard mode no graph is captured")


@pytest.mark.usefixtures("captures")
def test_a_capture_takes_what_was_measured(device):
    if torch.opencl.get_device_properties(device).device_class != "gpu":
        pytest.skip("tiles are of kernels for GPUs")
    rows, depth, columns = (random.randrange(9, 200) for _ in range(3))
    left = torch.rand(rows, depth).to(device)
    right = torch.rand(depth, columns).to(device)
    torch.backends.opencl.benchmark = True
    left @ right
    names = {"strided": "gemm_strided", "tiles": "product_gpu"}
    problem = f"product: 1 x ({rows} x {depth}) ({depth} x {columns})"
    (choice,) = (c for c in _choices_for(problem) if c["device"] == device.index)
    with torch.opencl.device(device):
        graph = torch.accelerator.Graph()
        with graph:
            left @ right
        with torch.opencl.profile() as profile:
            graph.replay()
    launched = {kernel.name.split(":")[-1] for kernel in profile.kernels}
    assert launched & {*names.values()} == {names[choice["fastest"]]}


@pytest.mark.usefixtures("captures")
def test_a_capture_measures_nothing(device):
    rows, depth, columns = (random.randrange(9, 500) for _ in range(3))
    left = torch.rand(rows, depth).to(device)
    right = torch.rand(depth, columns).to(device)
    torch.backends.opencl.benchmark = True
    with torch.opencl.device(device):
        graph = torch.accelerator.Graph()
        with graph:
            out = left @ right
        graph.replay()
    torch.testing.assert_close(out.cpu(), left.cpu() @ right.cpu())
    assert not _choices_for(f"({rows} x {depth}) ({depth} x {columns})")


def test_an_error_of_what_ran_before_is_raised(device):
    ones = torch.ones(3, dtype=torch.int32).to(device)
    # Sizes of which no choice is on disk.
    rows, depth, columns = (random.randrange(9, 500) for _ in range(3))
    left = torch.rand(rows, depth).to(device)
    right = torch.rand(depth, columns).to(device)
    torch.backends.opencl.benchmark = True
    torch.opencl.synchronize(device)
    ones // torch.zeros_like(ones)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        left @ right
        torch.opencl.synchronize(device)


def test_a_layer_with_a_bias_measures_tiles(device):
    if torch.opencl.get_device_properties(device).device_class != "gpu":
        pytest.skip("tiles are of kernels for GPUs")
    x, weight = torch.rand(39, 51).to(device), torch.rand(53, 51).to(device)
    torch.backends.opencl.benchmark = True
    torch.backends.opencl.solver = "tiles"
    F.linear(x, weight, torch.rand(53).to(device))
    assert [c for c in _choices_for("(39 x 51,") if c["fastest"].startswith("tile_")]
