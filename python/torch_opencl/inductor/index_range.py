"""How large an index expression becomes while it is computed.

Inductor makes arithmetic on ``arange`` part of the index expressions, so one of them, or
what is divided in it, may be far beyond the tensors that are indexed.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import (
    CleanDiv,
    FloorDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PowByNatural,
    PythonMod,
    Where,
)

_GREATEST_INT = 2**31 - 1
Bound = Callable[[sympy.Symbol], sympy.Expr]


def _product(factors: list[sympy.Expr]) -> sympy.Expr:
    return sympy.S.Zero if sympy.S.Zero in factors else sympy.Mul(*factors)


def _power(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    return base**exponent if exponent.is_Integer else sympy.oo


_MAGNITUDES: dict[type, Callable[[list[sympy.Expr]], sympy.Expr]] = {
    sympy.Add: lambda of: sympy.Add(*of),
    sympy.Mul: _product,
    sympy.Pow: lambda of: _power(*of),
    PowByNatural: lambda of: _power(*of),
    FloorDiv: lambda of: of[0],
    CleanDiv: lambda of: of[0],
    ModularIndexing: lambda of: of[2],
    Mod: lambda of: of[1],
    PythonMod: lambda of: of[1],
    Min: lambda of: sympy.Add(*of),
    Max: lambda of: sympy.Add(*of),
    sympy.Abs: lambda of: of[0],
    Where: lambda of: of[1] + of[2],
}


def magnitudes(expr: sympy.Expr, bound: Bound, found: list[sympy.Expr]) -> sympy.Expr:
    """No less than the absolute value of ``expr``, whose symbols are at most what
    ``bound`` says. Those of all that is computed for it are added to ``found``; sympy.oo
    stands where nothing is known."""
    if expr.is_Integer:
        return abs(expr)
    if isinstance(expr, sympy.Symbol):
        return bound(expr)
    parts = [magnitudes(part, bound, found) for part in expr.args]
    if isinstance(expr, sympy.logic.boolalg.Boolean):
        return sympy.S.One
    combine = _MAGNITUDES.get(type(expr), lambda of: sympy.oo)
    value = sympy.oo if sympy.oo in parts else combine(parts)
    found.append(value)
    return value


def _divided(expr: sympy.Expr) -> list[sympy.Expr]:
    """What is computed in ``expr`` before its last sum of products."""
    if isinstance(expr, sympy.Add | sympy.Mul):
        return [found for part in expr.args for found in _divided(part)]
    return list(expr.args)


def fits_32_bits(
    index: sympy.Expr, bound: Bound, elements: sympy.Expr, is_access: bool
) -> bool:
    """Whether all that is computed for ``index`` is known to be an int, as are the
    numbers of a kernel's ``elements``. Of an access the last sum is: it lies in a
    tensor that the kernel's indices reach."""
    found: list[sympy.Expr] = []
    for part in _divided(index) if is_access else [index]:
        found.append(magnitudes(part, bound, found))
    is_within = V.graph.sizevars.statically_known_leq
    return all(
        is_within(value, _GREATEST_INT) or is_within(value, elements) for value in found
    )


def of_64_bits(expr: sympy.Expr) -> sympy.Expr:
    """``expr`` of indices, each as a long."""
    return expr.xreplace(
        {
            symbol: sympy.Symbol(f"((long){symbol})", integer=True, nonnegative=True)
            for symbol in expr.free_symbols
        }
    )
