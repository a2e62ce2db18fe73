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
    "foreach_fused": {
        "test_threads": _THREADS,
        "test_far_into_a_buffer": _LARGE,
        "test_a_segment_for_every_operand": _LARGE,
    },
    "indexing": {"test_large_flips_and_rolls": _LARGE},
    "lanes": {
        "test_numbers_and_repeated_rows_past_the_caches": _LARGE,
        "test_results_larger_than_caches": _LARGE,
        "test_rows_larger_than_caches": _LARGE,
    },
    "large_sizes": {
        "test_reductions": _LARGE,
        "test_reduction_of_a_size_whose_low_bits_are_zero": _LARGE,
        "test_products": _LARGE,
        "test_elements_in_the_last_chunk": _LARGE,
        "test_refused": _LARGE,
    },
    "loss": {"test_nll_loss_of_more_samples_than_int32_holds": _LARGE},
    "math": {"test_lcm_of_narrow_integers": _ABS},
    "normalization": {"test_layer_norm_gradient_of_long_rows": _LARGE},
    "op_table": {
        "test_forward[gcd": _ABS,
        "test_forward[lcm": _ABS,
        "test_forward[sgn": _LANES,
        "test_forward[sign": _LANES,
    },
    "out_dtypes": {"test_bools_are_zero_and_one_in_any_output": _LANES},
    "packed_weights": {"test_a_writer_beside_a_reader_that_packs": _THREADS},
    "pooling": {"test_results_larger_than_caches": _LARGE},
    "random": {
        "test_bernoulli_of_a_small_probability": _LARGE,
        "test_exponential_is_never_zero": _LARGE,
    },
    "rearrange": {"test_columns_of_more_positions_than_ints": _LARGE},
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
    "batch_norm": {"test_batch_norm_of_large_results": _LARGE},
    "gemm": {"test_bmm_of_many_tiles": _LARGE},
    "indexing": {"test_results_larger_than_caches": _LARGE},
    "quantized": {
        "test_weights_longer_than_a_block_of_lines": "takes 20 GiB of memory"
    },
    "rearrange": {"test_large_channel_shuffles": _LARGE},
    "scan": {"test_a_long_line": _LARGE},
    "solvers": {"test_tune_tells_later_processes": "runs each solver many times"},
    "views_copies": {"test_large_transposing_copies": _LARGE},
}
# Of the slowest tests: what stands in the names of their fastest cases.
FASTEST = {
    "attention_units": {"test_exact_weights": "24"},
    "batch_norm": {"test_batch_norm_formats_of_gradients": "shape3"},
    "rearrange": {"test_cat_of_equal_shapes": "5"},
    "scan": {"test_sums_by_vectors": "size5"},
}
# Kernels that no case launches, and why.
LEFT_OUT_KERNELS = {
    "im2col_pack:pack_columns_gpu": "convolutions of more than 2^31 elements",
}

ROOT = Path(__file__).resolve().parents[2]
_TESTS = ROOT / "validate/ops"
_INCLUDE = re.compile(r"^#include \"(\w+\.clh)\"", re.MULTILINE)
_MACRO = re.compile(r"^\s*#\s*define\s+(\w+)[ \t]+(.*\S)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|\bKERNEL\b")


def stems() -> list[str]:
    """Of the files with kernel tests, but for torch's own: thousands of cases of the
    same kernels."""
    found = {path.stem.removeprefix("test_") for path in _TESTS.glob("test_*.py")}
    return sorted(found - {"device_generic"})


def kernels() -> set[str]:
    """file:kernel of the .cl files and of what they include."""
    headers = {path.name: path for path in (ROOT / "backend").rglob("*.clh")}
    found = set()
    for path in (ROOT / "backend").rglob("*.cl"):
        text = path.read_text()
        included = [headers[name].read_text() for name in _INCLUDE.findall(text)]
        text = re.sub(r"//.*|\\\n", "", "\n".join([*included, text]))
        found.update(f"{path.stem}:{name}" for name in _kernels_of(text))
    return found


def _kernels_of(text: str) -> set[str]:
    """A macro may stand for a kernel's qualifiers, or be its name."""
    text = _ATTRIBUTE.sub("", text)
    macros = defaultdict(set)
    for name, body in _MACRO.findall(text):
        macros[name].add(body)
    words = [word for word, bodies in macros.items() if _is_qualifier(bodies)]
    words = "|".join(["kernel", "__kernel", *words])
    kernel = rf"^\s*(?:{words})\b[^;{{]*?\b(\w+)\s*\("
    names = re.findall(kernel, text, re.MULTILINE)
    return set().union(*(macros.get(name, {name}) for name in names))


def _is_qualifier(bodies: set[str]) -> bool:
    return any(body.split()[0] == "kernel" for body in bodies)


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


def _fastest(tests: list[str], word: str | None) -> list[str]:
    """Those with ``word`` among their parameters; all of them without one."""
    if word is None:
        return tests
    found = [test for test in tests if word in re.split(r"[\[\]-]", test)]
    if not found:
        raise ValueError(f"none of {tests} has the parameter {word}")
    return found


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
        members = _fastest(members, FASTEST.get(stem, {}).get(name.rpartition("::")[2]))
        members = random.Random(f"{seed} {name}").sample(members, len(members))
        chosen[stem] += members[:cases]
    return dict(chosen)
