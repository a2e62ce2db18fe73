"""Variables of generated kernels: each is declared with the type of its dtype."""

from __future__ import annotations

import torch
from torch._inductor.codegen.common import CSE, CSEVariable
from torch._inductor.virtualized import OpsValue, V

from .types import Text, compute_dtype, converted, type_of


class Variable(CSEVariable):
    """A value that has a name.

    Attributes:
        lanes: whether it is a vector of lanes.
        outer: whether it outlives the loop of a reduction.
    """

    lanes = False
    outer = False


class TypedCSE(CSE):
    """OpenCL C has no ``auto``. What is the same in all iterations of a loop is
    written ahead of it."""

    def generate(self, buffer, expr, *, dtype=None, assignment=True, **rest):
        if isinstance(expr, OpsValue):
            expr = expr.value
        if not assignment or isinstance(expr, CSEVariable):
            return super().generate(
                buffer, expr, dtype=dtype, assignment=assignment, **rest
            )
        kernel = V.kernel
        if not isinstance(expr, Text):
            expr = Text(expr, dtype or torch.int64)
        target = compute_dtype(dtype) if dtype is not None else expr.dtype
        text = converted(str(expr), expr.dtype, target, expr.lanes)
        if text != expr:
            text = f"({text})"
        outer = expr.outer and not kernel.scope_depth
        if outer and buffer is kernel.compute and kernel.is_in_loop:
            buffer = kernel.body
        known = self.try_get(text)
        if target.is_floating_point:
            # Numbers that differ as float64 may be one text, but not one range.
            rest.pop("bounds", None)
        if known is None:
            self.prefix = f"const {type_of(target, expr.lanes)} "
        variable = super().generate(
            buffer, text, dtype=target, assignment=assignment, **rest
        )
        if known is None:
            variable.lanes = expr.lanes
            variable.outer = outer or not (kernel.is_in_loop or kernel.scope_depth)
        return variable
