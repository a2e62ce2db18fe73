"""flex_attention by matrix products of the whole matrix of scores, as eager's: for
what the generated kernels do not take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import (
    math_attention,
    sdpa_dense,
    sdpa_dense_backward,
)
from torch._inductor import ir
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.lowering import process_subgraph_nodes
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

_numbers = itertools.count()


def _example(argument: Any) -> Any:
    """What an argument of the node stands for."""
    if not isinstance(argument, torch.fx.Node):
        return argument
    if argument.op == "get_attr" and "val" not in argument.meta:
        return getattr(V.graph.module, argument.target)
    return argument.meta["val"]


def _is_input(lowered: Any) -> bool:
    return isinstance(lowered, ir.IRNode) and not isinstance(lowered, ir.Subgraph)


def _lower(function: Callable, arguments: tuple) -> Any:
    """The ops that ``function`` calls, lowered in place of the current node."""
    examples, structure = tree_flatten(tree_map(_example, V.graph.current_node.args))
    lowered = tree_flatten(arguments)[0]
    places = [i for i, value in enumerate(lowered) if _is_input(value)]

    def traced(*tensors):
        values = list(examples)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        return function(*tree_unflatten(values, structure))

    with V.fake_mode:
        graph = make_fx(traced, decomposition_table=select_decomp_table())(
            *(examples[place] for place in places)
        )
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            name = f"_flex_constant{next(_numbers)}"
            setattr(V.graph.module, name, getattr(graph, node.target))
            node.target = name
    return process_subgraph_nodes(graph, [lowered[place] for place in places])


def _dense_forward(*arguments):
    """eager's, with the statistics of float32 that compiled graphs expect."""
    out, *statistics = sdpa_dense(*arguments)
    return out, *(each.float() for each in statistics)


def forward(*arguments):
    return _lower(_dense_forward, arguments)


def _dense_backward(*arguments):
    """eager's, which asks the captured buffers whether they require grad."""
    joint, buffers = arguments[8], arguments[12]
    gradients = joint.graph.output_node().args[0][5:]
    buffers = tuple(
        buffer if gradient is None else buffer.detach().requires_grad_()
        for buffer, gradient in zip(buffers, gradients, strict=True)
    )
    inputs, logsumexp = arguments[:3], arguments[4]
    with torch.no_grad():
        if inputs[0].dtype == torch.float64:  # what was saved is of float32
            mods = (arguments[7], *arguments[9:12], buffers, arguments[13])
            logsumexp = math_attention(*inputs, *mods)[1]
        arguments = (*inputs, arguments[3], logsumexp, *arguments[5:])
        return sdpa_dense_backward(*arguments[:12], buffers, arguments[13])


def backward(*arguments):
    return _lower(_dense_backward, arguments)
