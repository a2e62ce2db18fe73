"""What is wrong and how to mend it, from the facts alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Facts: TypeAlias = dict[str, Any]

_CPU_DRIVER = (
    "for the CPU: `pip install intel-opencl-rt intel-cmplr-lib-rt` (x86-64), or "
    "Debian's and Ubuntu's package pocl-opencl-icd"
)
_GPU_DRIVER = {
    "0x1002": "AMD GPU: rocm-opencl-runtime from AMD, or mesa-opencl-icd with "
    "RUSTICL_ENABLE=radeonsi",
    "0x10de": "NVIDIA GPU: NVIDIA's driver with its package nvidia-opencl-icd "
    "(in a container: the capability `compute`)",
    "0x8086": "Intel GPU: the package intel-opencl-icd",
}
_TEST_VARIABLES = ("TORCH_OPENCL_TEST", "TORCH_OPENCL_TEST_SEED")


@dataclass(frozen=True)
class Problem:
    what: str
    fix: str


def _extension(facts: Facts) -> Iterator[Problem]:
    if facts["extension_error"]:
        yield Problem(
            f"the extension did not load: {facts['extension_error']}",
            "install torch_opencl again beside this torch (2.13 to 2.15): "
            "`pip install .` in its source, or `make build` in a checkout",
        )
    if not facts["autoloads"]:
        yield Problem(
            "`import torch` alone does not load torch_opencl: its entry point is not "
            "installed in this environment",
            "`pip install -e .` in the source, or `import torch_opencl` in programs",
        )


def _loader(facts: Facts) -> Iterator[Problem]:
    if any("no OpenCL loader" in line for line in facts["discovery"]):
        yield Problem(
            "there is no OpenCL loader (libOpenCL.so.1)",
            "install ocl-icd-libopencl1 (Debian, Ubuntu) or ocl-icd (Fedora, Arch); "
            "the PyPI package intel-opencl-rt brings one, too",
        )


def _drivers(facts: Facts) -> Iterator[Problem]:
    for line in facts["discovery"]:
        # The loader is looked for under several names; one is enough.
        if line.startswith("cannot load ") and "libOpenCL.so" not in line:
            needs_intel = any(name in line for name in ("libsvml", "libimf", "libirng"))
            yield Problem(
                f"a driver's library did not load: {line.removeprefix('cannot load ')}",
                "`pip install intel-cmplr-lib-rt`"
                if needs_intel
                else "install the package that holds the missing library, or "
                "reinstall the driver",
            )
    for icd in facts["icd_files"]:
        # Intel's wheel lists an FPGA emulator, which is never used.
        if icd["missing"] and "emu" not in icd["library"]:
            yield Problem(
                f"{icd['file']} names a library that does not exist: {icd['library']}",
                "reinstall that driver, or remove the file",
            )


def _no_device(facts: Facts) -> Iterator[Problem]:
    if facts["devices"] or facts["extension_error"]:
        return
    if facts["settings_error"]:
        yield Problem(facts["settings_error"], "correct or unset that variable")
        return
    for variable in facts["environment"]:
        if variable["name"] == "TORCH_OPENCL_DEVICES" and variable["value"]:
            yield Problem(
                f"TORCH_OPENCL_DEVICES={variable['value']} selects no device",
                "unset it, or name devices that this report lists without it",
            )
            return
    vendors = {node["vendor"] for node in facts["render_nodes"]}
    fixes = [_GPU_DRIVER[vendor] for vendor in sorted(vendors) if vendor in _GPU_DRIVER]
    yield Problem(
        "no OpenCL driver offers a device",
        "install a driver; " + "; ".join([*fixes, _CPU_DRIVER]),
    )


def _gpu(facts: Facts) -> Iterator[Problem]:
    if any(device["is_gpu"] for device in facts["devices"]):
        return
    for node in facts["render_nodes"]:
        if not node["accessible"]:
            yield Problem(
                f"{node['node']} exists and this user may not open it",
                f"`sudo usermod -aG {node['group']} $USER`, then log in again",
            )
        elif node["vendor"] in _GPU_DRIVER and facts["devices"]:
            yield Problem(
                f"there is a GPU ({node['node']}), but no OpenCL driver offers it",
                f"install its driver; {_GPU_DRIVER[node['vendor']]}",
            )


def _rusticl(facts: Facts) -> Iterator[Problem]:
    installed = any("rusticl" in Path(i["file"]).name for i in facts["icd_files"])
    enabled = any(v["name"] == "RUSTICL_ENABLE" for v in facts["environment"])
    if installed and not enabled and not facts["devices"]:
        yield Problem(
            "Mesa's rusticl is installed and offers no device unless asked to",
            "set RUSTICL_ENABLE to the driver of the GPU (radeonsi, iris, nouveau, "
            "panfrost) or to llvmpipe for the CPU",
        )


def _smoke_tests(facts: Facts) -> Iterator[Problem]:
    for device in facts["devices"]:
        if device["smoke_test"] != "passed":
            yield Problem(
                f"{device['device']} ({device['name']}) does not compute: "
                f"{device['smoke_test']}",
                "update its driver; TORCH_OPENCL_DEVICES leaves a device out; "
                "TORCH_OPENCL_DEBUG=4 shows the build logs",
            )


def _cache(facts: Facts) -> Iterator[Problem]:
    cache = facts["cache"]
    if cache and not cache["writable"]:
        yield Problem(
            f"the cache directory {cache['directory']} cannot be written, so every "
            "process compiles its kernels again",
            "make it writable, or set TORCH_OPENCL_CACHE_DIR to another directory",
        )


def _variables(facts: Facts) -> Iterator[Problem]:
    for variable in facts["environment"]:
        name = variable["name"]
        unknown = name.startswith("TORCH_OPENCL_") and not variable["description"]
        if unknown and name not in _TEST_VARIABLES and not facts["extension_error"]:
            yield Problem(f"{name} is set, and there is no such variable", "unset it")


_CHECKS: tuple[Callable[[Facts], Iterator[Problem]], ...] = (
    _extension,
    _loader,
    _drivers,
    _no_device,
    _gpu,
    _rusticl,
    _smoke_tests,
    _cache,
    _variables,
)


def find_problems(facts: Facts) -> list[Problem]:
    return [problem for check in _CHECKS for problem in check(facts)]


def works(facts: Facts) -> bool:
    """Whether at least one device computes."""
    return any(device["smoke_test"] == "passed" for device in facts["devices"])
