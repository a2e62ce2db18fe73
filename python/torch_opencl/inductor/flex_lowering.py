"""Lowerings of flex_attention and of its backward to kernels of our own. Other devices
keep torch's."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import sympy
import torch
from torch._inductor import ir, lowering
from torch._inductor.exc import SubgraphLoweringException
from torch._inductor.kernel.flex.common import (
    build_subgraph_module_buffer,
    create_placeholder,
    freeze_irnodes,
    infer_dense_strides,
    maybe_realize,
)
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Min

from ..opencl.devices import get_device_properties
from . import flex_captures, flex_dense
from .flex_functions import INDICES, Shape
from .flex_program import FlexKernel, Program
from .flex_sums import Blocks, Sums
from .types import NotGenerated

log = logging.getLogger(__name__)
aten = torch.ops.aten
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MOST_COLUMNS = 256


class BlockMask(NamedTuple):
    """A list of blocks for each block of rows, and where there is one, another of those
    that are seen in full."""

    counts: Any
    indices: Any
    full_counts: Any
    full_indices: Any
    row_block: int
    column_block: int


def _ceil_div(a, b):
    return FloorDiv(a + b - 1, b)


def _is_gpu(node) -> bool:
    return get_device_properties(node.get_device()).device_class == "gpu"


def _lists(block_mask: tuple, first: int, rows: int, columns: int) -> BlockMask:
    """The lists from ``first`` on; ``rows`` and ``columns`` are places of sizes."""
    lists = []
    for node in block_mask[first : first + 4]:
        if node is not None:
            if node.get_dtype() != torch.int32:
                node = lowering.to_dtype(node, torch.int32)
            (node,) = maybe_realize([ir.ExternKernel.require_contiguous(node)])
        lists.append(node)
    sizes = (V.graph.sizevars.guard_int(block_mask[i]) for i in (rows, columns))
    return BlockMask(*lists, *sizes)


class Call:
    """The arguments of flex_attention that forward and backward share."""

    def __init__(self, query, key, value, scale, score_buffers, mask_buffers) -> None:
        self.query, self.key, self.value = maybe_realize([query, key, value])
        self.scale = float(scale)
        for buffer in (*score_buffers, *mask_buffers):
            if isinstance(buffer, ir.IRNode):
                buffer.realize()
                freeze_irnodes(buffer)
        self.score_buffers = list(score_buffers)
        self.mask_buffers = list(mask_buffers)
        self.batch, self.heads, self.queries, dim = query.get_size()
        self.key_batch, self.key_heads, self.keys, value_dim = value.get_size()
        self.query_dim, self.value_dim = map(
            V.graph.sizevars.guard_int, (dim, value_dim)
        )
        self.is_gpu = _is_gpu(query)

    def graph(self, module: torch.fx.GraphModule, buffers: list, *floats: str):
        """The graph, of a score (and its gradient) and indices."""
        device, dtype = self.query.get_device(), self.query.get_dtype()
        given = [(name, torch.int32) for name in INDICES]
        if floats:
            given.insert(0, (floats[0], dtype))
            given += [(name, dtype) for name in floats[1:]]
        inputs = [create_placeholder(name, of, device) for name, of in given]
        made = build_subgraph_module_buffer(inputs + buffers, module)
        freeze_irnodes(made)
        return made

    def program(self, kernel: str, lanes: str) -> Program:
        sizes = (self.batch, self.heads, self.queries, self.keys)
        shape = Shape("" if self.is_gpu else lanes, sizes)
        program = Program(kernel, self.query.get_dtype(), shape)
        for name, size in (
            ("HEADS", self.heads),
            ("KEY_HEADS", self.key_heads),
            ("KEY_BATCH", self.key_batch),
            ("QUERIES", self.queries),
            ("KEYS", self.keys),
            ("QUERY_DIM", self.query_dim),
            ("VALUE_DIM", self.value_dim),
        ):
            program.define(name, size)
        scale = torch.tensor(self.scale, dtype=torch.float32).item()
        program.define("SCALE", f"({scale.hex()}f)")
        for name in ("query", "key", "value"):
            node = getattr(self, name)
            program.tensor(name, node)
            program.strides(name.upper(), node.get_stride())
        return program

    @property
    def wide(self) -> int:
        return max(self.query_dim, self.value_dim)

    def blocks(self, mask: BlockMask, rows) -> Blocks:
        """How a kernel that owns ``rows`` divides them."""
        row_block = Min(sympy.Integer(mask.row_block), rows)
        is_short = isinstance(row_block, sympy.Integer) and int(row_block) <= (
            32 if self.is_gpu else 16
        )
        short, long = (2, 4) if self.is_gpu else (1, 2)
        width = 16 * (short if is_short or self.wide > 128 else long)
        return Blocks(
            row_block, _ceil_div(rows, row_block), _ceil_div(row_block, width), width
        )

    def launch(
        self, program: Program, mask: BlockMask, blocks: Blocks, outputs: list
    ) -> None:
        """Adds what concerns the blocks of rows, and the node."""
        of_keys = program.kernel == "FLEX_GRAD_KEY_VALUE"
        columns = self.queries if of_keys else self.keys
        heads = self.key_heads if of_keys else self.heads
        wide = self.wide
        if self.is_gpu:
            program.define("ITEM_ROWS", blocks.width // 16)
            program.define(
                "HEAD_DIM", 64 if wide <= 64 else 128 if wide <= 128 else 256
            )
        else:
            step = 32 if wide <= 128 else 64
            program.define("VECTORS", blocks.width // 16)
            program.define("HEAD_DIM", -(-wide // step) * step)
            program.define("BLOCK", 64 if wide <= 64 else 32 if wide <= 128 else 16)
        program.define("ROW_BLOCK", blocks.rows)
        program.define("COLUMN_BLOCK", Min(sympy.Integer(mask.column_block), columns))
        program.define("ROW_BLOCKS", blocks.blocks)
        program.define("PANELS", blocks.panels)
        for full in ("", "full_") if mask.full_counts is not None else ("",):
            for name in ("counts", "indices"):
                program.tensor(full + name, getattr(mask, full + name), "int")
        sizes = [1] * (4 - len(mask.indices.get_size())) + list(mask.indices.get_size())
        for name, size in zip(
            ("MASK_BATCH", "MASK_HEADS", "LIST_ROWS", "LIST_COLUMNS"),
            sizes,
            strict=True,
        ):
            program.define(name, size)
        has_full = mask.full_counts is not None
        program.define("HAS_FULL", int(has_full))
        if has_full:
            program.define("FULL_COLUMNS", mask.full_indices.get_size()[-1])
        groups = self.batch * heads * blocks.blocks * blocks.panels
        FlexKernel(program, outputs + [s.buffer for s in program.sums], groups)

    def empty(self, size, dtype: torch.dtype, like=None):
        strides = None
        if like is not None:
            strides = list(
                map(sympy.sympify, infer_dense_strides(size, like.get_stride()))
            )
        device = self.query.get_device()
        return lowering.empty_strided(size, strides, dtype=dtype, device=device)


def _refusal(query, key, value, scale) -> str:
    """Why there is no kernel; empty where there may be one."""
    dtypes = {node.get_dtype() for node in (query, key, value)}
    if len(dtypes) > 1 or dtypes.isdisjoint(_DTYPES):
        return f"dtypes {dtypes}"
    if not isinstance(scale, float | int | sympy.Number):
        return f"scale {scale}"
    sizes = [*query.get_size(), *value.get_size()]
    if any(V.graph.sizevars.statically_known_equals(size, 0) for size in sizes):
        return "no elements"
    dims = map(V.graph.sizevars.guard_int, (query.get_size()[-1], value.get_size()[-1]))
    if max(dims) > _MOST_COLUMNS:
        return "head dimension"
    return ""


def _check_backend(options: dict) -> None:
    backend = options.get("BACKEND", "AUTO")
    if backend not in ("AUTO", "TRITON"):
        raise NotImplementedError(
            f"flex_attention on opencl has no BACKEND={backend!r}, only 'AUTO'"
        )


def _forward(
    query, key, value, subgraph, block_mask, scale, options, score_buffers, mask_buffers
):
    call = Call(query, key, value, scale, score_buffers, mask_buffers)
    program = call.program("FLEX_FORWARD", "query")
    mask_graph = call.graph(block_mask[-1].graph_module, call.mask_buffers)
    score_graph = call.graph(subgraph.graph_module, call.score_buffers, "score")
    program.function("mask_mod", mask_graph, torch.bool)
    program.function("score_mod", score_graph, torch.float32)
    mask = _lists(block_mask, 2, -3, -2)

    sizes = [call.batch, call.heads, call.queries]
    out = call.empty([*sizes, value.get_size()[-1]], query.get_dtype(), query)
    logsumexp = call.empty(sizes, torch.float32)
    max_scores = call.empty(sizes, torch.float32)
    outputs = [out]
    program.tensor("out", out, written=True)
    program.strides("OUT", out.get_stride())
    program.define("HAS_LOGSUMEXP", int(bool(options.get("OUTPUT_LOGSUMEXP", True))))
    program.define("HAS_LARGEST", int(bool(options.get("OUTPUT_MAX", True))))
    if options.get("OUTPUT_LOGSUMEXP", True):
        program.tensor("logsumexp", logsumexp, "float", written=True)
        outputs.append(logsumexp)
    if options.get("OUTPUT_MAX", True):
        program.tensor("max_scores", max_scores, "float", written=True)
        outputs.append(max_scores)
    call.launch(program, mask, call.blocks(mask, call.queries), outputs)
    return out, logsumexp, max_scores


def _backward(
    query, key, value, out, logsumexp, grad_out, grad_logsumexp, subgraph, joint,
    block_mask, scale, options, score_buffers, mask_buffers,
):  # fmt: skip
    joint = joint.graph_module
    graph, terms = flex_captures.split(joint)
    call = Call(query, key, value, scale, score_buffers, mask_buffers)
    mask_graph = call.graph(block_mask[-1].graph_module, call.mask_buffers)
    score_graph = call.graph(subgraph.graph_module, call.score_buffers, "score")
    joint_graph, *values = call.graph(graph, call.score_buffers, "score", "grad_score")
    programs = (
        call.program("FLEX_GRAD_QUERY", "query"),
        call.program("FLEX_GRAD_KEY_VALUE", "key"),
    )
    masks = _lists(block_mask, 2, -3, -2), _lists(block_mask, 6, -2, -3)
    blocks = call.blocks(masks[0], call.queries), call.blocks(masks[1], call.keys)
    every = []
    for owner, program in enumerate(programs):
        sums = [
            (Sums(term, number, call, blocks[owner]), value)
            for number, (term, value) in enumerate(zip(terms, values, strict=True))
            if (term.rows == "k") == (owner == 1)
        ]
        program.function("mask_mod", mask_graph, torch.bool)
        program.function("score_mod", score_graph, torch.float32)
        program.function("grad_score_mod", joint_graph, torch.float32, sums)
        every += [each for each, _ in sums]

    if grad_out is None:
        grad_out = lowering.full_like(out, 0)
    wide = [lowering.to_dtype(each, torch.float32) for each in (out, grad_out)]
    delta = lowerings[aten.sum](lowerings[aten.mul](*wide), axis=-1)
    if grad_logsumexp is not None:
        of_log2 = lowerings[aten.mul](grad_logsumexp, 1 / math.log(2))
        delta = lowerings[aten.sub](delta, of_log2)
    contiguous = ir.ExternKernel.require_contiguous
    grad_out, logsumexp, delta = maybe_realize(
        [grad_out, contiguous(logsumexp), contiguous(delta)]
    )

    key_size = [call.batch, call.key_heads, call.keys, key.get_size()[-1]]
    value_size = [*key_size[:3], value.get_size()[-1]]
    dtype = query.get_dtype()
    grad_query = call.empty(list(query.get_size()), dtype, query)
    grad_key = call.empty(key_size, dtype, key)
    grad_value = call.empty(value_size, dtype, value)
    for program in programs:
        program.tensor("grad_out", grad_out)
        program.strides("OUT", grad_out.get_stride())
        program.tensor("logsumexp", logsumexp, "float")
        program.tensor("delta", delta, "float")
    of_query, of_key_value = programs
    of_query.tensor("grad_query", grad_query, written=True)
    of_query.strides("GRAD_QUERY", grad_query.get_stride())
    call.launch(of_query, masks[0], blocks[0], [grad_query])
    for name, grad in (("grad_key", grad_key), ("grad_value", grad_value)):
        of_key_value.tensor(name, grad, written=True)
        of_key_value.strides(name.upper(), grad.get_stride())
    call.launch(of_key_value, masks[1], blocks[1], [grad_key, grad_value])
    if not V.graph.sizevars.evaluate_expr(sympy.Eq(call.batch, call.key_batch)):
        grad_key, grad_value = (
            lowerings[aten.sum](grad, axis=0, keepdims=True)
            for grad in (grad_key, grad_value)
        )
    captured = [None] * len(score_buffers)
    for each in every:
        number, gradient = each.term.number, each.gradient(joint, call.score_buffers)
        if captured[number] is not None:
            gradient = lowerings[aten.add.Tensor](captured[number], gradient)
        captured[number] = gradient
    for number, gradient in enumerate(captured):
        if gradient is not None:
            dtype = score_buffers[number].get_dtype()
            captured[number] = lowering.to_dtype(gradient, dtype)
    return grad_query, grad_key, grad_value, tuple(captured)


def _lowering(
    lowered: Callable, own: Callable, dense: Callable, scale: int
) -> Callable:
    """Ours: kernels of ``own``, or where there are none the ops of ``dense``. Argument
    ``scale`` is the scale."""

    @functools.wraps(lowered)
    def flex_attention(query, *arguments):
        if query.get_device().type != "opencl":
            return lowered(query, *arguments)
        every = (query, *arguments)
        options = every[scale + 1]
        _check_backend(options)
        reason: Any = _refusal(*every[:3], every[scale])
        if not reason:
            try:
                return own(*every)
            except (NotGenerated, SubgraphLoweringException) as error:
                reason = error
        log.debug("flex_attention by matrix products: %s", reason)
        return dense(*every)

    return flex_attention


def install() -> None:
    """Puts ours before torch's."""
    higher = torch.ops.higher_order
    op = higher.flex_attention
    lowerings[op] = _lowering(lowerings[op], _forward, flex_dense.forward, 5)
    op = higher.flex_attention_backward
    lowerings[op] = _lowering(lowerings[op], _backward, flex_dense.backward, 10)
