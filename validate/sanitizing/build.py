"""Builds the extension with a sanitizer, as a package of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "python/torch_opencl"
# As -fsanitize takes them, and the libraries that a process has to load first.
SANITIZERS = {
    "address": ("address,undefined", ("libasan.so", "libubsan.so")),
    "thread": ("thread", ("libtsan.so",)),
}


def folder(sanitizer: str) -> Path:
    return ROOT / "build" / f"sanitize-{sanitizer}"


def build(sanitizer: str, jobs: int) -> None:
    """Leaves the package in `folder(sanitizer)/package/torch_opencl`.

    Its Python files are links to the ones of this checkout. Raises SystemExit
    where the build fails; its messages are on the terminal.
    """
    where = folder(sanitizer)
    package = where / "package/torch_opencl"
    package.mkdir(parents=True, exist_ok=True)
    for link in package.iterdir():
        if link.is_symlink():
            link.unlink()
    for source in SOURCES.iterdir():
        if source.suffix != ".so" and source.name not in ("_generated", "__pycache__"):
            (package / source.name).symlink_to(source)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    configure = [
        "cmake",
        f"-S{ROOT}",
        f"-B{where / 'cmake'}",
        "-GNinja",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DTORCH_DIR={Path(torch.__file__).parent}",
        f"-DOUTPUT_DIR={package}",
        f"-DSANITIZE={SANITIZERS[sanitizer][0]}",
    ]
    compile = ["cmake", "--build", where / "cmake", "--parallel", str(jobs)]
    for command in (configure, compile):
        if subprocess.run(command, env=environment).returncode != 0:
            raise SystemExit(f"the build with sanitizer {sanitizer} failed")


def preloaded(sanitizer: str) -> list[str]:
    """Paths of what a process loads first: a dlopen() that drivers' flags cannot upset,
    and the sanitizer's libraries, as the compiler knows them."""
    compiler = os.environ.get("CXX", "c++")
    plain = folder(sanitizer) / "plain_dlopen.so"
    source = Path(__file__).parent / "plain_dlopen.c"
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-O1", source, "-o", plain]
    subprocess.run(command, check=True)
    paths = [str(plain)]
    for name in SANITIZERS[sanitizer][1]:
        query = [compiler, f"-print-file-name={name}"]
        path = subprocess.check_output(query, text=True).strip()
        if not os.path.isabs(path):
            raise SystemExit(f"{name} is missing: install the compiler's sanitizers")
        # A file of this name may be a text that names the library.
        paths.append(os.path.realpath(path))
    return paths


def known_faults(sanitizer: str) -> Path:
    """A library of the functions of known_faults.cpp, built as the extension is."""
    library = folder(sanitizer) / "known_faults.so"
    source = Path(__file__).parent / "known_faults.cpp"
    flags = f"-fsanitize={SANITIZERS[sanitizer][0]}"
    command = [os.environ.get("CXX", "c++"), flags, "-fno-omit-frame-pointer", "-g1"]
    command += ["-O1", "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)
    return library
