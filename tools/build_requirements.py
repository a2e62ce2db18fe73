"""What a build needs beyond setuptools, and whether this machine has it.

Standard library only: pip's isolated build, setup.py and
setup_environment.py all read it before anything is installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys

# What is installed where there is none: what the tests of each change run with.
TORCH = "torch==2.13.0"
# What the source builds against, and the torchvision of each series, if any yet.
TORCHVISION = {
    "2.13": "torchvision==0.28.*",
    "2.14": "torchvision==0.29.*",
    "2.15": None,
}
_CMAKE_MINIMUM = (3, 24)

_LOCATE = (
    "import importlib.metadata as m, importlib.util as u, os; s = u.find_spec('torch');"
    "s and print(os.path.dirname(s.origin), m.version('torch'), sep='\\n')"
)


def _torch_here() -> tuple[str, str] | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return os.path.dirname(spec.origin), importlib.metadata.version("torch")


def _torch_of_environment() -> tuple[str, str] | None:
    """The torch outside the build environment.

    pip isolates a build by a sitecustomize that it puts on PYTHONPATH; an
    interpreter that ignores PYTHONPATH sees the environment the build is for.
    """
    found = subprocess.run(
        [sys.executable, "-E", "-P", "-c", _LOCATE],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")
    return (found[0], found[1]) if len(found) >= 2 else None


def series_of(version: str) -> str:
    """ "2.13" of "2.13.0+cpu"."""
    return ".".join(version.split(".")[:2])


def find_torch() -> tuple[str, str] | None:
    """Directory and version of a torch that the extension can be built against."""
    for torch in (_torch_here(), _torch_of_environment()):
        if torch is not None and series_of(torch[1]) in TORCHVISION:
            return torch
    return None


def missing_build_tools() -> list[str]:
    """Requirements for the tools that PATH does not offer."""
    missing = []
    cmake = shutil.which("cmake")
    if cmake is None or _cmake_version(cmake) < _CMAKE_MINIMUM:
        missing.append("cmake>=" + ".".join(map(str, _CMAKE_MINIMUM)))
    if shutil.which("ninja") is None:
        missing.append("ninja")
    return missing


def _cmake_version(cmake: str) -> tuple[int, ...]:
    output = subprocess.run(
        [cmake, "--version"], capture_output=True, text=True, check=False
    )
    match = re.search(r"(\d+)\.(\d+)", output.stdout)
    return tuple(map(int, match.groups())) if match else (0,)
