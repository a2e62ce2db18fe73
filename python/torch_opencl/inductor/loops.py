"""Loops over axes and over what is reduced, and how accumulators are joined."""

from __future__ import annotations

import contextlib
import re

import sympy
import torch
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.virtualized import V

from .kernel import KernelBody, Section
from .reductions import Accumulator
from .types import LANES, SCALAR, NotGenerated, type_of
from .work import GROUP

_BLOCK = {True: 256, False: 512}
"""Steps of a sum that are added up before they are added to the rest, with lanes and
without."""
_MOMENTS = 32
"""Steps at most between two updates of a mean."""
_SHORT_RUN = 8


class LoopedBody(KernelBody):
    """A body whose axes are walked."""

    # Axes.

    @property
    def kept_trees(self) -> list:
        """The innermost first."""
        trees = [t for t in self.range_trees if not t.is_reduction]
        return sorted(trees, key=lambda t: "xyz".index(t.prefix))

    def numel(self, tree) -> str:
        if isinstance(tree.numel, int | sympy.Integer):
            return str(int(tree.numel))
        return f"{tree.prefix}numel"

    def _entries(self, tree, text: str) -> list:
        names = set(re.findall(r"\b[a-z]\w*\b", text))
        return [
            e for e in self.used_entries.values() if e.root is tree and e.name in names
        ]

    def run_length(self, tree, entries: list) -> sympy.Expr:
        """The longest run of elements along which each entry either grows by 1 or
        stays."""
        divides = V.graph.sizevars.statically_known_multiple_of

        def fits(length: sympy.Expr) -> bool:
            return all(
                divides(e.length if e.divisor == 1 else e.divisor, length)
                for e in entries
            )

        lengths = [sympy.sympify(tree.numel)]
        lengths += [e.length for e in entries if e.divisor == 1]
        lengths += [e.divisor for e in entries if e.divisor != 1]
        for length in lengths:
            if divides(tree.numel, length) and fits(length):
                return sympy.sympify(length)
        return sympy.S.One

    def _index_text(self, expr: sympy.Expr) -> str:
        return self.sexpr(self.rename_indexing(expr))

    def _declare(self, lines: IndentedBuffer, entries: list, first: str = "") -> None:
        """Names entries; with ``first`` ahead of a run whose elements follow."""
        for entry in entries:
            suffix = "_first" if first and entry.divisor == 1 else ""
            lines.writeline(
                f"const {self.index_dtype} {entry.name}{suffix} = "
                f"{self._index_text(entry.expr)};"
            )

    def _run(
        self,
        lines: IndentedBuffer,
        tree,
        entries: list,
        length: sympy.Expr,
        lanes: bool,
        begin: str,
        end: str,
        body: IndentedBuffer,
        is_reduced: bool = False,
    ) -> None:
        """The loop over elements ``begin`` to ``end`` - 1 of a run that begins at the
        tree's index."""
        kind, prefix = self.index_dtype, tree.prefix
        step = LANES if lanes else 1
        i = f"{prefix}_i"
        lines.writeline(f"for ({kind} {i} = {begin}; {i} < {end}; {i} += {step}) {{")
        with lines.indent():
            if lanes:
                whole = V.graph.sizevars.statically_known_multiple_of(length, LANES)
                width = f"(int)min(({kind})LANES, ({kind})({end} - {i}))"
                lines.writeline(f"const int width = {'LANES' if whole else width};")
                if is_reduced:
                    inside = "(int16)(-1)" if whole else "LANE_NUMBERS < width"
                    lines.writeline(f"const int16 inside = {inside};")
            for entry in entries:
                if entry.divisor == 1:
                    lines.writeline(
                        f"const {kind} {entry.name} = {entry.name}_first + {i};"
                    )
            if is_reduced:
                lines.writeline(f"const long place = {tree.name} + {i};")
            lines.splice(body)
        lines.writeline("}")

    def note_access(self, index: sympy.Expr) -> None:
        """Counts, of what a GPU reads and writes by element of a row, whether
        neighbouring work-items access neighbours."""
        entries = {s: e for s in index.free_symbols if (e := self._entry(s))}
        is_reduced = any(entry.root.is_reduction for entry in entries.values())
        if not self.form.is_gpu or not is_reduced:
            return
        trees = [t for t in self.range_trees if t.is_reduction]
        along = trees[0] if self.form.by_group else self.kept_trees[0]
        step = {
            s: s + 1 for s, e in entries.items() if e.divisor == 1 and e.root is along
        }
        is_near = sympy.expand(index.xreplace(step) - index) in (0, 1)
        self.runs += is_near
        self.gathers += not is_near

    # Reductions.

    def _start(self, lines: IndentedBuffer, each: Accumulator) -> None:
        lanes = bool(self.form.lanes)
        for part, dtype, start in zip(
            each.parts(), each.dtypes, each.start, strict=False
        ):
            if lanes and dtype == torch.bool:
                start = f"{start} ? -1 : 0"
            lines.writeline(f"{type_of(dtype, lanes)} {part} = {start};")

    def _declare_all(self, lines: IndentedBuffer, each: Accumulator) -> None:
        for part, dtype in zip(each.parts("_all"), each.dtypes, strict=False):
            lines.writeline(f"{SCALAR[dtype]} {part};")

    def _fold_lanes(self, lines: IndentedBuffer, each: Accumulator) -> None:
        self._declare_all(lines, each)
        if each.fold:
            into = {f"a{i}": part for i, part in enumerate(each.parts("_all"))}
            lines.writeline(each.fold.format(*each.parts(), **into))
            return
        lines.writeline("{")
        elements = []
        for part, dtype in zip(each.parts(), each.dtypes, strict=False):
            kind = "int" if dtype == torch.bool else SCALAR[dtype]
            lines.writeline(
                f"{kind} {part}_lane[LANES]; vstore16({part}, 0, {part}_lane);"
            )
            suffix = " != 0" if dtype == torch.bool else ""
            elements.append(f"({part}_lane[{{}}]{suffix})")
        for part, element in zip(each.parts("_all"), elements, strict=False):
            lines.writeline(f"{part} = {element.format(0)};")
        others = [element.format("l") for element in elements]
        lines.writeline("for (int l = 1; l < LANES; ++l) {")
        lines.writeline(each.joined(each.parts("_all"), others))
        lines.writeline("} }")

    def _fold_group(self, lines: IndentedBuffer, each: Accumulator) -> None:
        """A tree over the work-items of a group."""
        self._declare_all(lines, each)
        for part, dtype in zip(each.parts(), each.dtypes, strict=False):
            kind = "int" if dtype == torch.bool else SCALAR[dtype]
            self.local_lines.writeline(f"local {kind} {part}_local[{GROUP}];")
            lines.writeline(f"{part}_local[get_local_id(0)] = {part};")
        lines.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        lines.writeline(f"for (int half_ = {GROUP // 2}; half_ > 0; half_ /= 2) {{")
        lines.writeline("if ((int)get_local_id(0) < half_) {")
        for part, dtype in zip(each.parts(), each.dtypes, strict=False):
            lines.writeline(
                f"{SCALAR[dtype]} {part}_a = {part}_local[get_local_id(0)];"
            )
        others = [f"{p}_local[get_local_id(0) + half_]" for p in each.parts()]
        lines.writeline(each.joined(each.parts("_a"), others))
        for part in each.parts():
            lines.writeline(f"{part}_local[get_local_id(0)] = {part}_a;")
        lines.writeline("}")
        lines.writeline("barrier(CLK_LOCAL_MEM_FENCE); }")
        for part in each.parts():
            lines.writeline(f"{part}_all = {part}_local[0];")

    def _reduce(self, lines: IndentedBuffer, section: Section) -> None:
        """The loop over the reduced axis, and its results."""
        (tree,) = (t for t in self.range_trees if t.is_reduction)
        kind, numel = self.index_dtype, self.numel(tree)
        entries = self._entries(tree, section.text.getvalue())
        lanes = self.form.lanes == "r"
        length = tree.numel if self.form.by_group else self.run_length(tree, entries)
        totals = []
        if self._has_blocks(section, length):
            totals = [each for each in section.accumulators if each.is_sum]
        for each in section.accumulators:
            self._start(lines, each)
        for each in totals:
            kind_of = type_of(each.dtypes[0], bool(self.form.lanes))
            lines.writeline(f"{kind_of} {each.name}_0_total = 0;")
        if self.form.by_group:
            with self._blocks(lines, tree, section, tree.numel) as (begin, end):
                name, item = tree.name, "get_local_id(0)"
                if V.graph.sizevars.statically_known_multiple_of(tree.numel, GROUP):
                    # Compilers unroll a loop of the same length for all work-items.
                    lines.writeline(
                        f"for ({kind} {name}_0 = {begin}; {name}_0 < {end}; "
                        f"{name}_0 += {GROUP}) {{ const {kind} {name} = {name}_0 + {item};"
                    )
                else:
                    lines.writeline(
                        f"for ({kind} {name} = {begin} + {item}; {name} < {end}; "
                        f"{name} += {GROUP}) {{"
                    )
                with lines.indent():
                    self._declare(lines, entries)
                    lines.writeline(f"const long place = {name};")
                    lines.splice(section.text)
                lines.writeline("}")
            self._add_totals(lines, totals)
            for each in section.accumulators:
                self._fold_group(lines, each)
            return
        self._check_run(length, lanes)
        size = self._index_text(length)
        is_whole = length == tree.numel
        if is_whole:
            lines.writeline(f"{{ const {kind} {tree.name} = 0;")
        else:
            lines.writeline(
                f"for ({kind} {tree.name} = 0; {tree.name} < {numel}; "
                f"{tree.name} += {size}) {{"
            )
        with lines.indent():
            self._declare(lines, entries, "first")
            with self._blocks(lines, tree, section, length) as (begin, end):
                self._run(
                    lines, tree, entries, length, lanes, begin, end, section.text, True
                )
        lines.writeline("}")
        self._add_totals(lines, totals)
        if lanes:
            for each in section.accumulators:
                self._fold_lanes(lines, each)

    @property
    def _unit(self) -> int:
        """Elements that one step takes."""
        if self.form.by_group:
            return GROUP
        return LANES if self.form.lanes == "r" else 1

    def _has_blocks(self, section: Section, length: sympy.Expr) -> bool:
        if any(each.block for each in section.accumulators):
            return True
        block = self._unit * _BLOCK[self.form.lanes == "r"]
        is_long = not isinstance(length, sympy.Integer) or int(length) > block
        return is_long and any(each.is_sum for each in section.accumulators)

    def _add_totals(self, lines: IndentedBuffer, totals: list[Accumulator]) -> None:
        for each in totals:
            (part,) = each.parts()
            lines.writeline(f"{part} += {part}_total;")

    @contextlib.contextmanager
    def _blocks(self, lines: IndentedBuffer, tree, section: Section, length):
        """The loop over blocks of a run, where sums or moments need one. Yields where
        a block begins and ends."""
        size = self._index_text(sympy.sympify(length))
        if not self._has_blocks(section, length):
            yield "0", size
            return
        lanes, unit = self.form.lanes == "r", self._unit
        moments = [each for each in section.accumulators if each.block]
        kind, begin = self.index_dtype, f"{tree.prefix}_b"
        end = f"{begin}_end"
        width = f"({kind}){unit * _BLOCK[lanes]}"
        if moments:
            # The first are short: where their mean is far from that of the rest,
            # few deviations are from it.
            width = f"clamp({begin}, ({kind}){unit}, ({kind}){unit * _MOMENTS})"
        lines.writelines(
            [
                f"for ({kind} {begin} = 0, {end}; {begin} < {size}; {begin} = {end}) {{",
                f"{end} = min(({kind})({size}), ({kind})({begin} + {width}));",
            ]
        )
        lines.writelines(each.block[0] for each in moments)
        yield begin, end
        for each in moments:
            elements = f"{end} - {begin}"
            if lanes:
                elements = f"((int16)((int)({elements}) + {LANES - 1}) - LANE_NUMBERS)"
                count = f"convert_float16({elements} / LANES)"
            elif self.form.by_group:
                elements = f"{elements} + {GROUP - 1} - (int)get_local_id(0)"
                count = f"({SCALAR[each.dtypes[0]]})(({elements}) / {GROUP})"
            else:
                count = f"({SCALAR[each.dtypes[0]]})({elements})"
            text = each.block[1].format(*each.parts(), count=count)
            lines.writeline(f"{{ {text} }}")
        for each in section.accumulators:
            if each.is_sum:
                (part,) = each.parts()
                lines.writeline(f"{part}_total += {part}; {part} = 0;")
        lines.writeline("}")

    def _check_run(self, length: sympy.Expr, lanes: bool) -> None:
        if lanes and isinstance(length, sympy.Integer) and int(length) < _SHORT_RUN:
            raise NotGenerated("short runs")
