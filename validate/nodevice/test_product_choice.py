"""Which tile, and how many parts of the depth, a product of a GPU takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

BACKEND = Path(__file__).parents[2] / "backend"
GEMM = BACKEND / "gemm"

# One line in, one out: batch rows columns depth bytes image, units group memory few,
# MatrixUnits.
_MAIN = """
#include "product_choice.h"
#include <cstdio>
using namespace torch_opencl::ops;
int main() {
  long b, m, n, k, bytes, image, units, group, memory, few, matrix;
  while (std::scanf("%ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", &b, &m, &n, &k,
                    &bytes, &image, &units, &group, &memory, &few, &matrix) == 11) {
    const ProductSize size{b, m, n, k, 256, int(bytes), image != 0, MatrixUnits(matrix)};
    torch_opencl::runtime::TuningNumbers numbers;
    NUMBERS
    const ProductDevice device{units, group, memory, few != 0, numbers};
    const ProductChoice c = choose_product(size, device);
    const FewChoice f = choose_few(size, device, image != 0, 4);
    const auto wishes = product_candidates(size, device, 4);
    int fulfilled = 0;
    for (const ProductWish& wish : wishes) {
      const ProductChoice wished = choose_product(size, device, wish);
      const ProductChoice other = choose_product(size, device, {wish.rows, wish.columns, 3});
      const ProductChoice unknown = choose_product(size, device, {96, 96, wish.parts});
      fulfilled += wished.tile.rows == wish.rows && wished.tile.columns == wish.columns &&
                   other.tile.rows == wish.rows && other.tile.columns == wish.columns &&
                   unknown.tile.rows == c.tile.rows && unknown.parts == c.parts;
    }
    const ProductChoice best = choose_product(size, device, wishes.at(0));
    std::printf("%d %d %d %d %d %ld %ld %d %ld %d %ld %ld %ld %d %ld %d %d\\n", c.tile.rows,
                c.tile.columns, c.tile.item_rows, c.tile.item_columns, c.tile.step,
                long(c.parts), long(c.depth_of_part), int(c.has_totals),
                long(local_bytes(c.tile, size)), f.few, long(f.lines), long(f.parts),
                long(f.depth_of_part), int(c.units), long(wishes.size()), fulfilled,
                best.tile.rows == c.tile.rows && best.tile.columns == c.tile.columns &&
                    best.depth_of_part == c.depth_of_part);
  }
}
"""
RADEON = (36, 256, 65536, 0, 0)
GFX11, INTEL_8 = 1, 4


@pytest.fixture(scope="module")
def choose(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("choice")
    numbers = json.loads((BACKEND / "tuning/all.json").read_text())["numbers"]
    text = " ".join(f"numbers.{name} = {value};" for name, value in numbers.items())
    (folder / "main.cpp").write_text(_MAIN.replace("NUMBERS", text))
    command = [compiler, "-std=c++20", "-O1", f"-I{GEMM}", "-o", str(folder / "choice")]
    sources = [str(folder / "main.cpp"), str(GEMM / "product_choice.cpp")]
    subprocess.run([*command, *sources], check=True)

    def run(cases):
        text = "\n".join(" ".join(map(str, case)) for case in cases)
        done = subprocess.run(
            [str(folder / "choice")],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        return [[int(x) for x in line.split()] for line in done.stdout.splitlines()]

    return run


SIZES = (1, 7, 64, 257, 1000, 50257)


def test_every_choice_covers_the_depth_and_fits_the_device(choose):
    devices = [
        (1, 64, 32768, 0, 0),
        (2, 256, 32768, 0, 0),
        RADEON,
        (32, 1024, 65536, 1, 0),
    ]
    devices += [(*device[:4], GFX11) for device in devices]
    cases = [
        (b, m, n, k, size, image, *device)
        for b, m, n, k, size, image, device in product(
            (1, 12), SIZES, SIZES, (0, *SIZES), (4, 8), (0, 1), devices
        )
    ]
    for case, chosen in zip(cases, choose(cases), strict=True):
        rows, columns, item_rows, item_columns, step, parts, depth, totals = chosen[:8]
        local, few, lines, few_parts, few_depth, units = chosen[8:14]
        candidates, fulfilled, is_best_first = chosen[14:]
        k, group, memory, has_few_registers = case[3], case[7], case[8], case[9]
        items = rows // item_rows * (columns // item_columns)
        # The kernel's lanes cover the tiles' lines and depths.
        assert items % step == 0
        assert items >= max(rows, columns), case
        assert depth % step == 0
        assert (parts - 1) * depth < max(k, 1) <= parts * depth, case
        assert totals == (min(k, depth) > 256 and not units)
        assert items <= group, case
        assert local <= memory, case
        if has_few_registers and totals:
            assert item_rows * item_columns <= 32
        assert few >= min(case[1], 8)
        assert lines > 0
        assert (few_parts - 1) * few_depth < max(k, 1) <= few_parts * few_depth, case
        # Sums of a lane are no longer than a block's.
        assert few_depth // (128 if case[5] else 4) <= 256, case
        assert 1 <= candidates <= 4
        assert fulfilled == candidates, case
        assert is_best_first, case


def test_matrix_units_are_taken_where_they_fit(choose):
    cases = [
        ((*RADEON[:4], GFX11), 0, (128, 128, GFX11)),
        ((*RADEON[:4], GFX11), 1, (128, 128, GFX11)),
        ((32, 1024, 65536, 1, INTEL_8), 0, (64, 64, INTEL_8)),
        ((32, 1024, 65536, 1, INTEL_8), 1, (64, 64, INTEL_8)),  # an image
        ((36, 64, 65536, 0, GFX11), 0, (32, 32, 0)),  # small work-groups
    ]
    chosen = choose([(1, 2048, 2048, 2048, 4, image, *on) for on, image, _ in cases])
    for case, found in zip(cases, chosen, strict=True):
        assert (found[0], found[1], found[13]) == case[2], case


def test_large_products_take_large_tiles(choose):
    (large,) = choose([(1, 2048, 2048, 2048, 4, 0, *RADEON)])
    assert large[0] * large[1] >= 128 * 64
    assert large[2:6] == [8, 8, 16, 1]


# resnet50's weight gradients at 32 images: outputs, channels * filter elements, pixels * images.
WEIGHT_GRADIENTS = [
    (64, 147, 401408),
    (64, 64, 100352),
    (256, 64, 100352),
    (128, 256, 25088),
    (512, 128, 25088),
    (1024, 512, 6272),
    (256, 2304, 6272),
    (2048, 1024, 1568),
    (512, 4608, 1568),
    (1000, 2048, 32),
]


def test_training_fills_a_gpu(choose):
    cases = [(1, m, n, k, 4, 1, *RADEON) for m, n, k in WEIGHT_GRADIENTS]
    for case, chosen in zip(cases, choose(cases), strict=True):
        m, n, k = case[1:4]
        groups = -(-m // chosen[0]) * -(-n // chosen[1]) * chosen[5]
        if 2 * m * n * k > 1 << 23:
            assert groups >= 72, (case, chosen)
