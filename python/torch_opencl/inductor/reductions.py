"""Accumulators of reductions: how they start, take a value and are joined."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .expressions import ARITHMETIC
from .types import SCALAR, NotGenerated, compute_dtype, literal, type_of


@dataclass
class Accumulator:
    """State of one reduction.

    A text's ``{0}``, ``{1}`` and so on are the parts of the state; in ``join``,
    ``{b0}`` and so on are those that are joined to it.
    """

    name: str
    dtypes: tuple[torch.dtype, ...]
    start: tuple[str, ...]
    """Scalars."""
    step: str
    """A statement, of the state and the value that it was made with."""
    join: str
    """Statements over scalars."""
    is_sum: bool = False
    results: tuple[torch.dtype, ...] = ()
    block: tuple[str, str] | None = None
    """Statements ahead of and behind each block of elements, where steps need them;
    ``{count}`` is the number of elements in it."""
    fold: str = ""
    """A statement that joins the lanes of the state in ``{a0}`` and so on, where that
    is one of vectors."""

    def parts(self, suffix: str = "") -> list[str]:
        return [f"{self.name}_{i}{suffix}" for i in range(len(self.dtypes))]

    def joined(self, parts: list[str], others: list[str]) -> str:
        return self.join.format(
            *parts, **{f"b{i}": other for i, other in enumerate(others)}
        )


def _lowest(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "false"
    if dtype.is_floating_point:
        return literal(-float("inf"), dtype)
    return literal(torch.iinfo(dtype).min, dtype)


def _highest(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "true"
    if dtype.is_floating_point:
        return literal(float("inf"), dtype)
    return literal(torch.iinfo(dtype).max, dtype)


def accumulator(
    name: str,
    kind: str,
    dtype: torch.dtype,
    values: tuple[str, ...],
    lanes: bool,
    inside: str | None,
    index: str,
) -> Accumulator:
    """The accumulator of Inductor's reduction ``kind``.

    Args:
        name: ahead of the names of its state.
        dtype: of the values.
        values: what a step takes, already of that dtype and in lanes.
        lanes: whether the state is kept in lanes.
        inside: the mask of lanes that count, where not all do.
        index: of the element, for argmax.

    Raises:
        NotGenerated: it has no text in lanes.
    """
    dtype = compute_dtype(dtype)
    zero, one = literal(0, dtype), literal(1, dtype)

    def kept(new: str, old: str) -> str:
        if inside is None:
            return new
        if dtype == torch.bool:
            return f"(({inside} & ({new})) | (~{inside} & {old}))"
        return f"pick({inside}, {new}, {old})"

    def folding(start: str, text: str, is_sum: bool = False) -> Accumulator:
        value = values[0]
        step = "{0} = " + kept(text.replace("{b0}", value), "{0}") + ";"
        join = "{0} = " + text + ";"
        return Accumulator(
            name, (dtype,), (start,), step, join, is_sum, results=(dtype,)
        )

    def arithmetic(op: str) -> str:
        of_floating, of_integers = ARITHMETIC[op]
        text = of_floating if dtype.is_floating_point else of_integers
        return text.format("{0}", "{b0}")

    def folded(made: Accumulator, function: str) -> Accumulator:
        if lanes and dtype == torch.float32:
            made.fold = f"{{a0}} = {function}({{0}});"
        return made

    if lanes:
        type_of(dtype, True)
    if kind == "sum" and dtype == torch.bool:
        kind = "any"
    if kind == "prod" and dtype == torch.bool:
        kind = "min"
    if kind in ("max", "min") and dtype == torch.bool:
        both = kind == "min"
        operator = ("&" if both else "|") * (1 if lanes else 2)
        made = folding("true" if both else "false", f"({{0}} {operator} {{b0}})")
        made.join = "{0} = {0} " + ("&& " if both else "|| ") + "{b0};"
        return made
    if kind == "sum":
        made = folding(zero, arithmetic("add"), dtype.is_floating_point)
        return folded(made, "sum_of_lanes")
    if kind == "prod":
        return folding(one, arithmetic("mul"))
    if kind == "xor_sum":
        return folding(zero, "({0} ^ {b0})")
    if kind == "any":
        made = folding("false", "({0} | {b0})" if lanes else "({0} || {b0})")
        made.join = "{0} = {0} || {b0};"
        return made
    if kind == "max":
        made = folding(_lowest(dtype), "nan_max({0}, {b0})")
        return folded(made, "greatest_lane")
    if kind == "min":
        made = folding(_highest(dtype), "nan_min({0}, {b0})")
        return folded(made, "smallest_lane")
    if kind in ("argmax", "argmin"):
        if lanes:
            raise NotGenerated(f"{kind} of vectors")
        sign = ">" if kind == "argmax" else "<"
        # The first of equal values counts, NaN wins. An index below 0 is of none.
        nan_of = "isnan({})" if dtype.is_floating_point else "false"

        def wins(value: str, place: str) -> str:
            new, old = nan_of.format(value), nan_of.format("{0}")
            return (
                f"({{1}} < 0 || ({place} >= 0 && ({value} {sign} {{0}} && !{old} || "
                f"{new} && !{old} || ({value} == {{0}} || {new} && {old}) && "
                f"{place} < {{1}})))"
            )

        step = (
            f"if ({wins(values[0], index)}) {{{{ {{0}} = {values[0]}; "
            f"{{1}} = {index}; }}}}"
        )
        join = f"if ({wins('{b0}', '{b1}')}) {{{{ {{0}} = {{b0}}; {{1}} = {{b1}}; }}}}"
        return Accumulator(
            name,
            (dtype, torch.int64),
            (zero, "-1l"),
            step,
            join,
            results=(dtype, torch.int64),
        )
    if kind in ("welford_reduce", "welford_combine"):
        if not dtype.is_floating_point:
            raise NotGenerated(f"{kind} of {dtype}")
        made = Accumulator(
            name,
            (dtype,) * 3,
            (zero,) * 3,
            "",
            "join_moments(&{0}, &{1}, &{2}, {b0}, {b1}, {b2});",
            results=(dtype,) * 3,
        )
        if kind == "welford_combine":
            if lanes:
                raise NotGenerated(f"{kind} of vectors")
            made.step = made.joined(["{0}", "{1}", "{2}"], values)
            return made
        # Within a block, deviations from the mean of what lies ahead of it.
        kind_of = type_of(dtype, lanes)
        d, s, q, n = (f"{name}_{letter}" for letter in "dsqn")
        difference = kept(f"({values[0]} - {{0}})", f"(({kind_of})0)")
        made.step = (
            f"const {kind_of} {d} = {difference}; {s} += {d}; {q} = fma({d}, {d}, {q});"
        )
        made.block = (
            f"{kind_of} {s} = 0, {q} = 0;",
            f"const {kind_of} {n} = {{2}} + {{count}}, "
            f"{d} = {s} / max({n}, ({kind_of})1); "
            f"{{1}} += pick({n} > 1, {q} - {s} * {d}, ({kind_of})0); "
            f"{{0}} += {d}; {{2}} = {n};",
        )
        if lanes:
            made.fold = "join_lanes({0}, {1}, {2}, &{a0}, &{a1}, &{a2});"
        return made
    if kind == "online_softmax_reduce":
        scalar = type_of(dtype, lanes)
        # One of the greatest so far and the value is the greatest now. Where both
        # are infinite, their difference is not a number.
        v, e = f"{name}_v", f"{name}_e"
        grown = f"pick({v} > {{0}}, fma({{1}}, {e}, ({scalar})1), {{1}} + {e})"
        step = (
            f"const {scalar} {v} = {values[0]}, {e} = whole_exp("
            f"pick({v} == {{0}}, ({scalar})0, -fabs({v} - {{0}}))); "
            f"{{1}} = {kept(grown, '{1}')}; "
            f"{{0}} = {kept(f'nan_max({{0}}, {v})', '{0}')};"
        )
        plain = SCALAR[dtype]
        join = (
            f"{{{{ const {plain} m = nan_max({{0}}, {{b0}}); "
            "{1} = {1} * whole_exp(pick({0} == m, (" + plain + ")0, {0} - m)) + "
            "{b1} * whole_exp(pick({b0} == m, (" + plain + ")0, {b0} - m)); "
            "{0} = m; }}"
        )
        return Accumulator(
            name,
            (dtype, dtype),
            (literal(-float("inf"), dtype), zero),
            step,
            join,
            results=(dtype, dtype),
            fold="join_softmax({0}, {1}, &{a0}, &{a1});" if lanes else "",
        )
    raise NotGenerated(f"reduction {kind}")
