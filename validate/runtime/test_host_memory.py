"""How much memory a device that computes in the host's has free."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch_opencl
from script import run_script

GIB, MIB, KIB = 2**30, 2**20, 2**10
MEMINFO = "MemTotal: 33554432 kB\nMemFree: 1048576 kB\nMemAvailable: 16777216 kB\n"


def available(root: Path, **files: str) -> int | None:
    """Of a machine with these files; "__" stands for "/"."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return torch_opencl._C._available_host_memory(str(root))


def group(root: Path, path: str, **files: str) -> None:
    folder = root / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_what_the_machine_has_available(tmp_path):
    assert available(tmp_path, proc__meminfo=MEMINFO) == 16 * GIB


def test_nothing_is_known_without_files(tmp_path):
    assert available(tmp_path) is None
    assert available(tmp_path, proc__meminfo="MemTotal: 1 kB\n") is None


def test_a_limit_of_version_2_and_those_above(tmp_path):
    group(
        tmp_path,
        "work/job",
        memory__max="max\n",
        memory__current=f"{3 * GIB}\n",
        memory__stat="anon 1\n",
    )
    group(
        tmp_path,
        "work",
        memory__max=f"{4 * GIB}\n",
        memory__current=f"{3 * GIB}\n",
        memory__stat=f"anon 5\ninactive_file {512 * MIB}\nactive_file 7\n",
    )
    found = available(
        tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/work/job\n"
    )
    assert found == 1536 * MIB


def test_a_limit_of_version_1(tmp_path):
    group(
        tmp_path,
        "memory/docker/abc",
        memory__limit_in_bytes=f"{2 * GIB}\n",
        memory__usage_in_bytes=f"{GIB}\n",
        memory__stat=f"inactive_file 1\ntotal_inactive_file {256 * MIB}\n",
    )
    group(
        tmp_path,
        "memory",
        memory__limit_in_bytes="9223372036854771712\n",
        memory__usage_in_bytes=f"{9 * GIB}\n",
        memory__stat="",
    )
    groups = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n"
    found = available(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup=groups)
    assert found == GIB + 256 * MIB


def test_a_container_sees_its_group_at_the_mount(tmp_path):
    # The path is the host's, and not below the container's mount.
    group(
        tmp_path,
        ".",
        memory__max=f"{GIB}",
        memory__current=f"{2 * GIB}",
        memory__stat="",
    )
    groups = "0::/system.slice/docker-abc.scope\n"
    found = available(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup=groups)
    assert found == 0  # over the limit, which was lowered


def test_the_machine_may_have_less_than_the_limit(tmp_path):
    group(tmp_path, "", memory__max=f"{64 * GIB}", memory__current="0")
    found = available(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/\n")
    assert found == 16 * GIB


@pytest.mark.parametrize("text", ["", "0", ":::", "memory", "0::", "1:memory:x\n\n:"])
def test_unknown_lines_of_groups(tmp_path, text):
    found = available(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup=text)
    assert found == 16 * GIB


def is_cpu(device: torch.device) -> bool:
    return not torch.opencl.get_device_properties(device).is_gpu


def test_free_memory_is_what_the_host_has(device):
    if not is_cpu(device):
        pytest.skip("a GPU has memory of its own")
    before = torch_opencl._C._available_host_memory("")
    free, total = torch.opencl.mem_get_info(device)
    after = torch_opencl._C._available_host_memory("")
    assert 0 < free <= total
    # Other processes take and free some meanwhile.
    assert free <= max(before, after) + 64 * MIB
    assert free >= 0.75 * min(before, after, total) - 256 * MIB


def test_allocations_end_in_an_error_before_the_host_has_no_more(device):
    """Memory that was promised and not touched counts: nothing here is touched
    but the first pages."""
    if not is_cpu(device):
        pytest.skip("a GPU has memory of its own")
    output = run_script(
        """
        available = torch_opencl._C._available_host_memory("")
        size = 1 << 28
        held = []
        try:
            while len(held) * size < 4 * available:
                held.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
            raise SystemExit("memory that does not exist was given")
        except torch.OutOfMemoryError as error:
            print(error)
        reserved = torch.opencl.memory_reserved(DEVICE)
        # Other processes may have freed some meanwhile.
        assert reserved <= 1.25 * available, (reserved, available)
        free, _ = torch.opencl.mem_get_info(DEVICE)
        assert free < 2 * size, free
        held.clear()
        torch.opencl.empty_cache()
        x = torch.ones(1000, device=DEVICE)
        assert x.sum().item() == 1000
        """,
        device,
    )
    assert "The host has" in output or "may use" in output
