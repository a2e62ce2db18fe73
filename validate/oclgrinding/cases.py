"""Which of the kernel tests run in the simulator, and which kernels there are."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from oclgrinding import simulator

_LARGE = "tensors beyond caches or blocks: minutes to hours in a simulator"
_THREADS = "uses one queue in two threads, for which oclgrind's are not safe"
_LOG = "oclgrind gives no log of its compiler"
_LANES = "oclgrind widens a lane of a comparison of vectors to -1 instead of 1"
_ABS = "oclgrind does not know LLVM's absolute value of integers"
_UNREAD = "races by design: surplus positions go to one element that nobody reads"
# Of a file, the tests that are not run, and why.
LEFT_OUT = {
    "composed_ops": {"test_nonzero_static": _UNREAD},
    "convolution": {
        "test_depthwise_of_large_images": _LARGE,
        "test_winograd_beyond_the_workspace": _LARGE,
        "test_winograd_of_more_than_caches_hold": _LARGE,
        "test_columns_beyond_the_workspace": _LARGE,
    },
    "convolution_errors": {"test_parameters_beyond_int32": "takes 4 GiB of memory"},
    "foreach_fused": {"test_threads": _THREADS},
    "indexing": {"test_large_flips_and_rolls": _LARGE},
    "lanes": {
        "test_numbers_and_repeated_rows_past_the_caches": _LARGE,
        "test_results_larger_than_caches": _LARGE,
        "test_rows_larger_than_caches": _LARGE,
    },
    "math": {"test_lcm_of_narrow_integers": _ABS},
    "normalization": {"test_layer_norm_gradient_of_long_rows": _LARGE},
    "op_table": {
        "test_forward[gcd": _ABS,
        "test_forward[lcm": _ABS,
        "test_forward[sgn": _LANES,
        "test_forward[sign": _LANES,
    },
    "packed_weights": {"test_a_writer_beside_a_reader_that_packs": _THREADS},
    "pooling": {"test_results_larger_than_caches": _LARGE},
    "random": {"test_exponential_is_never_zero": _LARGE},
    "softmax": {"test_results_past_the_caches": _LARGE},
    "solvers": {"test_the_fastest_is_taken_and_kept": "runs each solver many times"},
    "sorting": {"test_a_long_row": _LARGE},
    "user_kernels": {
        "test_raw_kernel_errors": _LOG,
        "test_errors_of_a_definition": _LOG,
    },
}
# The same of the kernels that GPUs get.
LEFT_OUT_OF_GPU_CLASS = {
    "attention": {"test_memory_is_linear": _LARGE},
    "gemm": {"test_bmm_of_many_tiles": _LARGE},
    "quantized": {
        "test_weights_longer_than_a_block_of_lines": "takes 20 GiB of memory"
    },
    "views_copies": {"test_large_transposing_copies": _LARGE},
}
# Kernels that no case launches, and why.
LEFT_OUT_KERNELS = {
    "im2col_pack:pack_columns_gpu": "convolutions of more than 2^31 elements",
}

ROOT = Path(__file__).resolve().parents[2]
_TESTS = ROOT / "validate/ops"
_KERNEL = re.compile(r"^\s*(?:__)?kernel\b[^;{]*?\b(\w+)\s*\(", re.MULTILINE)
_MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\bKERNEL\b")


def stems() -> list[str]:
    """Of the files with kernel tests, but for torch's own: thousands of cases of the
    same kernels."""
    found = {path.stem.removeprefix("test_") for path in _TESTS.glob("test_*.py")}
    return sorted(found - {"device_generic"})


def kernels() -> set[str]:
    """file:kernel of the .cl files, but for names that a macro makes."""
    found = set()
    for path in (ROOT / "backend").rglob("*.cl"):
        text = _ATTRIBUTE.sub("", re.sub(r"//.*", "", path.read_text()))
        made = set(_MACRO.findall(text))
        found.update(
            f"{path.stem}:{name}" for name in _KERNEL.findall(text) if name not in made
        )
    return found


def _group(test: str) -> str:
    """Cases of one group are alike: those of a test, of an op in the op tables, and of
    a kernel in test_seldom_chosen.py."""
    name, _, parameters = test.partition("[")
    if "test_op_table" in name:
        return f"{name}[{parameters.rsplit('-', 3)[0]}"  # without dtype, device, driver
    if "test_seldom_chosen" in name:
        return test
    return name


def left_out(stem: str, device_class: str) -> dict[str, str]:
    """test -> reason."""
    of_class = LEFT_OUT_OF_GPU_CLASS if device_class == "gpu" else {}
    return LEFT_OUT.get(stem, {}) | of_class.get(stem, {})


def choose(
    wanted: list[str], device_class: str, cases: int, seed: int
) -> dict[str, list[str]]:
    """stem -> ids of tests."""
    files = [f"validate/ops/test_{stem}.py" for stem in wanted]
    command = [*simulator.pytest(device_class), "--collect-only", "-q", "--full"]
    with tempfile.TemporaryDirectory() as folder:
        listed = subprocess.run(
            [sys.executable, *command, *files],
            cwd=ROOT,
            env=simulator.environment(device_class, Path(folder)),
            capture_output=True,
            text=True,
        )
    ids = [line for line in listed.stdout.splitlines() if "::" in line]
    if not ids:
        raise RuntimeError(f"no test was found:\n{listed.stdout}\n{listed.stderr}")
    groups = defaultdict(list)
    for test in ids:
        groups[_group(test)].append(test)
    chosen = defaultdict(list)
    for name, members in groups.items():
        if "test_op_table" in name and "test_forward" not in name:
            continue  # the same kernels, once more
        stem = name.partition("::")[0].rpartition("/test_")[2].removesuffix(".py")
        if name.rpartition("::")[2] in left_out(stem, device_class):
            continue
        members = random.Random(f"{seed} {name}").sample(members, len(members))
        chosen[stem] += members[:cases]
    return dict(chosen)
