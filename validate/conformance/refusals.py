"""Where the device refuses a dtype in other words than the CPU, or takes one that the
CPU refuses: rules, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
_FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
_HALF = (torch.float16, torch.bfloat16)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

_NO_KERNEL = r""""[^"]+" not implemented for '(\w+)'"""
_SOLVER = r"""("[\w.]+_cpu" not implemented for '\w+')"""
_FORBIDDEN = (
    r"The operator 'aten::\w+(?:\.\w+)?' is not implemented for the opencl device with "
    r"these arguments.*, and TORCH_OPENCL_FALLBACK=error forbids running it on the CPU."
)


@dataclass(frozen=True)
class Rule:
    """A difference that ``ops`` (none: all of them) may have in ``dtypes``.

    ``cpu`` and ``device`` are patterns of the first line of the errors. What their
    groups match has to be the same. ``example`` is an op that needs the rule, of
    rules without ``ops``. A rule that is not needed ``always`` is not missed.
    """

    reason: str
    dtypes: tuple[torch.dtype, ...] = ()
    ops: tuple[str, ...] = ()
    example: str = ""
    cpu: str = _NO_KERNEL
    device: str = ""
    only_empty: bool = False
    has_values: bool = True
    always: bool = True

    def is_of(self, name: str, dtype: torch.dtype) -> bool:
        is_of_op = not self.ops or name in self.ops
        return is_of_op and (not self.dtypes or dtype in self.dtypes)

    def allows(self, cpu: str, device: str | None) -> bool:
        """Whether the errors may have these first lines; None: no error."""
        theirs = re.fullmatch(self.cpu, cpu)
        if device is None or theirs is None:
            return device is None and theirs is not None
        ours = re.fullmatch(self.device, device)
        if ours is None:
            return False
        return not ours.groups() or ours.groups() == theirs.groups()


# Both refuse.
WORDS = (
    Rule("each names its own kernel", example="bitwise_left_shift", device=_NO_KERNEL),
    Rule(
        "the CPU says it in its words, where tests do not forbid the fallback",
        example="fmod",
        cpu=".*",
        device=_FORBIDDEN,
    ),
    Rule(
        "no kernel has the dtype",
        example="amax",
        dtypes=_FLOAT8,
        cpu=r".*\b(Float8_\w+)\b.*",
        device=r"opencl kernels do not support dtype (\w+)",
    ),
    Rule(
        "the device has no such op",
        ops=("sparse.mm:reduce",),
        device="Could not run 'aten::_sparse_mm_reduce_impl' with arguments from .*",
    ),
    Rule(
        "the device has the kernel that the CPU lacks: a later part refuses",
        example="isclose",
        dtypes=_FLOAT8,
        cpu=f"{_NO_KERNEL}|Promotion for Float8 Types is not supported, .*",
        device=r"\"\w+\" not implemented for '(?:Bool|Double|Long)'",
    ),
    Rule(
        "the device has the kernel that the CPU lacks: a later part refuses",
        example="nn.functional.l1_loss",
        dtypes=_UNSIGNED,
        device=r"expected .*|linalg\.pinv.*|mean\(\): .*|norm\(\): .*|result type .*",
    ),
    Rule(
        "the device has the kernel that the CPU lacks, but the scalar is negative",
        example="index_fill",
        dtypes=_UNSIGNED,
        device=r"value cannot be converted to type uint\d+_t without overflow",
    ),
    Rule(
        "the device composes it, and vector_norm refuses",
        ops=("renorm",),
        dtypes=_UNSIGNED,
        cpu="false INTERNAL ASSERT FAILED .* Unrecognized ScalarType: .*",
        device="linalg.vector_norm: Expected a .* tensor as input. Got .*",
    ),
)

# Only the CPU refuses.
TAKEN = (
    Rule(
        "no kernel is asked for no elements",
        example="acos",
        only_empty=True,
        has_values=False,
    ),
    Rule(
        "sums and differences wrap before they are floats",
        ops=(
            *("cumulative_trapezoid", "gradient", "trapezoid", "trapz"),
            "nn.functional.margin_ranking_loss",
            "nn.functional.pairwise_distance",
            "nn.functional.softmin:with_dtype",
            "nn.functional.triplet_margin_loss",
            "nn.functional.triplet_margin_with_distance_loss",
        ),
        dtypes=_UNSIGNED,
        has_values=False,
    ),
    Rule(
        "the CPU takes any of equal elements",
        ops=("topk",),
        dtypes=_UNSIGNED,
        has_values=False,
    ),
    Rule("there are kernels of unsigned integers", example="add", dtypes=_UNSIGNED),
    Rule("kernels of float32 take half types", example="special.ndtri", dtypes=_HALF),
    Rule(
        "kernels of integers take bool as 0 and 1",
        dtypes=(torch.bool,),
        ops=(
            *("__rmod__", "__rpow__", "abs", "addcmul", "bitwise_left_shift"),
            *("bitwise_right_shift", "ceil", "clamp", "div:floor_rounding"),
            *("div:trunc_rounding", "floor", "floor_divide", "fmod", "gcd", "lcm"),
            *("index_reduce:amax", "index_reduce:amin", "index_reduce:prod"),
            *("nn.functional.softsign", "nn.functional.threshold", "pow", "remainder"),
            *("round", "trace", "trunc"),
        ),
    ),
    Rule(
        "half of a bool is true, and of an integer 0",
        dtypes=(torch.bool,),
        ops=("index_reduce:mean", "scatter_reduce:mean"),
        has_values=False,
    ),
    Rule(
        "it is a scatter with a sum or a product",
        dtypes=(torch.complex64, torch.complex128),
        ops=("index_reduce:mean", "index_reduce:prod"),
    ),
    Rule(
        "bytes are moved",
        dtypes=_FLOAT8,
        ops=(
            *("gather", "index_copy", "index_fill", "masked_scatter", "put"),
            *("scatter", "take", "take_along_dim"),
            *(f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)),
            *(f"nn.functional.max_unpool{n}d:grad" for n in (1, 2, 3)),
        ),
    ),
    Rule(
        "bytes are moved",
        dtypes=(*_FLOAT8, torch.complex32),
        ops=(
            *("flip", "nn.functional.channel_shuffle", "nn.functional.pixel_shuffle"),
            "nn.functional.pixel_unshuffle",
        ),
    ),
    Rule(
        "the CPU multiplies float8 by tensors, but not by scalars",
        dtypes=_FLOAT8,
        ops=("__rmul__", "deg2rad", "mul", "rad2deg"),
    ),
    Rule(
        "kernels of float32 take half types and float8",
        dtypes=(*_HALF, *_FLOAT8),
        ops=("sparse.sampled_addmm",),
        cpu="sparse_sampled_addmm: Expected self to be a floating-point .*",
    ),
    Rule("CUDA takes them", dtypes=_INTEGERS, ops=("histc",)),
    Rule(
        "the kernels of floats take integers",
        dtypes=(torch.bool, *_INTEGERS[:-1]),
        ops=("_segment_reduce:lengths", "_segment_reduce:offsets"),
    ),
    Rule(
        "the kernels of floats take integers; indices are of int64, too",
        dtypes=(torch.int64,),
        ops=("_segment_reduce:lengths", "_segment_reduce:offsets"),
        has_values=False,
    ),
    Rule(
        "zeros are counted in the bytes",
        dtypes=_FLOAT8,
        ops=("count_nonzero",),
    ),
    Rule(
        "a product with a mask",
        dtypes=_UNSIGNED,
        ops=("native_dropout_backward",),
        cpu="Promotion for uint16, uint32, uint64 types is not supported, .*",
    ),
    Rule(
        "the kernels of two dimensions take integers",
        dtypes=_INTEGERS,
        ops=("nn.functional.max_pool1d",),
    ),
    Rule(
        "the kernels of two dimensions take bytes",
        dtypes=(torch.uint8,),
        ops=("nn.functional.interpolate:linear", "nn.functional.interpolate:trilinear"),
    ),
)

# Refused after work of the device, of ops that the CPU refuses at once.
COMPOSED = (
    Rule(
        "the CPU computes it on purpose, and has to get the matrices first",
        example="linalg.cholesky",
        cpu=_SOLVER,
        device=_SOLVER,
    ),
    Rule(
        "the device composes it, and fills last",
        ops=("_unsafe_masked_index",),
        dtypes=(torch.uint8,),
        cpu="value cannot be converted to type uint8_t without overflow",
        device=".*",
    ),
    Rule(
        "the device has the kernel that the CPU lacks: a later part refuses",
        ops=(
            *("_unsafe_masked_index", "isin", "linalg.pinv:singular"),
            *("masked.softmin", "pca_lowrank"),
            *("nn.functional.gaussian_nll_loss", "nn.functional.l1_loss"),
            "nn.functional.linear_cross_entropy",
            "nn.functional.multi_head_attention_forward",
            *("nn.functional.softmin", "svd_lowrank"),
        ),
        dtypes=_UNSIGNED,
        device=".*",
    ),
    Rule(
        "the device composes it, and a later part refuses",
        ops=(
            *("addbmm", "baddbmm", "dist", "histogram", "ldexp", "logsumexp"),
            "masked.logsumexp",
            *("nn.functional.bilinear", "nn.functional.soft_margin_loss", "normal"),
        ),
        cpu=".*",
        device=".*",
    ),
    Rule(
        "moves and products of float8, which the device has, are parts of it",
        dtypes=_FLOAT8,
        ops=(
            *("_segment_reduce:lengths", "_segment_reduce:offsets"),
            *("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
            *("addr", "allclose", "argsort", "cross", "kthvalue"),
            *("linalg.cholesky", "linalg.cholesky_ex", "linalg.cross"),
            *("linalg.ldl_factor", "linalg.ldl_factor_ex", "msort", "special.ndtr"),
            *("nn.functional.nll_loss", "nn.functional.scaled_dot_product_attention"),
            *("put", "scatter", "sort", "topk"),
            *(f"index_reduce:{x}" for x in ("amax", "amin", "mean", "prod")),
            *(f"scatter_reduce:{x}" for x in ("amax", "amin", "mean", "prod", "sum")),
        ),
        cpu=".*",
        device=".*",
    ),
)


def unneeded(name: str, needed: set[tuple[Rule, torch.dtype]]) -> set:
    """Rules of this op of which no dtype, or not each that they name, was needed."""
    found = {rule for rule, _ in needed}
    return {
        (rule.reason, dtype)
        for rule in (*WORDS, *TAKEN, *COMPOSED)
        if name in rule.ops and rule.always
        for dtype in rule.dtypes or (None,)
        if (rule not in found if dtype is None else (rule, dtype) not in needed)
    }


def of_every_op() -> list[Rule]:
    return [rule for rule in (*WORDS, *TAKEN, *COMPOSED) if not rule.ops]
