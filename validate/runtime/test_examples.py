"""The examples run in their quick form, learn something and write a picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PICTURES = ("char_gpt", "segment_shapes", "super_resolution")
# In a working copy that is not installed, `import torch` loads no device.
LAUNCHER = f"""
import runpy, sys, torch_opencl
sys.path.insert(0, {str(EXAMPLES)!r})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_example(name: str, *arguments: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    return process.stdout


def assert_is_a_picture(file: Path) -> None:
    matplotlib_image = pytest.importorskip("matplotlib.image")
    pixels = matplotlib_image.imread(file)
    assert min(pixels.shape[:2]) >= 64
    assert pixels.max() > pixels.min()


@pytest.mark.sampled(2)
@pytest.mark.one_device
@pytest.mark.parametrize("name", PICTURES)
def test_quick_form(device, name, tmp_path):
    picture = tmp_path / "picture.png"
    output = run_example(
        name, "--quick", "--device", str(device), "--picture", str(picture)
    )
    first, last = map(float, re.search(r"loss: (\S+) -> (\S+)", output).groups())
    if name == "super_resolution":  # begins at the bicubic enlargement
        assert last < 2 * first
        bicubic, network = map(float, re.findall(r"([\d.]+) dB", output))
        assert network > bicubic - 1
    else:
        assert last < 0.95 * first
    assert_is_a_picture(picture)


@pytest.mark.one_device
def test_digits_in_quick_form(device, tmp_path):
    picture = tmp_path / "picture.png"
    run_example(
        "train_digits", "--quick", "--device", str(device), "--plot", str(picture)
    )
    assert_is_a_picture(picture)


def test_pictures_as_ppm(tmp_path):
    sys.path.insert(0, str(EXAMPLES))
    try:
        import pictures
    finally:
        sys.path.remove(str(EXAMPLES))
    image = pictures.torch.rand(3, 5, 7)
    pictures.save(tmp_path / "a.ppm", pictures.grid([[image, image]], gap=2))
    read = pictures.load(tmp_path / "a.ppm")
    assert read.shape == (3, 9, 20)
    assert (read[:, 2:7, 2:9] - image).abs().max() <= 0.5 / 255 + 1e-6


@pytest.mark.parametrize("name", [*PICTURES, "train_digits"])
def test_help(name):
    assert "--quick" in run_example(name, "--help")
