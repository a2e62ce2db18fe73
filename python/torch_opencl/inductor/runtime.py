"""What the modules that Inductor writes call: kernels and the division of work."""

from __future__ import annotations

import functools

import torch

from .. import _C
from .types import LANES, name_of
from .work import split_work

__all__ = ["compiled_kernel", "kernel_source", "split_work"]

_FLAGS = ("FLOATING", "SIGNED")


def kernel_source(kernel, text: str, dtype=None, more: tuple[str, ...] = ()) -> str:
    """The program's own lines; :func:`compiled_kernel` puts the library before it.

    Args:
        kernel: what is known of the text.
        text: the kernel.
        dtype: of DTYPE, where it is not that of the functions of math.clh.
        more: other lines that choose from the library.
    """
    dtype = dtype or kernel.math_dtype or torch.float32
    if kernel.form.lanes and not more:
        dtype = torch.float32
    lines = [f"#define DTYPE {name_of(dtype)}", *more]
    is_double = dtype == torch.float64
    lines += [f"#define COMPUTE_IS_{flag} 1" for flag in _FLAGS]
    lines += [f"#define COMPUTE_IS_{flag} 0" for flag in ("INTEGRAL", "BOOL")]
    lines.append(f"#define COMPUTE_IS_DOUBLE {int(is_double)}")
    if kernel.form.lanes:
        lines += [f"#define LANES {LANES}", "#define OWN_EXP"]
    if kernel.math_dtype is not None:
        lines.append("#define USES_MATH")
    if kernel.uses_philox:
        lines.append("#define USES_PHILOX")
    if torch.float64 in kernel.stored_dtypes:
        lines.append("#define REAL_IS_DOUBLE")
    return "\n".join(lines) + "\n//\n" + text


@functools.cache
def _library(head: str) -> str:
    """The part of the kernel library that the lines of ``head`` ask for."""
    defined = {line.split()[1] for line in head.splitlines() if "#define" in line}
    has_lanes, has_math = "LANES" in defined, "USES_MATH" in defined
    text = head + "\n" + _C._kernel_text("types") + _C._kernel_text("nan_constants")
    if has_lanes:
        text += _C._kernel_text("lanes")
    text += f"typedef {'lanes_t' if has_lanes else 'compute_t'} value_t;\n"
    real = "double" if "REAL_IS_DOUBLE" in defined else "float"
    text += f"typedef {real} real_t;\n"
    if has_math:
        text += _C._kernel_text("math")
    else:
        text += "#define sine sin\n#define cosine cos\n#define tangent tan\n"
    if "USES_PHILOX" in defined:
        text += _C._kernel_text("philox")
    return text + _C._kernel_text("compiled")


def compiled_kernel(
    name: str, source: str, kinds: str, local_size: int, reports: bool
) -> _C._CompiledKernel:
    """A kernel that is called with its arguments and the number of work-groups.

    Args:
        name: of the kernel.
        source: from :func:`kernel_source`.
        kinds: a letter an argument (cpp/bindings/compiled_kernels.cpp).
        local_size: work-items of a work-group.
        reports: whether it has the parameters for reports of bad indices.
    """
    program = _program(name, source, local_size)
    return _C._CompiledKernel(name, program, "", kinds, local_size, reports)


def _program(name: str, source: str, local_size: int) -> str:
    head, _, text = source.partition("\n//\n")
    program = f'{_library(head)}\n#line 1 "{name}.cl"\n{text}'
    if "USES_ATTENTION" in head:
        program += _C._kernel_text(f"attention_{'cpu' if local_size == 1 else 'gpu'}")
    return program


def check_builds(
    name: str, source: str, local_size: int, device: torch.device, ops: str
) -> None:
    """Builds a kernel for Dynamo's suppress_errors, which does not look at what fails
    when a graph is run.

    Raises:
        RuntimeError: with the names of the ops, and what the driver said.
    """
    if not torch._dynamo.config.suppress_errors:
        return
    program = _program(name, source, local_size)
    try:
        _C._raw_kernel(device.index or 0, f"{name}.cl", program, name, "")
    except RuntimeError as error:
        raise RuntimeError(f"{ops}: {error}") from error
