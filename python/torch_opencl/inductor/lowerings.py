"""Lowerings that differ on the device. Ops that Inductor would make of float atomics
stay the device's own kernels, so that the same input gives the same bits. What asks values
of half types, as comparisons do, sees them rounded. Other devices keep torch's lowerings."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._inductor import inductor_prims, ir, lowering
from torch._inductor.lowering import clone, lowerings, make_pointwise, view
from torch._inductor.virtualized import V, ops

from .types import HALVES

aten = torch.ops.aten
# Their results jump between neighbouring numbers, or are indices.
_COMPARISONS = (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
_QUESTIONS = (
    *(op for packet in _COMPARISONS for op in (packet.Tensor, packet.Scalar)),
    *(aten.isinf.default, aten.isnan.default, aten.logical_not.default),
    *(aten.any.default, aten.any.dim, aten.any.dims),
    *(aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim),
    *(aten.floor.default, aten.ceil.default, aten.trunc.default, aten.round.default),
)


def _is_ours(x) -> bool:
    return isinstance(x, ir.TensorBox) and x.get_device().type == "opencl"


def _accumulated(x, indices, values):
    """index_put_ with accumulate, by the device's kernel."""
    is_number = len(x.get_size()) == 0
    if is_number:
        x = view(x, [1])
    x = lowering.index_put_fallback(x, indices, values, True)
    return view(x, []) if is_number else x


def _index_put(lowered: Callable, in_place: bool) -> Callable:
    def index_put(x, indices, values, accumulate=False, *rest):
        if not accumulate or not _is_ours(x):
            return lowered(x, indices, values, accumulate, *rest)
        return _accumulated(x if in_place else clone(x), indices, values)

    return index_put


def _masked_index_put(lowered: Callable) -> Callable:
    def masked_index_put(x, mask, indices, values):
        if not _is_ours(x):
            return lowered(x, mask, indices, values)
        masked = lowering.where(mask, values, 0)
        # Indices of what is masked may be anything.
        sizes = x.get_size()
        kept = [
            index and lowering.clamp(index, -size, size - 1)
            for index, size in zip(indices, sizes, strict=False)
        ]
        return _accumulated(clone(x), kept, masked)

    return masked_index_put


def _scatter_reduce(lowered: Callable, in_place: bool, is_add: bool) -> Callable:
    def scatter_reduce(x, dim, index, src, reduce=None, **options):
        if is_add:
            reduce = "sum"
        if reduce is None or not _is_ours(x):
            if not is_add and reduce is not None:
                options["reduce"] = reduce
            return lowered(x, dim, index, src, **options)
        if not isinstance(src, ir.TensorBox):
            src = lowering.full_like(x, src)
        x = x if in_place else clone(x)
        ir.ScatterFallback(
            aten.scatter_reduce_.two,
            x,
            dim,
            index,
            src,
            reduce={"add": "sum", "multiply": "prod"}.get(reduce, reduce),
            include_self=options.get("include_self", True),
        )
        return x

    return scatter_reduce


def _of_elements(lowered: Callable, op) -> Callable:
    """Inductor's mean of no elements is 0, aten's NaN."""
    of_aten = lowering.fallback_handler(op, add_to_fallback_set=False)

    def moments(x, *args, **kwargs):
        is_empty = _is_ours(x) and any(size == 0 for size in x.get_size())
        return (of_aten if is_empty else lowered)(x, *args, **kwargs)

    return moments


def _rounded(x):
    """As the graph says: fused ops keep what they compute in float32."""
    if not _is_ours(x) or x.get_dtype() not in HALVES:
        return x
    dtype = x.get_dtype()

    def round_to_dtype(value):
        return ops.to_dtype(value, dtype, src_dtype=dtype, use_compute_types=False)

    return make_pointwise(round_to_dtype, override_return_dtype=dtype)(x)


def _question(lowered: Callable) -> Callable:
    """A product that is stored as infinity is infinite, and the gradient of amax looks
    for the elements that equal what was stored."""

    def ask(*args, **kwargs):
        return lowered(*map(_rounded, args), **kwargs)

    return ask


def _conversion(lowered: Callable) -> Callable:
    def convert(x, dtype):
        return lowered(x if dtype.is_floating_point else _rounded(x), dtype)

    return convert


def _bits(lowered: Callable, op) -> Callable:
    """Fused ops hold half types as float32, where a NaN may lose its payload."""
    of_aten = lowering.fallback_handler(op, add_to_fallback_set=False)

    def view_as(x, dtype):
        is_half = dtype in HALVES or x.get_dtype() in HALVES
        return (of_aten if _is_ours(x) and is_half else lowered)(x, dtype)

    return view_as


def _division(lowered: Callable) -> Callable:
    """Inductor's floor of a rounded quotient is 10 for 1 / 0.1, aten's 9."""

    def divide(a, b, rounding_mode=None):
        operands = lowering.promote_constants((a, b))
        dtype = lowering.get_promoted_dtype(
            *operands,
            type_promotion_kind=lowering.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT,
        )
        is_ours = any(map(_is_ours, (a, b)))
        if rounding_mode != "floor" or not (is_ours and dtype.is_floating_point):
            return lowered(a, b, rounding_mode=rounding_mode)
        operands = [lowering.to_dtype(operand, dtype) for operand in operands]
        return make_pointwise(ops.floordiv)(*lowering.broadcast_tensors(*operands))

    return divide


def _place_of_all(lowered: Callable) -> Callable:
    """The place among all elements is that in the order of dimensions, not in that of
    memory, in which Inductor may loop over several dimensions."""

    def place(x, dim=None, keepdim=False):
        if dim is not None or not _is_ours(x):
            return lowered(x, dim, keepdim)
        result = lowered(lowerings[aten.reshape.default](x, [-1]), 0)
        ones = [1] * len(x.get_size())
        return lowerings[aten.reshape.default](result, ones) if keepdim else result

    return place


def _next_number(lowered: Callable, op) -> Callable:
    """That of a half type is none in float32, which fused ops compute in."""
    of_aten = lowering.fallback_handler(op, add_to_fallback_set=False)

    def nextafter(a, b):
        return (lowered if a.get_dtype().itemsize > 2 else of_aten)(a, b)

    return nextafter


def _attention(lowered: Callable) -> Callable:
    """The seed and offset of its dropout are the host's, but no work for the CPU."""

    def attention(query, *args, **kwargs):
        cpu, graph = torch.device("cpu"), V.graph
        had_cpu = cpu.type in graph.device_types
        outputs = lowered(query, *args, **kwargs)
        if _is_ours(query) and not had_cpu:
            graph.device_types.discard(cpu.type)
            graph.device_node_mapping.pop(cpu, None)
        return outputs

    return attention


def install() -> None:
    """Puts ours before torch's."""
    op = aten._scaled_dot_product_fused_attention_overrideable.default
    if op in lowerings:
        lowerings[op] = _attention(lowerings[op])
    for op in _QUESTIONS:
        lowerings[op] = _question(lowerings[op])
    op = torch.ops.prims.convert_element_type.default
    lowerings[op] = _conversion(lowerings[op])
    op = aten.view.dtype
    lowerings[op] = _bits(lowerings[op], op)
    op = aten.div.Tensor_mode
    lowerings[op] = _division(lowerings[op])
    for op in (aten.argmax.default, aten.argmin.default):
        lowerings[op] = _place_of_all(lowerings[op])
    op = aten.nextafter.default
    lowerings[op] = _next_number(lowerings[op], op)
    op = aten.var_mean.correction
    lowerings[op] = _of_elements(lowerings[op], op)
    for op, in_place in (
        (aten.index_put.default, False),
        (aten.index_put_.default, True),
        (aten._unsafe_index_put.default, False),
        (inductor_prims._unsafe_index_put_, True),
    ):
        if op in lowerings:
            lowerings[op] = _index_put(lowerings[op], in_place)
    op = aten._unsafe_masked_index_put_accumulate.default
    if op in lowerings:
        lowerings[op] = _masked_index_put(lowerings[op])
    for packet, in_place, is_add in (
        (aten.scatter_add, False, True),
        (aten.scatter_add_, True, True),
        (aten.scatter_reduce, False, False),
        (aten.scatter_reduce_, True, False),
        (aten.scatter, False, False),
        (aten.scatter_, True, False),
    ):
        for name in packet.overloads():
            op = getattr(packet, name)
            if op in lowerings:
                lowerings[op] = _scatter_reduce(lowerings[op], in_place, is_add)
