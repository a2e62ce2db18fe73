"""Programs by matrix units, which no device here has: the texts of products and of
attention with the defines of their launches (product_gpu.cpp, attention_launch.cpp), for
the targets that have units."""

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
# Where it has 256 registers: kLargeRegisters of matrix_units.h.
LARGE_REGISTERS = {"dg2": " -cl-intel-256-GRF-per-thread"}


# Rows, columns and items of a wave's unit.
SHAPES = {"dg2": (8, 8, 8)}
SHAPE = (16, 16, 32)
# Kernel, the head's dimensions, rows and columns of a tile.
ATTENTION = (
    ("attention_matrix", 32, 64, 64),
    ("attention_matrix", 64, 64, 64),
    ("attention_matrix", 128, 64, 32),
    ("attention_matrix_grad_query", 32, 64, 32),
    ("attention_matrix_grad_query", 64, 64, 32),
    ("attention_matrix_grad_query", 128, 32, 16),
    ("attention_matrix_grad_key_value", 32, 64, 32),
    ("attention_matrix_grad_key_value", 64, 64, 32),
    ("attention_matrix_grad_key_value", 128, 32, 16),
)
ATTENTION_OF = {
    "dg2": (
        ("attention_matrix", 32, 64, 32),
        ("attention_matrix", 64, 64, 32),
        ("attention_matrix_grad_query", 32, 64, 16),
        ("attention_matrix_grad_query", 64, 64, 16),
        ("attention_matrix_grad_key_value", 32, 64, 16),
        ("attention_matrix_grad_key_value", 64, 64, 16),
    )
}
UNROLL = 8


def _text(path: str) -> str:
    backend = tools.HERE.parents[1] / "backend"
    kernel = backend / path
    text = expand(kernel, [backend / "common"], set())
    return f'#line 1 "{kernel.name}"\n' + text


def _words(defines: dict, compiler: str) -> str:
    return " ".join(
        [*(f"-D {name}={value}" for name, value in defines.items()), compiler]
    )


def _attention_options(target: str, dtype: str, tile, rest: dict) -> str:
    units, compiler = UNITS[target]
    unit_rows, unit_columns, wave = SHAPES.get(target, SHAPE)
    head_dim, rows, columns = tile
    items = rows // unit_rows * wave
    defines = {
        "MATRIX_UNITS": units,
        "IS_EMULATED": 0,
        "DTYPE": dtype,
        "HEAD_DIM": head_dim,
        "ROWS": rows,
        "COLUMNS": columns,
        "SCORE_UNITS": columns // unit_columns,
        "SUM_UNITS": head_dim // unit_columns,
        "BLOCKS": max(columns * head_dim // 16 // items, 1),
        "UNROLL": UNROLL,
        "IS_WIDE": 1,
        "OFFSET64": 0,
        "MASK_DTYPE": dtype,
        **rest,
    }
    return _words(defines, compiler) + LARGE_REGISTERS.get(target, "")


def _attention_programs(target: str) -> list[Program]:
    """Each tile, of what takes the most registers: bfloat16, a mask and dropout."""
    kind = {"HAS_MASK": 1, "HAS_DROPOUT": 1}
    return [
        Program(
            _text(f"attention/{kernel}.cl"),
            _attention_options(target, "bfloat16", tile, kind),
        )
        for kernel, *tile in ATTENTION_OF.get(target, ATTENTION)
    ]


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
    large = LARGE_REGISTERS.get(target, "") if is_image else ""
    return _words(defines, compiler) + large


def programs() -> dict[str, list[Program]]:
    """By target: of products each dtype and tile, operands along lines or along the
    depth, the right one a matrix or an image; then those of attention."""
    text = _text("gemm/product_matrix.cl")
    return {
        target: [
            *(
                Program(text, _options(target, *case))
                for case in product(
                    ("float16", "bfloat16"),
                    TILES_OF.get(target, TILES),
                    (False, True),
                    (False, True),
                )
            ),
            *_attention_programs(target),
        ]
        for target in UNITS
    }
