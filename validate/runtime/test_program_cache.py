"""Compiled programs on disk: reuse, damage, and directories that refuse."""

import json
from pathlib import Path

import pytest
from script import run_script

# Prints what became of the program of one fresh expression.
USE = """
import json
x = torch.arange(5.0, device=DEVICE)
assert x.mul(2).cpu().tolist() == [0, 2, 4, 6, 8]
statistics = torch_opencl._C._program_cache_stats(torch.device(DEVICE).index)
print(json.dumps(statistics))
"""


def use(device, directory: Path, **environment: str) -> dict:
    output = run_script(
        USE, device, TORCH_OPENCL_CACHE_DIR=str(directory), **environment
    )
    return json.loads(output.splitlines()[-1])


def test_second_process_loads_what_the_first_built(device, tmp_path):
    first = use(device, tmp_path)
    assert first["built"] > 0 and first["loaded"] == 0
    second = use(device, tmp_path)
    assert second["built"] == 0 and second["loaded"] == first["built"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty"])
def test_damaged_entries_are_built_again(device, tmp_path, damage):
    first = use(device, tmp_path)
    for path in tmp_path.glob("*.bin"):
        content = bytearray(path.read_bytes())
        if damage == "truncated":
            content = content[: len(content) // 2]
        elif damage == "changed":
            content[-1] ^= 0xFF
        else:
            content = bytearray()
        path.write_bytes(bytes(content))
    second = use(device, tmp_path)
    assert second["damaged"] == second["built"] == first["built"]
    assert use(device, tmp_path)["loaded"] == first["built"]


def test_a_directory_that_cannot_be_made_costs_nothing(device, tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")
    assert use(device, in_the_way / "cache")["built"] > 0


def test_size_limit(device, tmp_path):
    assert use(device, tmp_path, TORCH_OPENCL_CACHE_SIZE_MIB="0")["built"] > 0
    assert not list(tmp_path.iterdir())


def test_build_failure_says_kernel_options_and_log(device, tmp_path):
    output = run_script(
        """
        try:
            torch.ones(3, device=DEVICE) + 1
        except RuntimeError as error:
            print(error)
        """,
        device,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path),
        TORCH_OPENCL_BUILD_OPTIONS="-D kernel=no_such_word",
    )
    for part in ("Building the OpenCL kernel", "options:", "no_such_word", "source:"):
        assert part in output
