"""What no kernel can be generated for stays kernels of aten: the graph is lowered again
without the ops that it came from."""

from __future__ import annotations

import functools
import logging

import torch
from torch._inductor import compile_fx

log = logging.getLogger(__name__)
_MARK = "should_fallback"
"""By this key of a node's ``meta`` Inductor calls the op itself."""


class StaysExtern(Exception):
    """Ops of the graph that is being lowered have to stay calls of aten."""

    def __init__(self, nodes: list[torch.fx.Node], reason: Exception) -> None:
        names = ", ".join(sorted({str(node.target) for node in nodes}))
        super().__init__(f"{names}: {reason}")
        self.nodes = nodes


def stay_extern(origins, reason: Exception) -> None:
    """Asks for another lowering, in which the ops of ``origins`` are no part of a
    kernel.

    Raises:
        StaysExtern: always, unless none of them can be called, or was not before.
    """
    nodes = [
        node
        for node in origins
        if isinstance(node.target, torch._ops.OpOverload) and _MARK not in node.meta
    ]
    if nodes:
        raise StaysExtern(nodes, reason) from reason


def install() -> None:
    """Lowers a graph again when a kernel asked for it."""
    of = compile_fx._InProcessFxCompile
    lower = of.codegen_and_compile

    @functools.wraps(lower)
    def codegen_and_compile(self, gm, *args, **kwargs):
        while True:
            try:
                return lower(self, gm, *args, **kwargs)
            except StaysExtern as error:
                log.debug("stays a kernel of aten: %s", error)
                for node in error.nodes:
                    node.meta[_MARK] = True

    of.codegen_and_compile = codegen_and_compile
