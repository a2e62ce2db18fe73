"""Accumulators of reductions: how they start, take a value and are joined."""

from __future__ import annotations

from dataclasses import dataclass

import torch

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
    counts: bool = False
    """Whether a step counts elements."""
    results: tuple[torch.dtype, ...] = ()

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

    if lanes:
        type_of(dtype, True)
    if kind == "sum" and dtype == torch.bool:
        kind = "any"
    if kind in ("max", "min") and dtype == torch.bool:
        both = kind == "min"
        operator = ("&" if both else "|") * (1 if lanes else 2)
        made = folding("true" if both else "false", f"({{0}} {operator} {{b0}})")
        made.join = "{0} = {0} " + ("&& " if both else "|| ") + "{b0};"
        return made
    if kind == "sum":
        return folding(zero, "({0} + {b0})", dtype.is_floating_point)
    if kind == "prod":
        if dtype == torch.bool:
            raise NotGenerated("prod of bool")
        return folding(one, "({0} * {b0})")
    if kind == "xor_sum":
        return folding(zero, "({0} ^ {b0})")
    if kind == "any":
        made = folding("false", "({0} | {b0})" if lanes else "({0} || {b0})")
        made.join = "{0} = {0} || {b0};"
        return made
    if kind == "max":
        return folding(_lowest(dtype), "nan_max({0}, {b0})")
    if kind == "min":
        return folding(_highest(dtype), "nan_min({0}, {b0})")
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
        join = "join_moments(&{0}, &{1}, &{2}, {b0}, {b1}, {b2});"
        if kind == "welford_combine":
            if lanes:
                raise NotGenerated(f"{kind} of vectors")
            step = join.replace("{b0}", values[0]).replace("{b1}", values[1])
            step = step.replace("{b2}", values[2])
        else:
            value = values[0]
            kind_of = type_of(dtype, lanes)
            # COUNTED and count_t: text.py, one number where lanes count the same.
            count, share = f"{name}_n", f"{name}_share"
            step = (
                f"{count} += COUNTED; const count_t {share} = 1 / {count}; "
                f"const {kind_of} {name}_d = {value} - {{0}}; "
                f"const {kind_of} {name}_m = {{0}} + {name}_d * {share}; "
                f"{{1}} = {kept('{1} + ' + f'{name}_d * ({value} - {name}_m)', '{1}')};"
                f" {{0}} = {kept(f'{name}_m', '{0}')}; "
                f"{{2}} = {kept(f'(({kind_of}){count})', '{2}')};"
            )
        return Accumulator(
            name,
            (dtype,) * 3,
            (zero,) * 3,
            step,
            join,
            counts=kind == "welford_reduce",
            results=(dtype,) * 3,
        )
    if kind == "online_softmax_reduce":
        scalar = type_of(dtype, lanes)
        # Where nothing but -inf was seen, the difference is not a number.
        top = f"nan_max({{0}}, {values[0]})"
        low = literal(-float("inf"), dtype)
        if lanes:
            low = f"(({scalar}){low})"
        rest = "pick({a} == {m}, ({t})0, {a} - {m})"
        grown = (
            "{1} * whole_exp(" + rest.format(a="{0}", m=f"{name}_m", t=scalar) + ")"
            " + whole_exp(" + rest.format(a=values[0], m=f"{name}_m", t=scalar) + ")"
        )
        step = (
            f"const {scalar} {name}_m = {top}; {{1}} = {kept(grown, '{1}')}; "
            f"{{0}} = {kept(f'{name}_m', '{0}')};"
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
        )
    raise NotGenerated(f"reduction {kind}")
