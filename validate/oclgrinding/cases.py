"""Which of the kernel tests run in the simulator, and which kernels there are."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from oclgrinding import simulator

ROOT = Path(__file__).resolve().parents[2]
_TESTS = ROOT / "validate/ops"
_KERNEL = re.compile(r"^\s*(?:__)?kernel\b[^;{]*?\b(\w+)\s*\(", re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\bKERNEL\b")


def stems() -> list[str]:
    """Of the files with kernel tests."""
    return sorted(path.stem.removeprefix("test_") for path in _TESTS.glob("test_*.py"))


def kernels() -> set[str]:
    """Names in the .cl files, but for those that a macro makes."""
    found = set()
    for path in (ROOT / "backend").rglob("*.cl"):
        text = _ATTRIBUTE.sub("", re.sub(r"//.*", "", path.read_text()))
        found.update(f"{path.name}:{name}" for name in _KERNEL.findall(text))
    return found


def _group(test: str) -> str:
    """Cases of one group are alike: those of a test, and of an op in the op tables."""
    name, _, parameters = test.partition("[")
    if "test_op_table" not in name:
        return name
    op = parameters.split("-")[2:3]
    return f"{name}[{op}"


def choose(
    wanted: list[str], device_class: str, cases: int, seed: int
) -> dict[str, list[str]]:
    """stem -> ids of tests."""
    files = [f"validate/ops/test_{stem}.py" for stem in wanted]
    command = [*simulator.pytest(device_class), "--collect-only", "-q", "--full"]
    listed = subprocess.run(
        [sys.executable, *command, *files],
        cwd=ROOT,
        env=simulator.environment(device_class),
        capture_output=True,
        text=True,
    )
    ids = [line for line in listed.stdout.splitlines() if "::" in line]
    if not ids:
        raise RuntimeError(f"no test was found:\n{listed.stdout}\n{listed.stderr}")
    groups = defaultdict(list)
    for test in ids:
        groups[_group(test)].append(test)
    chosen = defaultdict(list)
    for name, members in groups.items():
        if "test_op_table" in name and "test_forward" not in name:
            continue  # the same kernels, once more
        stem = name.partition("::")[0].rpartition("/test_")[2].removesuffix(".py")
        members = random.Random(f"{seed} {name}").sample(members, len(members))
        chosen[stem] += members[:cases]
    return dict(chosen)
