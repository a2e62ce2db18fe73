"""torch.profiler shows commands of the device, linked to ops."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

_BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
_DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")


def _work(device, x: torch.Tensor) -> None:
    with record_function("mine"):
        ((x @ x).exp() + torch.zeros(64, device=device)).cpu()


@pytest.fixture
def matrix(device) -> torch.Tensor:
    x = torch.randn(64, 64).to(device) / 64
    _work(device, x)  # compiles
    return x


def test_table_has_kernels_and_device_times(device, matrix) -> None:
    with profile(activities=_BOTH) as profiler:
        _work(device, matrix)
    averages = {row.key: row for row in profiler.key_averages()}
    assert averages["aten::mm"].self_device_time_total > 0
    assert averages["mine"].device_time_total > 0
    kernels = [event for event in profiler.events() if event.device_type.name != "CPU"]
    assert any("gemm" in kernel.name or ".cl:" in kernel.name for kernel in kernels)
    of_kernels = sum(kernel.device_time_total for kernel in kernels)
    of_ops = sum(
        row.self_device_time_total
        for key, row in averages.items()
        if key.startswith("aten::")
    )
    assert of_ops == pytest.approx(of_kernels, rel=0.01)
    assert "Self OPENCL" in profiler.key_averages().table()


def test_trace_links_commands_to_ops_in_time(device, matrix, tmp_path) -> None:
    with profile(activities=_BOTH) as profiler:
        _work(device, matrix)
    file = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(file))
    events = json.loads(file.read_text())["traceEvents"]
    ops = {
        event["args"]["External id"]: event
        for event in events
        if event.get("cat") in ("cpu_op", "user_annotation")
    }
    commands = [event for event in events if event.get("cat") in _DEVICE_EVENTS]
    assert {"kernel", "gpu_memcpy"} <= {command["cat"] for command in commands}
    end = max(event["ts"] + event["dur"] for event in ops.values())
    for command in commands:
        assert command["pid"] == device.index
        op = ops[command["args"]["External id"]]
        # Clocks are matched to within the time an enqueue takes.
        assert op["ts"] - 1000 <= command["ts"] <= end + 1000, command
    names = [ops[command["args"]["External id"]]["name"] for command in commands]
    assert "aten::mm" in names


def test_nothing_is_recorded_for_the_cpu_alone(device, matrix) -> None:
    # torch.opencl.profile would raise if commands were recorded already.
    with (
        profile(activities=[ProfilerActivity.CPU]) as profiler,
        torch.opencl.profile() as own,
    ):
        _work(device, matrix)
    assert own.launches > 0
    assert all(event.device_type.name == "CPU" for event in profiler.events())


def test_two_profilers_at_once_do_not_take_each_others_commands(device, matrix):
    with torch.opencl.profile() as own, profile(activities=_BOTH):
        _work(device, matrix)
    assert own.launches > 0


@pytest.mark.parametrize("use_kineto", [True, False])
def test_the_older_profiler(device, matrix, use_kineto, capfd) -> None:
    with (
        torch.opencl.device(device),
        torch.autograd.profiler.profile(
            use_device="opencl", use_kineto=use_kineto
        ) as profiler,
    ):
        _work(device, matrix)
    averages = {row.key: row for row in profiler.key_averages()}
    assert averages["aten::mm"].device_time_total > 0
    assert "xception" not in capfd.readouterr().err
