"""What there is: versions, drivers, devices, cache and environment.

Everything that can be found without the extension is found without it, because
an extension that does not load is one of the things to be explained.
"""

from __future__ import annotations

import grp
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from .libraries import libraries

# Variables of loaders and drivers that change which devices there are.
_FOREIGN_VARIABLES = (
    "LD_LIBRARY_PATH",
    "OCL_ICD_FILENAMES",
    "OCL_ICD_VENDORS",
    "OPENCL_VENDOR_PATH",
    "POCL_DEVICES",
    "RUSTICL_ENABLE",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)
_SYSTEM_VENDORS = "/etc/OpenCL/vendors"
_SMOKE_SECONDS = 120

_SMOKE = """
import sys
import torch
import torch_opencl
x = torch.arange(1000, dtype=torch.float32)
y = (x.to(sys.argv[1]) * 2 + 1).cpu()
if not torch.equal(y, x * 2 + 1):
    sys.exit("wrong result: x * 2 + 1 differs from the CPU's")
"""


def _extension() -> tuple[Any, str]:
    """The loaded extension, or None and why it did not load."""
    try:
        import torch_opencl

        if not hasattr(torch, "opencl"):
            torch_opencl._load()
        from torch_opencl import _C
    except Exception as error:
        return None, str(error)
    return _C, ""


def _autoloads() -> bool:
    entry_points = importlib.metadata.entry_points(group="torch.backends")
    return any(point.value == "torch_opencl:_autoload" for point in entry_points)


def _icd_files() -> list[dict[str, Any]]:
    system = os.environ.get("OCL_ICD_VENDORS") or _SYSTEM_VENDORS
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
    files = [Path(system)] if system.endswith(".icd") else [*Path(system).glob("*.icd")]
    for prefix in prefixes:
        files += Path(prefix, "etc/OpenCL/vendors").glob("*.icd")
    found = []
    for file in sorted(set(files)):
        try:
            library = file.read_text().strip()
        except OSError as error:
            library = f"not readable: {error.strerror}"
        beside = file.parents[3] / "lib" / Path(library).name if library else None
        found.append(
            {
                "file": str(file),
                "library": library,
                # The loader searches for a name without a directory.
                "missing": "/" in library
                and not os.path.exists(library)
                and not (beside and beside.exists()),
            }
        )
    return found


def _render_nodes() -> list[dict[str, Any]]:
    nodes = []
    for node in sorted(Path("/dev/dri").glob("renderD*")):
        vendor = Path("/sys/class/drm", node.name, "device/vendor")
        try:
            group = grp.getgrgid(node.stat().st_gid).gr_name
        except KeyError:
            group = str(node.stat().st_gid)
        nodes.append(
            {
                "node": str(node),
                "accessible": os.access(node, os.R_OK | os.W_OK),
                "group": group,
                "vendor": vendor.read_text().strip() if vendor.exists() else "",
            }
        )
    return nodes


def _smoke_test(device: str) -> str:
    """What went wrong in a small computation; empty when nothing did.

    In a process of its own: a broken driver may crash or hang it.
    """
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    try:
        result = subprocess.run(
            [sys.executable, "-c", _SMOKE, device],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=_SMOKE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no result after {_SMOKE_SECONDS} s"
    if result.returncode < 0:
        return f"killed by signal {-result.returncode}"
    lines = result.stderr.strip().splitlines()
    return "" if result.returncode == 0 else (lines or ["no message"])[-1]


def _settings_error(extension: Any) -> str:
    """What is wrong with a TORCH_OPENCL_* variable: any reader raises it."""
    try:
        extension._cache_directory()
    except RuntimeError as error:
        return str(error)
    return ""


def _devices(extension: Any) -> list[dict[str, Any]]:
    devices = []
    for index in range(extension._device_count()):
        info = extension._device_info(index)
        info["extensions"] = info["extensions"].split()
        info["device"] = f"opencl:{index}"
        info["smoke_test"] = _smoke_test(info["device"]) or "passed"
        devices.append(info)
    return devices


def _cache(extension: Any) -> dict[str, Any]:
    directory = Path(extension._cache_directory())
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    entries = [file.stat().st_size for file in directory.glob("*.bin")]
    return {
        "directory": str(directory),
        "programs": len(entries),
        "bytes": sum(entries),
        "writable": os.access(existing, os.W_OK | os.X_OK),
    }


def _environment(extension: Any) -> list[dict[str, str]]:
    own = extension._config_entries() if extension else []
    known = {name for name, _, _ in own}
    others = [
        name
        for name in sorted(os.environ)
        if name in _FOREIGN_VARIABLES
        or (name.startswith("TORCH_OPENCL_") and name not in known)
    ]
    rows = [(name, default, text) for name, default, text in own]
    rows += [(name, "", "") for name in others]
    return [
        {
            "name": name,
            "value": os.environ.get(name),
            "default": default,
            "description": text,
        }
        for name, default, text in rows
    ]


def collect() -> dict[str, Any]:
    """Everything the report shows, in types that JSON has."""
    extension, error = _extension()
    settings_error = _settings_error(extension) if extension else ""
    usable = extension if not settings_error else None
    built_for = ".".join(map(str, extension._torch_version)) if extension else None
    return {
        "system": platform.platform(),
        "python": f"{platform.python_version()} in {sys.prefix}",
        "torch": torch.__version__,
        "built_for_torch": built_for,
        "extension_error": error,
        "autoloads": _autoloads(),
        "icd_files": _icd_files(),
        "render_nodes": _render_nodes(),
        "discovery": list(extension._discovery_log()) if extension else [],
        "devices": _devices(usable) if usable else [],
        "settings_error": settings_error,
        "cache": _cache(usable) if usable else None,
        "environment": _environment(extension),
        "libraries": libraries(),
    }
