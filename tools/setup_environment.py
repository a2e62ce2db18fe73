"""Prepares a machine to build and test: system packages, environment, wheels.

    python3.11 tools/setup_environment.py --venv .venv [--only build|lint|docs]
        [--torch 2.14.1]

What is there already is left alone, so a second run takes a second and needs
neither a network nor root. A torch that the environment has, or the Python that
makes it, is taken as it is if the source builds against it.
"""

from __future__ import annotations

import argparse
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from build_requirements import (
    TORCH,
    TORCHVISION,
    find_torch,
    missing_build_tools,
    series_of,
)

ROOT = Path(__file__).parent.parent

_MISSING = """
import sys
from importlib.metadata import PackageNotFoundError, version
from pip._vendor.packaging.requirements import Requirement
for text in sys.argv[1:]:
    requirement = Requirement(text)
    if requirement.marker and not requirement.marker.evaluate():
        continue
    try:
        fits = requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        fits = False
    if not fits:
        print(text)
"""


def say(message: str) -> None:
    print(f"== {message}", flush=True)


def missing_system_packages() -> list[str]:
    libraries = subprocess.run(
        ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False
    ).stdout
    header = Path(sysconfig.get_path("include"), "Python.h")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    present = {
        "g++": shutil.which("g++") or shutil.which("c++"),
        "opencl-headers": os.path.exists("/usr/include/CL/cl.h"),
        "libvkfft-dev": glob.glob("/usr/include/**/vkFFT.h", recursive=True),
        "ocl-icd-libopencl1": "libOpenCL.so.1" in libraries,
        "pocl-opencl-icd": glob.glob("/etc/OpenCL/vendors/pocl*.icd"),
        f"{version}-dev": header.exists(),
        f"{version}-venv": importlib.util.find_spec("ensurepip"),
    }
    return [package for package, there in present.items() if not there]


def install_system_packages() -> None:
    missing = missing_system_packages()
    if not missing:
        return
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    root = [] if os.geteuid() == 0 else ["sudo"]
    if shutil.which("apt-get") is None or (root and shutil.which("sudo") is None):
        raise SystemExit(f"missing system packages; as root: {' '.join(install)}")
    say(f"installing system packages: {' '.join(missing)}")
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    subprocess.run([*root, "apt-get", "update", "-qq"], check=True)
    subprocess.run(
        [*root, *environment, *install], check=True, stdout=subprocess.DEVNULL
    )


_TORCH_VERSION = "from importlib.metadata import version; print(version('torch'))"


class Environment:
    def __init__(self, directory: Path, options: list[str]) -> None:
        self.python = directory / "bin" / "python"
        if not self.python.exists():
            say(f"creating the virtual environment {directory}")
            command = [sys.executable, "-m", "venv", *options, directory]
            subprocess.run(command, check=True)

    def torch_version(self) -> str | None:
        found = subprocess.run(
            [self.python, "-c", _TORCH_VERSION], capture_output=True, text=True
        )
        return found.stdout.strip() if found.returncode == 0 else None

    def has_torch(self) -> bool:
        version = self.torch_version()
        return version is not None and series_of(version) in TORCHVISION

    def install_torch(self, wanted: str | None) -> str:
        """Installs that version, or one where there is none that fits.

        Returns:
            The version that is there, without what names its build.
        """
        if wanted is not None:
            self.install([f"torch=={wanted}"])
        elif not self.has_torch():
            here = find_torch()
            self.install([f"torch=={here[1].partition('+')[0]}" if here else TORCH])
        return self.torch_version().partition("+")[0]

    def install(self, requirements: list[str], *options: str) -> None:
        """Installs those of the requirements that are not met."""
        command = [self.python, "-c", _MISSING, *requirements]
        missing = subprocess.check_output(command, text=True).splitlines()
        if not missing:
            return
        say(f"installing {' '.join(missing)}")
        pip = [self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *options, *missing], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--only", choices=["build", "lint", "docs"])
    parser.add_argument("--torch", metavar="VERSION", help="instead of what is there")
    arguments = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036  # any python3 may run this
        raise SystemExit(f"Python 3.11 is needed; {sys.executable} is {sys.version}")
    import tomllib

    with open(ROOT / "pyproject.toml", "rb") as file:
        pyproject = tomllib.load(file)
    project = pyproject["project"]
    extras = project["optional-dependencies"]

    # Sees the torch of this Python; of a virtual environment it would not.
    borrows = sys.prefix == sys.base_prefix and arguments.torch is None
    options = ["--system-site-packages"] if borrows and find_torch() else []
    if arguments.only in ("lint", "docs"):
        Environment(arguments.venv, options).install(extras[arguments.only])
        return
    install_system_packages()
    environment = Environment(arguments.venv, options)
    torch = environment.install_torch(arguments.torch)
    # Keeps every later installation from replacing it.
    constraint = arguments.venv / "constraints.txt"
    constraint.write_text(f"torch=={torch}\n")
    constraints = ("-c", str(constraint))
    requirements = pyproject["build-system"]["requires"] + missing_build_tools()
    if arguments.only is None:
        own = f"{project['name']}["
        requirements += project["dependencies"] + extras["cpu"]
        requirements += [text for text in extras["test"] if not text.startswith(own)]
    environment.install(requirements, *constraints)
    if arguments.only is None:
        torchvision = TORCHVISION[series_of(torch)]
        if torchvision is None:
            say(f"there is no torchvision for torch {torch}")
        else:
            # --no-deps: its own requirement on torch could replace that.
            environment.install([torchvision], "--no-deps")


if __name__ == "__main__":
    main()
