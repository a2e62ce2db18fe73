"""Finds and installs what the laboratory needs, and builds its own libraries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "gpu"
# Unpacked here: mesa-opencl-icd wants an older one, which conflicts with it.
LIBCLC = BUILD / "libclc" / "usr" / "lib" / "clc"
# Debian's packages, of the newest version there is.
VERSIONED = ("clang", "llvm")
NEWEST, OLDEST = 22, 16
COMPILERS = ("opencl-c-headers", "intel-opencl-icd")
PLAIN = (*COMPILERS, "oclgrind", "liboclgrind-dev", "libclblast-dev")


class Missing(RuntimeError):
    """A tool is not there; the text says how to get it."""


def run(
    command: list[str | Path], timeout: float = 1800, **kwargs
) -> subprocess.CompletedProcess[str]:
    """Runs a compiler after everybody else's work: at niceness 10 or ours."""
    more = max(0, 10 - os.nice(0))
    return subprocess.run(
        ["nice", "-n", str(more), *map(str, command)],
        capture_output=True,
        text=True,
        timeout=timeout,
        **kwargs,
    )


def environment(**values: str) -> dict[str, str]:
    """Of a process that runs a module of this package."""
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, **values}


def checked(command: list[str | Path], what: str, **kwargs) -> str:
    """What the command prints, standard error after standard output."""
    process = run(command, **kwargs)
    if process.returncode != 0:
        raise RuntimeError(f"{what}: {(process.stderr + process.stdout)[-2000:]}")
    return process.stdout + process.stderr


def clang() -> Path:
    """The newest clang; every version compiles for AMD and NVIDIA."""
    for version in range(NEWEST + 3, OLDEST - 1, -1):
        found = shutil.which(f"clang-{version}")
        if found and libclc("amdgcn-amd-amdhsa", "amdgcn--amdhsa"):
            return Path(found)
    raise Missing("no clang with libclc: run `make gpu-lab`, which installs them")


def libclc(*names: str) -> Path | None:
    """OpenCL's functions for a target, in the first of several spellings."""
    for name in names:
        if (LIBCLC / f"{name}.bc").is_file():
            return LIBCLC / f"{name}.bc"
    return None


def ptxas() -> Path:
    places = [shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas"]
    places += list((BUILD / "pypi").glob("nvidia/**/bin/ptxas"))
    for place in filter(None, places):
        if Path(place).is_file():
            return Path(place)
    raise Missing(
        "no ptxas: install CUDA's compiler or the package nvidia-cuda-nvcc of PyPI"
    )


def libdevice() -> Path:
    found = [
        *sorted(Path("/usr/local").glob("cuda*/nvvm/libdevice/libdevice.*.bc")),
        *(BUILD / "pypi").glob("nvidia/**/libdevice.*.bc"),
    ]
    if not found:
        raise Missing("no libdevice, which CUDA's compiler or nvidia-cuda-nvcc has")
    return found[0]


def nvdisasm() -> Path | None:
    found = [shutil.which("nvdisasm")]
    found += list((BUILD / "pypi").glob("nvidia/**/bin/nvdisasm"))
    return next((Path(place) for place in found if place), None)


def ocloc() -> Path:
    found = shutil.which("ocloc")
    if not found:
        raise Missing("no ocloc, which Debian's intel-opencl-icd has")
    return Path(found)


def missing() -> list[str]:
    """What the compilers of all targets still lack."""
    reasons = []
    for tool in (clang, ptxas, libdevice, ocloc):
        try:
            tool()
        except Missing as error:
            reasons.append(str(error))
    if not libclc("nvptx64--nvidiacl"):
        reasons.append("no libclc for nvptx64")
    return reasons


def versions() -> dict[str, str]:
    """Of the compilers that were used, for the report."""
    result = {}
    commands = {
        "clang": [clang(), "--version"],
        "ptxas": [ptxas(), "--version"],
        "ocloc": ["dpkg-query", "-W", "-f", "${Version}", "intel-opencl-icd"],
        "IGC": ["dpkg-query", "-W", "-f", "${Version}", "libigc1"],
    }
    for name, command in commands.items():
        lines = run(command).stdout.strip().splitlines()
        text = next((line for line in lines if re.search(r"\d+\.\d+", line)), "?")
        result[name] = text.strip()
    return result


def _candidate(package: str) -> bool:
    policy = run(["apt-cache", "policy", package]).stdout
    return "Candidate:" in policy and "Candidate: (none)" not in policy


def _unpack(package: str, folder: Path) -> None:
    """Puts the files of a Debian package into the folder, without installing it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    checked(["apt-get", "download", package], "apt-get download", cwd=folder)
    (archive,) = folder.glob("*.deb")
    checked(["dpkg-deb", "--extract", archive, folder], "dpkg-deb")


def install(compilers_only: bool = False) -> None:
    """Debian's packages and those of PyPI, where they are not there yet.

    The newest clang that has its libclc is taken; which one is printed.
    """
    wanted = list(COMPILERS if compilers_only else PLAIN)
    version = next(
        (v for v in range(NEWEST, OLDEST - 1, -1) if _candidate(f"libclc-{v}")), None
    )
    if version is None:
        raise Missing("this Debian has no libclc: the lab compiles with clang's")
    if version != NEWEST:
        print(f"clang-{NEWEST} is not in this Debian: clang-{version} compiles")
    wanted += [f"{name}-{version}" for name in VERSIONED]
    installed = run(["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *wanted])
    lacking = [
        name
        for name in wanted
        if f"{name} install ok installed" not in installed.stdout
    ]
    lacks_libclc = not libclc("nvptx64--nvidiacl")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if lacking and os.geteuid() != 0:
        raise Missing("run as root: apt-get install " + " ".join(lacking))
    if (lacking or lacks_libclc) and os.geteuid() == 0:
        checked(["apt-get", "update"], "apt-get update", env=environment)
    if lacking:
        print("installing", *lacking)
        checked(
            [
                *["apt-get", "install", "-y", "--no-remove", "--no-install-recommends"],
                *lacking,
            ],
            "apt-get install",
            timeout=1200,
            env=environment,
        )
    if lacks_libclc:
        print(f"unpacking libclc-{version}")
        _unpack(f"libclc-{version}", BUILD / "libclc")
    packages = ["nvidia-cuda-nvdisasm"] if nvdisasm() is None else []
    try:
        ptxas()
        libdevice()
    except Missing:
        packages += ["nvidia-cuda-nvcc", "nvidia-nvvm"]
    if packages:
        print("installing", *packages)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
        checked([*pip, "--target", BUILD / "pypi", *packages], "pip install")
        for tool in (BUILD / "pypi").glob("nvidia/**/bin/*"):
            tool.chmod(0o755)


def _is_newer(sources: list[Path], than: Path) -> bool:
    return not than.exists() or any(
        source.stat().st_mtime > than.stat().st_mtime for source in sources
    )


def build_recorder() -> Path:
    """The folder with the recording libOpenCL.so.1."""
    folder = BUILD / "recorder"
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(HERE.glob("recorder*"))
    library = folder / "libOpenCL.so.1"
    if _is_newer(sources, library):
        units = [source for source in sources if source.suffix == ".cpp"]
        options = ["-std=c++17", "-O2", "-shared", "-fPIC"]
        name = "-Wl,-soname,libOpenCL.so.1"
        checked(["c++", *options, name, *units, "-o", library], "the recorder")
    return folder


def build_plugin() -> Path:
    """oclgrind's plugin that counts sectors and bank conflicts."""
    source, library = HERE / "sectors.cpp", BUILD / "sectors.so"
    BUILD.mkdir(parents=True, exist_ok=True)
    if _is_newer([source], library):
        folders = sorted(Path("/usr/include").glob("llvm-[0-9]*"))
        if not folders or not Path("/usr/include/oclgrind").is_dir():
            raise Missing("the plugin needs liboclgrind-dev and llvm's headers")
        options = ["-std=c++17", "-O2", "-shared", "-fPIC"]
        include = [f"-I{folder}" for folder in ("/usr/include/oclgrind", folders[0])]
        options.append("-fno-rtti")  # as oclgrind is, which has no typeinfo
        command = ["c++", *options, *include, source, "-loclgrind", "-o", library]
        checked(command, "the plugin")
    return library
