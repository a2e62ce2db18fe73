"""Gradients of tensors that score_mod captures: of what they depend on, and the graph
in which they are found.

A gradient is a sum of terms: values, one for each score, which are added up where
indices say. Of the batch, head, query and key of a score the indices need only some, so
that values of the same indices are added up in the kernel (flex_sums.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import lowering
from torch._inductor.lowering import lowerings
from torch.fx import Graph, GraphModule, Node

from .types import NotGenerated

aten = torch.ops.aten
_PLACES = ("b", "h", "q", "k")
_SCATTER = torch.ops.flex_lib.zeros_and_scatter.default
_CONVERSIONS = (
    torch.ops.prims.convert_element_type.default,
    aten._to_copy.default,
    aten.clone.default,
)
# What wraps around or is rounded is no multiple of a query's or key's number.
_EXACT = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Term:
    """Values that are added up in a tensor of zeros.

    Attributes:
        number: of the captured tensor.
        indices: for each dimension, a node or a number.
        value: the node of a score's value.
        needs: which of ``b``, ``h``, ``q``, ``k`` the indices depend on; ``d`` is the
            difference of ``q`` and ``k``.
    """

    number: int
    indices: tuple[Any, ...]
    value: Node
    needs: frozenset[str]

    @property
    def rows(self) -> str:
        """What the kernel keeps apart: ``q``, ``k``, ``d``, or ``qk`` for all."""
        wide = self.needs & {"q", "k", "d"}
        return "qk" if len(wide) > 1 else next(iter(wide), "q")


class Needs:
    """What nodes of a graph of scores depend on.

    Args:
        placeholders: those of the indices in the order b, h, q, k.
        forbidden: placeholders that differ from score to score.
    """

    def __init__(self, placeholders: list[Node], forbidden: list[Node]) -> None:
        # A node is q times a number, k times a number, and a function of the others.
        self._known: dict[Node, tuple[int, int, frozenset[str]]] = {}
        for name, node in zip(_PLACES, placeholders, strict=True):
            node.meta["place"] = name
            others = frozenset() if name in "qk" else frozenset(name)
            self._known[node] = (int(name == "q"), int(name == "k"), others)
        self._forbidden = forbidden

    def of(self, argument: Any) -> frozenset[str]:
        q, k, others = self._linear(argument)
        if q and q == -k:
            return others | {"d"}
        return others | {name for name, by in (("q", q), ("k", k)) if by}

    def _linear(self, argument: Any) -> tuple[int, int, frozenset[str]]:
        if not isinstance(argument, Node):
            return 0, 0, frozenset()
        if argument not in self._known:
            self._known[argument] = self._computed(argument)
        return self._known[argument]

    def _computed(self, node: Node) -> tuple[int, int, frozenset[str]]:
        if node in self._forbidden:
            raise NotGenerated("indices of captured tensors that depend on scores")
        if node.op == "placeholder":
            return 0, 0, frozenset()
        target, arguments = node.target, node.args
        if getattr(node.meta["val"], "dtype", None) not in _EXACT:
            return 0, 0, frozenset().union(*map(self.of, node.all_input_nodes))
        if target in (aten.add.Tensor, aten.sub.Tensor) and not node.kwargs:
            (q, k, others), (q2, k2, others2) = map(self._linear, arguments[:2])
            sign = 1 if target is aten.add.Tensor else -1
            return q + sign * q2, k + sign * k2, others | others2
        if target is aten.neg.default:
            q, k, others = self._linear(arguments[0])
            return -q, -k, others
        if target is aten.mul.Tensor and isinstance(arguments[1], int):
            q, k, others = self._linear(arguments[0])
            return q * arguments[1], k * arguments[1], others
        if target in _CONVERSIONS:
            return self._linear(arguments[0])
        return 0, 0, frozenset().union(*map(self.of, node.all_input_nodes))


def _parts(node: Node, number: int, needs: Needs, indices: tuple = ()) -> list[Term]:
    """The terms of a captured tensor's gradient."""
    target = node.target
    if target is _SCATTER:
        _, own, value = node.args
        return _parts(value, number, needs, (*indices, *own))
    if target is aten.add.Tensor and node.meta["val"].dim() and not node.kwargs:
        return [t for each in node.args for t in _parts(each, number, needs, indices)]
    if node.meta["val"].dim():
        raise NotGenerated(f"gradients of captured tensors by {target}")
    needed = frozenset().union(*map(needs.of, indices))
    if "d" in needed and needed & {"q", "k"}:
        needed = needed - {"d"} | {"q", "k"}
    return [Term(number, indices, node, needed)]


def split(module: GraphModule) -> tuple[GraphModule, list[Term]]:
    """The graph of a score's gradient and of the terms' values, and the terms, whose
    nodes are those of ``module``."""
    graph = module.graph
    graph.eliminate_dead_code()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    outputs = graph.output_node().args[0]
    needs = Needs(placeholders[1:5], [placeholders[0], placeholders[5]])
    terms = [
        term
        for number, node in enumerate(outputs[5:])
        if node is not None
        for term in _parts(node, number, needs)
    ]
    copies: dict[Node, Node] = {}
    copied = Graph()
    copied.graph_copy(graph, copies)
    copied.output([copies[outputs[0]], *(copies[term.value] for term in terms)])
    made = GraphModule(module, copied)
    made.graph.eliminate_dead_code()
    return made, terms


class Indices:
    """The indices of terms for all scores that differ in them.

    Args:
        module: whose nodes the terms' indices are.
        places: for b, h, q and k, tensors that broadcast.
        captured: the captured tensors.
    """

    def __init__(self, module: GraphModule, places: list, captured: list) -> None:
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._known = dict(zip(nodes[1:5], places, strict=True))
        self._known |= zip(nodes[6:], captured, strict=True)

    def of(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [self.of(each) for each in argument]
        if not isinstance(argument, Node):
            return argument
        if argument not in self._known:
            self._known[argument] = self._computed(argument)
        return self._known[argument]

    def _computed(self, node: Node) -> Any:
        if isinstance(node.meta.get("val"), torch.SymInt):
            return node.target(*self.of(node.args))
        if node.op != "call_function" or node.target not in lowerings:
            raise NotGenerated(f"indices of captured tensors by {node.target}")
        arguments = self.of(node.args)
        if node.target is aten.index.Tensor:
            arguments[1] = within(arguments[1], arguments[0].get_size())
        kwargs = {name: self.of(each) for name, each in node.kwargs.items()}
        return lowerings[node.target](*arguments, **kwargs)


def within(indices: list, sizes) -> list:
    """What is not used may have any index; what is used, the kernel has checked."""
    return [
        index if index is None else lowering.clamp(index, -size, size - 1)
        for index, size in zip(indices, sizes, strict=False)
    ]
