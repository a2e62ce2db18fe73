"""Numbers that Inductor keeps as sympy's, which neither wrap around nor round.

Inductor makes arithmetic on ``arange`` part of index expressions, whatever its dtype: of
``arange(300).to(torch.uint8).long()`` it makes 0 to 299. On the device an expression stays
symbolic while its dtype holds each of its values; else it is computed as a tensor's.
"""

from __future__ import annotations

import sympy
import torch
from torch._inductor.index_propagation import IndexPropagation, IndexPropVar, TypedExpr
from torch._inductor.virtualized import V
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

# A size that is not known is taken to be below that: two of them fit 64 bits.
_UNKNOWN_SIZE = 2**31


def _values_of(dtype: torch.dtype) -> ValueRanges:
    """The integers of which the dtype holds each."""
    if dtype == torch.bool:
        return ValueRanges(0, 1)
    if dtype.is_floating_point:
        most = int(2 / torch.finfo(dtype).eps)
        return ValueRanges(-most, most)
    info = torch.iinfo(dtype)
    return ValueRanges(info.min, info.max)


def _is_held(propagation: IndexPropagation, value: TypedExpr) -> bool:
    if value.is_constant():
        return True
    most = sympy.Integer(_UNKNOWN_SIZE)
    ranges = {
        symbol: ValueRanges(known.lower, sympy.Min(known.upper, most))
        for symbol, known in propagation.var_to_range
        if symbol in value.expr.free_symbols
    }
    found, held = bound_sympy(value.expr, ranges), _values_of(value.dtype)
    return bool(found.lower >= held.lower and found.upper <= held.upper)


def install() -> None:
    """Looks at what Inductor's propagation makes in graphs of the device."""
    propagate = IndexPropagation.propagate_sympy

    def propagate_sympy(self, name, args, kwargs):
        made = propagate(self, name, args, kwargs)
        is_symbolic = isinstance(made, IndexPropVar) and made.is_symbolic
        if not is_symbolic or "opencl" not in V.graph.device_types:
            return made
        return made if _is_held(self, made.value) else self.fallback(name, args, kwargs)

    IndexPropagation.propagate_sympy = propagate_sympy
