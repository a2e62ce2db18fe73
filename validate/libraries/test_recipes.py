"""The recipes of docs/libraries run on opencl and print what they print on the CPU.

`make test-libraries` installs the libraries and runs them; without a library its
recipe is skipped. A recipe that says "opencl" runs as it is, and its reference with
"cpu" in the place of it. The others are written for CUDA, and take the CPU where
torch_opencl.run does not run them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_PAGES = Path(__file__).resolve().parents[2] / "docs" / "libraries"
_SECONDS = 900


@dataclass(frozen=True)
class Recipe:
    page: str
    module: str
    needs_run: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    tolerance: float = 1e-3

    def source(self) -> str:
        text = (_PAGES / f"{self.page}.md").read_text()
        return text.split("```python\n", 1)[1].split("```", 1)[0]


RECIPES = (
    Recipe(
        "accelerate", "accelerate", environment={"ACCELERATE_TORCH_DEVICE": "opencl:0"}
    ),
    Recipe("diffusers", "diffusers"),
    Recipe("lightning", "lightning"),
    Recipe("safetensors", "safetensors"),
    Recipe("sentence-transformers", "sentence_transformers"),
    Recipe("stable-baselines3", "stable_baselines3"),
    Recipe("trainer", "transformers", needs_run=True, tolerance=1e-2),
    Recipe("transformers", "transformers"),
    Recipe("ultralytics", "ultralytics", needs_run=True),
)


def _printed(
    source: str, folder: Path, launcher: tuple[str, ...] = (), **environment: str
) -> tuple[list[float], str]:
    """The numbers after "result" and the name after "device" of what it prints."""
    folder.mkdir()
    script = folder / "recipe.py"
    script.write_text(source)
    process = subprocess.run(
        [sys.executable, *launcher, str(script)],
        cwd=folder,
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TORCH_OPENCL_FALLBACK": "warn",
            "YOLO_CONFIG_DIR": str(folder),
            "YOLO_OFFLINE": "true",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    results = re.findall(r"^result (.*)$", process.stdout, re.MULTILINE)
    numbers = [float(word) for line in results for word in line.split()]
    (device,) = re.findall(r"^device (.*)$", process.stdout, re.MULTILINE)
    return numbers, device


def _for_cpu(source: str) -> str:
    """Imports of torch_opencl stay."""
    source = source.replace('strategy="single_opencl"', 'strategy="auto"')
    return re.sub(r'"opencl(:0)?"', '"cpu"', source)


def _for_cuda(source: str) -> str:
    """As a program written for CUDA has it; Lightning's accelerator is "gpu"."""
    source = source.replace('accelerator="opencl"', 'accelerator="gpu"')
    source = source.replace('strategy="single_opencl"', 'strategy="auto"')
    return re.sub(r'"opencl(:0)?"', '"cuda:0"', source)


def _check(
    recipe: Recipe,
    tmp_path: Path,
    source: str,
    launcher: tuple[str, ...],
    environment: dict[str, str],
) -> None:
    if importlib.util.find_spec(recipe.module) is None:
        pytest.skip(f"{recipe.module} is not installed: make test-libraries")
    actual, device = _printed(source, tmp_path / "opencl", launcher, **environment)
    assert device == ("cuda" if launcher else "opencl")
    expected, device = _printed(_for_cpu(recipe.source()), tmp_path / "cpu")
    assert device == "cpu"
    assert actual
    tolerance = recipe.tolerance
    assert actual == pytest.approx(expected, rel=tolerance, abs=tolerance)


_RUN = ("-m", "torch_opencl.run")


@pytest.mark.timeout(2 * _SECONDS)
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.page)
def test_the_page_of(recipe: Recipe, tmp_path: Path) -> None:
    launcher = _RUN if recipe.needs_run else ()
    _check(recipe, tmp_path, recipe.source(), launcher, recipe.environment)


@pytest.mark.timeout(2 * _SECONDS)
@pytest.mark.parametrize(
    "recipe",
    [recipe for recipe in RECIPES if not recipe.needs_run],
    ids=lambda recipe: recipe.page,
)
def test_the_same_written_for_cuda(recipe: Recipe, tmp_path: Path) -> None:
    _check(recipe, tmp_path, _for_cuda(recipe.source()), _RUN, {})
