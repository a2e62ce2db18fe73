"""Builds a wheel, installs it in another virtual environment and uses it there.

    .venv/bin/python validate/packaging/check_wheel.py

The other environment borrows torch from this one, so nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_USE = """
import sys
import torch
import torch_opencl
assert torch_opencl.__file__.startswith(sys.prefix), torch_opencl.__file__
assert torch.opencl.is_available(), "no OpenCL device"
x = torch.randn(3, 4, device="opencl:0")
assert torch.allclose((x @ x.T).cpu(), x.cpu() @ x.cpu().T, atol=1e-5)
print("the wheel computes on", torch.opencl.get_device_name(0))
"""


def run(*command: str | Path, **environment: str) -> None:
    clean = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=ROOT, env={**clean, **environment})


def check_contents(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {"torch_opencl"}, packages
    assert "torch_opencl/_generated/op_table.json" in names, names
    modules = [name for name in names if name.endswith(".so")]
    assert len(modules) == 1, modules
    assert not [name for name in names if name.endswith((".cl", ".cpp", ".new"))], names


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = ("-q", "--disable-pip-version-check", "--no-deps")
        pip = (sys.executable, "-m", "pip")
        run(*pip, "wheel", *options, "--no-build-isolation", "-w", folder, ".")
        (wheel,) = Path(folder).glob("*.whl")
        check_contents(wheel)
        other = Path(folder, "venv")
        venv.create(other, with_pip=False, symlinks=True)
        python = other / "bin" / "python"
        run(*pip, "--python", python, "install", *options, wheel)
        (site,) = other.glob("lib/python*/site-packages")
        borrowed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
        (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
        run(python, "-P", "-c", _USE)


if __name__ == "__main__":
    main()
