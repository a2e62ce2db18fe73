"""The report of ``python -m torch_opencl.diagnose``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch_opencl.diagnose.facts import collect
from torch_opencl.diagnose.libraries import HOW, libraries
from torch_opencl.diagnose.problems import find_problems, works

PACKAGES = Path(__file__).resolve().parents[2] / "python"


def diagnose(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "torch_opencl.diagnose", *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=150,
    )


@pytest.fixture(scope="module")
def facts() -> dict:
    return collect()


def whats(facts: dict) -> str:
    return "\n".join(problem.what for problem in find_problems(facts))


def fixes(facts: dict) -> str:
    return "\n".join(problem.fix for problem in find_problems(facts))


def test_json_has_every_device_in_our_order() -> None:
    result = diagnose("--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    import torch

    assert [device["device"] for device in report["devices"]] == [
        f"opencl:{index}" for index in range(torch.opencl.device_count())
    ]
    assert [device["name"] for device in report["devices"]] == [
        torch.opencl.get_device_name(index)
        for index in range(torch.opencl.device_count())
    ]
    assert {device["smoke_test"] for device in report["devices"]} == {"passed"}


def test_report_without_a_device_says_what_to_install() -> None:
    result = diagnose(TORCH_OPENCL_DEVICES="no such device")
    assert result.returncode == 1, result.stdout
    assert "TORCH_OPENCL_DEVICES=no such device selects no device" in result.stdout


def test_an_invalid_variable_is_named_and_nothing_crashes() -> None:
    result = diagnose(TORCH_OPENCL_FALLBACK="maybe")
    assert result.returncode == 1, result.stdout
    assert "TORCH_OPENCL_FALLBACK=maybe is not valid" in result.stdout


def test_an_extension_that_does_not_load_is_explained(tmp_path: Path) -> None:
    package = tmp_path / "torch_opencl"
    package.mkdir()
    for name in ("__init__.py", "diagnose"):
        (package / name).symlink_to(PACKAGES / "torch_opencl" / name)
    (package / "_C.py").write_text("raise ImportError('undefined symbol: x')\n")
    result = diagnose(PYTHONPATH=str(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 1, result.stdout
    assert "the extension did not load" in result.stdout
    assert "undefined symbol: x" in result.stdout
    assert "beside this torch (2.13 to 2.15)" in result.stdout


def test_an_extension_that_was_not_built_is_explained(tmp_path: Path) -> None:
    package = tmp_path / "torch_opencl"
    package.mkdir()
    for name in ("__init__.py", "diagnose"):
        (package / name).symlink_to(PACKAGES / "torch_opencl" / name)
    environment = {"PYTHONPATH": str(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    result = diagnose(**environment)
    assert result.returncode == 1, result.stdout
    assert f"the extension is not built in {package}" in result.stdout
    assert "make build" in result.stdout
    assert "circular import" not in result.stdout + result.stderr


def test_libraries_that_need_help_are_listed() -> None:
    names = ["torchvision", "transformers", "no-such-library"]
    rows = libraries(names, lambda _: "1.0")
    assert [row["name"] for row in rows] == ["transformers"]
    assert "ACCELERATE_TORCH_DEVICE" in rows[0]["how"]
    assert libraries(["transformers"], lambda _: None) == []
    page = PACKAGES.parent / "docs" / "libraries"
    named = {name for name in HOW if not (page / f"{name}.md").exists()}
    assert named <= {"pytorch-lightning"}


def test_the_report_can_be_pasted_into_an_issue() -> None:
    result = diagnose("--report", HOME=str(Path(sys.prefix).parent))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == lines[-1] == "```"
    import torch

    assert torch.__version__ in result.stdout
    for index in range(torch.opencl.device_count()):
        assert torch.opencl.get_device_name(index) in result.stdout
    assert str(Path(sys.prefix).parent) not in result.stdout


def test_a_machine_without_a_driver(facts: dict) -> None:
    bare = {
        **facts,
        "devices": [],
        "environment": [],
        "render_nodes": [],
        "discovery": ["no OpenCL loader (libOpenCL.so.1) was found"],
    }
    assert not works(bare)
    assert "ocl-icd-libopencl1" in fixes(bare)
    assert "intel-opencl-rt" in fixes(bare)
    assert "pocl-opencl-icd" in fixes(bare)


def test_a_gpu_that_the_user_may_not_open(facts: dict) -> None:
    node = {
        "node": "/dev/dri/renderD128",
        "accessible": False,
        "group": "render",
        "vendor": "0x8086",
    }
    closed = {**facts, "devices": [], "render_nodes": [node]}
    assert "/dev/dri/renderD128 exists and this user may not open it" in whats(closed)
    assert "sudo usermod -aG render" in fixes(closed)
    assert "intel-opencl-icd" in fixes({**closed, "environment": []})


def test_a_driver_that_lacks_its_libraries(facts: dict) -> None:
    lines = [
        "cannot load libsvml.so: cannot open shared object file",
        "cannot load libOpenCL.so.1: cannot open shared object file",
    ]
    broken = {**facts, "discovery": lines}
    assert "libsvml.so" in whats(broken)
    assert "libOpenCL.so.1" not in whats(broken)
    assert "intel-cmplr-lib-rt" in fixes(broken)


def test_an_unknown_variable(facts: dict) -> None:
    variable = {"name": "TORCH_OPENCL_DEBGU", "value": "1", "default": ""}
    misspelt = {**facts, "environment": [{**variable, "description": ""}]}
    assert "TORCH_OPENCL_DEBGU is set, and there is no such variable" in whats(misspelt)
