"""What is known of a device: backend/tuning, and files of TORCH_OPENCL_TUNING."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_opencl import _C, _tuning

SHIPPED = sorted((Path(__file__).parents[2] / "backend/tuning").glob("*.json"))


def _run(program: str, file: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "TORCH_OPENCL_TUNING": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )


_TUNING = """
import json, sys
from torch_opencl import _C
print(json.dumps(_C._tuning(int(sys.argv[1]))))
"""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_files_have_the_form_that_users_files_have(path):
    level, name, numbers, _ = _tuning._row(json.loads(path.read_text()))
    assert (level == "all") == (name == "") == (path.name == "all.json")
    known = _C._tuning(0)[0]
    assert set(numbers) <= set(known)
    if level == "all":
        assert set(numbers) == set(known)


def test_the_narrowest_level_takes_precedence(device, tmp_path):
    properties = torch.opencl.get_device_properties(device)
    names = list(_C._tuning(device.index)[0])[:4]
    levels = [
        ("all", ""),
        ("class", properties.device_class),
        ("vendor", properties.vendor[:5]),
        ("device", properties.name),
    ]
    # The widest has all four numbers, the narrowest only the last; written from
    # the narrowest on, so that the order in the file is not what decides.
    entries = [
        {
            "level": level,
            "name": name,
            "numbers": dict.fromkeys(names[i:], 100 + i),
            "choices": {f"problem {j}": level for j in range(i, 4)},
        }
        for i, (level, name) in enumerate(levels)
    ]
    others = [
        {"level": level, "name": "another", "numbers": dict.fromkeys(names, 7)}
        for level in ("class", "vendor", "architecture", "device")
    ]
    file = tmp_path / "levels.json"
    file.write_text(json.dumps([*others, *reversed(entries)]))
    done = _run(_TUNING, file, str(device.index))
    numbers, choices = json.loads(done.stdout)
    assert [numbers[name] for name in names] == [100, 101, 102, 103]
    assert choices == {f"problem {i}": level for i, (level, _) in enumerate(levels)}


_WRONG = {
    "no json": "{",
    "no object": "[3]",
    "another key": '{"level": "all", "number": {}}',
    "no level": '{"name": "gpu"}',
    "another level": '{"level": "card", "name": "x"}',
    "no name": '{"level": "device"}',
    "another number": '{"level": "all", "numbers": {"product_lunch": 3}}',
    "a small number": '{"level": "all", "numbers": {"product_launch": 0}}',
    "an endless number": '{"level": "all", "numbers": {"product_launch": 1e999}}',
    "no number": '{"level": "all", "numbers": {"product_launch": NaN}}',
    "a huge number": '{"level": "all", "numbers": {"product_launch": 1%s}}'
    % ("0" * 400),
    "half a character": '{"level": "all", "choices": {"\\ud800": "x"}}',
    "a text": '{"level": "all", "numbers": {"product_launch": "3"}}',
    "a wrong choice": '{"level": "all", "choices": {"product: 1": 3}}',
    "a later one": '[{"level": "all", "numbers": {"product_launch": 5}}, {"level": 1}]',
}


@pytest.mark.parametrize("text", _WRONG.values(), ids=_WRONG)
def test_a_wrong_file_is_left_out_with_a_warning(device, tmp_path, text):
    file = tmp_path / "wrong.json"
    file.write_text(text)
    done = _run(_TUNING, file, str(device.index))
    assert f"TORCH_OPENCL_TUNING={file} is not used" in done.stderr
    assert json.loads(done.stdout) == list(_C._tuning(device.index))


def test_what_could_not_run_is_not_exported(device):
    def choice(problem, **seconds):
        fastest = min(seconds, key=seconds.get, default="known")
        row = {"device": device.index, "problem": problem}
        return {**row, "fastest": fastest, "seconds": seconds}

    choices = [
        choice("one of two", a=float("inf"), b=2.0),
        choice("none", a=float("inf"), b=float("inf")),
        choice("on disk"),
        {**choice("elsewhere", a=1.0), "device": device.index + 1},
    ]
    entry = _tuning.entry_of(device, choices)
    assert entry["choices"] == {"one of two": "b", "on disk": "known"}
    assert entry["measured"]["seconds"] == {"one of two": {"b": 2.0}, "on disk": {}}
    json.dumps(entry, allow_nan=False)


def test_a_missing_file_is_left_out_with_a_warning(tmp_path):
    done = _run("import torch; torch.ones(2)", tmp_path / "none.json")
    assert "No such file" in done.stderr


_PRODUCT = """
import sys, torch
left, right = torch.randn(65, 70), torch.randn(70, 129)
with torch.opencl.profile() as profile:
    out = left.to(sys.argv[1]) @ right.to(sys.argv[1])
torch.testing.assert_close(out.cpu(), left @ right)
print([kernel.name for kernel in profile.kernels])
"""


def test_what_is_known_decides_the_solver(device, tmp_path):
    problem = "product: 1 x (65 x 70) (70 x 129), Float"
    entry = {"level": "all", "choices": {problem: "strided"}}
    file = tmp_path / "card.json"
    for solver, is_strided in (("strided", True), ("no such solver", False)):
        entry["choices"][problem] = solver
        file.write_text(json.dumps(entry))
        kernels = _run(_PRODUCT, file, str(device)).stdout
        assert ("gemm_strided" in kernels) == is_strided, kernels


_MEASURE = """
import json, sys, torch
from torch_opencl import _tuning
device = torch.device(sys.argv[1])
left, right = torch.randn(65, 700).to(device), torch.randn(700, 129).to(device)
with torch.backends.opencl.flags(benchmark=True):
    left @ right
print(json.dumps(_tuning.entry_of(device, torch.backends.opencl.choices())))
"""


def test_tiles_are_measured_exported_and_used(device, tmp_path):
    if torch.opencl.get_device_properties(device).device_class != "gpu":
        pytest.skip("tiles are of kernels for GPUs")
    file = tmp_path / "card.json"
    entry = json.loads(_run(_MEASURE, tmp_path / "none.json", str(device)).stdout)
    (tile,) = [problem for problem in entry["choices"] if problem.startswith("tile:")]
    assert "1 x (65 x 700, along depth by four) (700 x 129, along lines), Float" in tile
    assert entry["choices"][tile].startswith("tile_")
    program = _PRODUCT.replace("65, 70", "65, 700").replace("70, 129", "700, 129")
    for parts in (1, 2):
        entry["choices"][tile] = f"tile_32x128_{parts}"
        file.write_text(json.dumps(entry))
        kernels = _run(program, file, str(device)).stdout
        assert ("product_parts" in kernels) == (parts == 2), kernels
