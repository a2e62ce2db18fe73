"""Builds torch_opencl._C with CMake; everything else is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT / "tools"))

from build_requirements import TORCH, find_torch, series_of  # noqa: E402

TORCH_HERE = find_torch()


def _build_directory() -> Path:
    """A directory of its own for each series of torch but the everyday one."""
    name = f"cmake-{sys.implementation.cache_tag}"
    everyday = series_of(TORCH.partition("==")[2])
    if TORCH_HERE is not None and series_of(TORCH_HERE[1]) != everyday:
        name += f"-torch{series_of(TORCH_HERE[1])}"
    return ROOT / "build" / name


BUILD = _build_directory()
OUTPUT = BUILD / "package"
# A translation unit that includes torch's headers needs about this much.
_MEMORY_PER_JOB = 1.5 * 2**30


def _jobs() -> int:
    if "MAX_JOBS" in os.environ:
        return max(1, int(os.environ["MAX_JOBS"]))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), int(memory / _MEMORY_PER_JOB)))


class CMakeBuild(build_ext):
    """Runs CMake in build/ and copies what it made into the package."""

    def build_extension(self, ext: Extension) -> None:
        if TORCH_HERE is None:
            raise SystemExit(
                f"building torch_opencl needs {TORCH}: pip install {TORCH}"
            )
        environment = {
            **os.environ,
            # Tools of an environment that is not activated.
            "PATH": os.pathsep.join(
                [os.path.dirname(sys.executable), os.environ["PATH"]]
            ),
            # The generator imports torch, which must not import us.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        configure = [
            "cmake",
            f"-S{ROOT}",
            f"-B{BUILD}",
            "-GNinja",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DTORCH_DIR={TORCH_HERE[0]}",
            f"-DOUTPUT_DIR={OUTPUT}",
        ]
        compile = ["cmake", "--build", BUILD, "--parallel", str(_jobs())]
        log = None if self.verbose else subprocess.DEVNULL
        for command, stdout in ((configure, log), (compile, None)):
            result = subprocess.run(command, env=environment, stdout=stdout)
            if result.returncode != 0:
                raise SystemExit("the build failed; its messages are above")
        self._copy_to(Path(self.get_ext_fullpath(ext.name)).resolve().parent)

    def copy_extensions_to_source(self) -> None:
        self._copy_to(ROOT / "python" / "torch_opencl")

    @staticmethod
    def _copy_to(package: Path) -> None:
        for source in OUTPUT.rglob("*"):
            target = package / source.relative_to(OUTPUT)
            if source.is_dir() or (
                target.exists()
                and target.stat().st_mtime_ns == source.stat().st_mtime_ns
            ):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # Replaced as a whole: a process may have the old module mapped.
            temporary = target.with_name(target.name + ".new")
            shutil.copy2(source, temporary)
            temporary.replace(target)


setup(
    ext_modules=[Extension("torch_opencl._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
