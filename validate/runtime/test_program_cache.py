"""Compiled programs on disk: reuse, damage, and directories that refuse."""

import ctypes
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from script import run_script

_IN_CREATE = 0x100  # of <sys/inotify.h>

# Preloaded: names made of it can be foreseen.
FORESEEN = """
#include <string.h>
#include <sys/types.h>
ssize_t getrandom(void *bytes, size_t size, unsigned flags) {
  memset(bytes, 7, size);
  return size;
}
"""

# Prints what became of the program of one fresh expression. Warnings come first.
USE = """
import json, os
os.dup2(1, 2)
x = torch.arange(5.0, device=DEVICE)
assert x.mul(2).cpu().tolist() == [0, 2, 4, 6, 8]
statistics = torch_opencl._C._program_cache_stats(torch.device(DEVICE).index)
print(json.dumps(statistics))
"""


def output_of(device, directory: Path, before: str = "", **environment: str) -> str:
    return run_script(
        before + USE, device, TORCH_OPENCL_CACHE_DIR=str(directory), **environment
    )


def use(device, directory: Path, **arguments: str) -> dict:
    return json.loads(output_of(device, directory, **arguments).splitlines()[-1])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_the_users_own(device, tmp_path, umask):
    directory = tmp_path / "parent" / "cache"
    use(device, directory, before=f"import os; os.umask({umask})\n")
    entries = list(directory.iterdir())
    assert entries and all(path.suffix == ".bin" for path in entries)
    assert {mode_of(path) for path in entries} == {0o600}
    assert mode_of(directory) == mode_of(directory.parent) == 0o700


def refused(device, directory: Path) -> str:
    """The warning of a process that must not use the directory."""
    before = {path: path.read_bytes() for path in directory.iterdir()}
    output = output_of(device, directory)
    found = json.loads(output.splitlines()[-1])
    assert found["loaded"] == 0 and found["built"] > 0
    assert {path: path.read_bytes() for path in directory.iterdir()} == before
    assert output.count("is not used") == 1, output
    return output


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_directory_that_others_can_write_to_is_not_used(device, tmp_path, mode):
    use(device, tmp_path)
    tmp_path.chmod(mode)
    assert "other users can write to it" in refused(device, tmp_path)


@pytest.mark.parametrize("mode", [0o755, 0o750])
def test_a_directory_that_others_could_only_read_is_kept(device, tmp_path, mode):
    first = use(device, tmp_path)
    tmp_path.chmod(mode)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    second = use(device, tmp_path)
    assert second["built"] == 0 and second["loaded"] == first["built"]
    assert mode_of(tmp_path) == 0o700
    assert {mode_of(path) for path in tmp_path.iterdir()} == {0o600}


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@only_root
def test_the_directory_of_another_user_is_not_used(device, tmp_path):
    use(device, tmp_path)
    os.chown(tmp_path, 12345, -1)
    assert "belongs to another user" in refused(device, tmp_path)


@only_root
def test_a_link_of_another_user_is_not_followed(device, tmp_path):
    directory, link = tmp_path / "cache", tmp_path / "link"
    use(device, directory)
    link.symlink_to(directory)
    os.chown(link, 12345, -1, follow_symlinks=False)
    assert "link of another user" in refused(device, link)
    os.chown(link, os.geteuid(), -1, follow_symlinks=False)
    assert use(device, link)["built"] == 0


def plant_writable(path: Path) -> None:
    path.chmod(0o666)


def plant_owned(path: Path) -> None:
    os.chown(path, 12345, -1)


def plant_link(path: Path) -> None:
    elsewhere = path.parent.with_name("elsewhere")
    elsewhere.mkdir(exist_ok=True)
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)


def plant_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def plant_large(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(3 << 20)


@pytest.mark.parametrize(
    "plant",
    [
        plant_writable,
        pytest.param(plant_owned, marks=only_root),
        plant_link,
        plant_fifo,
        plant_large,
    ],
)
def test_planted_entries_are_not_loaded(device, tmp_path, plant):
    directory = tmp_path / "cache"
    first = use(device, directory)
    for path in list(directory.iterdir()):
        plant(path)
    second = use(device, directory, TORCH_OPENCL_CACHE_SIZE_MIB="2")
    assert second["loaded"] == 0
    assert second["built"] == first["built"]
    # Large entries exceed the limit: the first one stored drops the others.
    least = 1 if plant is plant_large else first["built"]
    assert least <= second["damaged"] <= first["built"]
    entries = list(directory.iterdir())
    assert all(stat.S_ISREG(path.lstat().st_mode) for path in entries)
    assert {mode_of(path) for path in entries} == {0o600}
    assert use(device, directory)["loaded"] == first["built"]
    for path in tmp_path.glob("elsewhere/*"):
        assert path.stat().st_size > 0  # what a link led to is not touched


def test_temporaries_count_and_are_removed_when_abandoned(device, tmp_path):
    tmp_path.chmod(0o700)
    abandoned, written = tmp_path / "a.bin.0123.tmp", tmp_path / "b.bin.4567.tmp"
    for path in (abandoned, written):
        path.write_bytes(bytes(2 << 20))
    long_ago = time.time() - 3600
    os.utime(abandoned, (long_ago, long_ago))
    use(device, tmp_path, TORCH_OPENCL_CACHE_SIZE_MIB="1")
    assert not abandoned.exists()
    # Somebody writes the other one; it leaves no room for entries.
    assert list(tmp_path.iterdir()) == [written]


def test_temporaries_have_names_of_their_own(device, tmp_path):
    """Random ones: nobody can lie in wait, and two processes do not meet."""
    tmp_path.chmod(0o700)
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, os.fsencode(tmp_path), _IN_CREATE) > 0
    names, built = [], 0
    for _ in range(2):
        built += use(device, tmp_path)["built"]
        created = os.read(watch, 1 << 20)
        names += re.findall(rb"([0-9a-f]{32}\.bin\.[0-9a-f]{16})\.tmp", created)
        for path in tmp_path.iterdir():
            path.unlink()
    os.close(watch)
    assert len(set(names)) == len(names) == built > 0
    assert len({name[:32] for name in names}) == built // 2  # the same entries


@pytest.mark.one_device
def test_a_temporary_that_exists_is_not_written_to(device, tmp_path):
    """Somebody who could foresee its name gets no program into the cache."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler for a getrandom() that can be foreseen")
    library, directory = tmp_path / "random.so", tmp_path / "cache"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=FORESEEN, text=True, check=True)
    preload = f"{library} {os.environ.get('LD_PRELOAD', '')}"
    first = use(device, directory, LD_PRELOAD=preload)
    entries = list(directory.iterdir())
    assert first["built"] == len(entries) > 0
    planted = [path.with_name(f"{path.name}.{'07' * 8}.tmp") for path in entries]
    for entry, plant in zip(entries, planted, strict=True):
        entry.rename(plant)
        plant.write_bytes(b"planted")
    assert use(device, directory, LD_PRELOAD=preload)["built"] == first["built"]
    assert {path.read_bytes() for path in planted} == {b"planted"}
    assert sorted(directory.iterdir()) == sorted(planted)


def test_the_directory_is_scanned_now_and_then(device, tmp_path):
    """By the first store and by one over the limit, not by each."""
    output = run_script(
        """
        import os, pathlib, time
        def compile(number, comment=""):
            source = "kernel void k(global float* x) { x[0] = %d; } // %s"
            kernel = torch_opencl.RawKernel(source % (number, comment), "k")
            kernel((1,), (1,), (torch.zeros(1, device=DEVICE),))
        compile(0)
        abandoned = pathlib.Path(os.environ["TORCH_OPENCL_CACHE_DIR"], "a.bin.01.tmp")
        abandoned.write_bytes(b"")
        os.utime(abandoned, (time.time() - 3600,) * 2)
        for number in range(1, 11):
            compile(number)
        print(abandoned.exists())
        for number in (11, 12):
            compile(number, "x" * (2400 << 10))
        print(abandoned.exists())
        """,
        device,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path),
        TORCH_OPENCL_CACHE_SIZE_MIB="4",  # PoCL's entries take 100 KiB and more
    )
    assert output.split() == ["True", "False"]


def test_the_oldest_entries_make_room(device, tmp_path):
    tmp_path.chmod(0o700)
    old, newer = tmp_path / "old.bin", tmp_path / "newer.bin"
    for path, age in ((old, 7200), (newer, 3600)):
        path.write_bytes(bytes(600 << 10))
        os.utime(path, (time.time() - age,) * 2)
    use(device, tmp_path, TORCH_OPENCL_CACHE_SIZE_MIB="1")
    assert not old.exists()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1 << 20


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
