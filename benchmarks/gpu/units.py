"""Programs of products by matrix units, which no device here has: the kernel's text
with the defines of its launches (product_gpu.cpp), for the targets that have units."""

from __future__ import annotations

from itertools import product

from torch_opencl_gen.embed_kernels import expand

from . import tools
from .compile import Program

# By target, MATRIX_UNITS of matrix_units.clh and the options of its compiler.
UNITS = {
    "gfx1100": (1, "-cl-std=CL2.0"),
    "gfx1201": (2, "-cl-std=CL2.0"),
    "sm_86": (3, "-cl-std=CL2.0"),
    # A driver whose device has the units defines the extension's name.
    "dg2": (4, "-cl-std=CL3.0 -Dcl_intel_subgroup_matrix_multiply_accumulate=1"),
}
STEP = 32
# Rows and columns of a tile, and of an item; images have few registers on an Arc.
TILES = ((128, 128, 8, 8), (64, 64, 8, 4))
TILES_OF = {"dg2": TILES[1:]}
IMAGES_OF = {"dg2": (False,)}


def _text() -> str:
    backend = tools.HERE.parents[1] / "backend"
    kernel = backend / "gemm/product_matrix.cl"
    return '#line 1 "product_matrix.cl"\n' + expand(kernel, [backend / "common"], set())


def _options(target: str, dtype: str, tile, is_along_lines: bool, is_image: bool):
    rows, columns, item_rows, item_columns = tile
    units, compiler = UNITS[target]
    items = rows * columns // (item_rows * item_columns)
    right_width = 1 if is_image else 4
    defines = {
        "MATRIX_UNITS": units,
        "IS_EMULATED": 0,
        "DTYPE": dtype,
        "TILE_ROWS": rows,
        "TILE_COLUMNS": columns,
        "ITEM_ROWS": item_rows,
        "ITEM_COLUMNS": item_columns,
        "STEP": STEP,
        "UNROLL": STEP,
        "LEFT_ALONG_LINES": int(is_along_lines),
        "LEFT_WIDTH": 4,
        "LEFT_LOADS": rows * STEP // items // 4,
        "RIGHT_ALONG_LINES": int(not is_along_lines),
        "RIGHT_WIDTH": right_width,
        "RIGHT_LOADS": columns * STEP // items // right_width,
        "IS_IMAGE": int(is_image),
        "IS_WEIGHT_GRADIENT": 0,
        "CHANNELS_INNERMOST": int(is_along_lines),
        "IS_CHECKED": 1,
        "IS_FLAT": 1,
        "IS_PART": 0,
    }
    words = [f"-D {name}={value}" for name, value in defines.items()]
    return " ".join([*words, compiler])


def programs() -> dict[str, list[Program]]:
    """By target: each dtype and tile, operands along lines or along the depth, the
    right one a matrix or an image."""
    text = _text()
    return {
        target: [
            Program(text, _options(target, *case))
            for case in product(
                ("float16", "bfloat16"),
                TILES_OF.get(target, TILES),
                (False, True),
                IMAGES_OF.get(target, (False, True)),
            )
        ]
        for target in UNITS
    }
