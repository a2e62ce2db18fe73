"""A whole kernel: the sections of its body within the loops of a form."""

from __future__ import annotations

import contextlib
import re

import sympy
import torch
from torch._inductor.codegen.common import IndentedBuffer, SizeArg, TensorArg
from torch._inductor.virtualized import V

from ..opencl.devices import get_device_properties
from .kept_rows import keep_rows
from .kernel import KernelBody, Section
from .reductions import Accumulator
from .types import LANES, SCALAR, NotGenerated, name_of, type_of
from .work import GROUP, split_work

_BLOCK = {True: 256, False: 512}
"""Steps of a sum that are added up before they are added to the rest, with lanes and
without."""
_MOMENTS = 32
"""Steps at most between two updates of a mean."""
_SHORT_RUN = 8
_KEPT_ROW = 4096
"""Elements of a row that may be kept: what the first level of caches holds."""


class OpenCLKernel(KernelBody):
    """A kernel and its call."""

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
                name = tree.name
                lines.writeline(
                    f"for ({kind} {name} = {begin} + get_local_id(0); {name} < {end}; "
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

    # The kernel.

    def _keep_rows(self, body: IndentedBuffer) -> None:
        """Where loops over one row compute the same."""
        trees = [t for t in self.range_trees if t.is_reduction]
        if self.form.lanes != "r" or not isinstance(trees[0].numel, sympy.Integer):
            return
        mutated = V.graph.scheduler.mutation_real_name
        if not mutated.keys().isdisjoint(self.args.output_buffers):
            return  # a row that is read again may be another one
        (tree,) = trees
        size = -(-int(tree.numel) // LANES) * LANES
        loops = [
            section
            for section in self.sections
            if section.is_loop
            and self.run_length(tree, self._entries(tree, section.text.getvalue()))
            == tree.numel
        ]
        if size > _KEPT_ROW:
            return
        texts = [section.text.getvalue().split("\n") for section in loops]
        arrays = keep_rows(texts, f"{tree.prefix}_i")
        if not arrays:
            return
        for name in arrays:
            body.writeline(f"float {name}_row[{size}] __attribute__((aligned(64)));")
        for section, lines in zip(loops, texts, strict=True):
            section.text = IndentedBuffer()
            section.text.writelines(filter(None, lines))

    def _body(self) -> IndentedBuffer:
        body = IndentedBuffer()
        self._keep_rows(body)
        for section in self.sections:
            if section.is_loop:
                self._reduce(body, section)
            else:
                body.splice(section.text)
        return body

    def _split_index(self, lines: IndentedBuffer, rest: str, trees: list) -> None:
        kind = self.index_dtype
        for number, tree in enumerate(trees):
            is_last = number == len(trees) - 1
            part = rest if is_last else f"{rest} % {self.numel(tree)}"
            lines.writeline(f"const {kind} {tree.name} = {part};")
            if not is_last:
                lines.writeline(f"{rest} /= {self.numel(tree)};")

    def codegen_kernel(self, name: str | None = None) -> str:
        self.codegen_body()
        self.local_lines = IndentedBuffer()
        body = self._body()
        trees = self.kept_trees
        entries = [(t, self._entries(t, body.getvalue())) for t in trees]
        code = IndentedBuffer()
        if self.form.is_gpu:
            self._on_gpu(code, trees, entries, body)
        else:
            self._on_cpu(code, trees, entries, body)
        return self._signature(name or "KERNEL_NAME") + code.getvalue() + "}\n"

    def _total(self, trees: list) -> str:
        return " * ".join(f"(long){self.numel(t)}" for t in trees) or "1"

    def _on_gpu(self, code, trees, entries, body) -> None:
        code.splice(self.local_lines)
        where = "get_group_id(0)" if self.form.by_group else "get_global_id(0)"
        code.writeline(f"long rest = {where};")
        code.writeline(f"if (rest >= {self._total(trees)}) return;")
        self._split_index(code, "rest", trees)
        for _, of_tree in entries:
            self._declare(code, of_tree)
        code.splice(body)

    def _on_cpu(self, code, trees, entries, body) -> None:
        kind = self.index_dtype
        by_run = bool(trees) and (
            self.form.lanes == "x" or not self.features.is_reduction()
        )
        inner, inner_entries = entries[0] if by_run else (None, [])
        length = self.run_length(inner, inner_entries) if by_run else sympy.S.One
        if by_run:
            self._check_run(length, self.form.lanes == "x")
            if self.form.lanes != "x" and int_or_none(length) == 1:
                by_run = False
        self.length = length if by_run else sympy.S.One
        size = self._index_text(self.length)
        code.writeline(f"const long parts = ({size} + piece - 1) / piece;")
        if by_run:
            runs = f"({self.numel(inner)} / ({size}))"
            outer = self._total(trees[1:])
            code.writeline(f"const long items = parts * {runs} * {outer};")
        else:
            code.writeline(f"const long items = {self._total(trees)};")
        code.writelines(
            [
                "const long first_item = (long)get_global_id(0) * chunk;",
                "const long end_item = min(items, first_item + chunk);",
                "for (long item = first_item; item < end_item; ++item) {",
                "long rest = item;",
            ]
        )
        if not by_run:
            self._split_index(code, "rest", trees)
            for _, of_tree in entries:
                self._declare(code, of_tree)
            code.splice(body)
        else:
            code.writelines(
                [
                    f"const {kind} begin = (rest % parts) * piece; rest /= parts;",
                    f"const {kind} end = min((long)({size}), (long)(begin + piece));",
                    f"const {kind} {inner.name} = (rest % {runs}) * ({size});",
                    f"rest /= {runs};",
                ]
            )
            self._split_index(code, "rest", trees[1:])
            self._declare(code, inner_entries, "first")
            for _, of_tree in entries[1:]:
                self._declare(code, of_tree)
            self._run(
                code, inner, inner_entries, self.length, self.form.lanes == "x",
                "begin", "end", body,
            )  # fmt: skip
        code.writeline("}")

    def _signature(self, name: str) -> str:
        """The head of the kernel; notes what a call has to pass."""
        parameters, lines = [], []
        self.call_kinds, self.call_values = "", []
        _, call_args, arguments, _ = self.args.python_argdefs()
        self.stored_dtypes = set()
        for argument, value in zip(arguments, call_args, strict=False):
            if isinstance(argument, TensorArg):
                is_written = argument.name.startswith(("out_ptr", "in_out_ptr"))
                self.stored_dtypes.add(argument.dtype)
                macro = "TENSOR" if is_written else "CONST_TENSOR"
                kind = f"storage_{name_of(argument.dtype)}"
                parameters.append(f"{macro}({kind}, {argument.name})")
                const = "" if is_written else "const "
                lines.append(
                    f"{const}global {kind} *{argument.name} = POINTER({argument.name});"
                )
                self.call_kinds += "w" if is_written else "r"
            elif isinstance(argument, SizeArg):
                parameters.append(f"const long {argument.name}")
                self.call_kinds += "l"
            else:
                raise NotGenerated(f"arguments such as {argument}")
            self.call_values.append(value)
        for tree in self.dynamic_trees():
            parameters.append(f"const long {tree.prefix}numel")
            self.call_kinds += "l"
        if not self.form.is_gpu:
            parameters += ["const long piece", "const long chunk"]
            self.call_kinds += "ll"
        if self.reports:
            parameters.append("global report_t *record, const int op")
        size = GROUP if self.form.is_gpu else 1
        return (
            f"kernel __attribute__((reqd_work_group_size({size}, 1, 1)))\n"
            f"void {name}({', '.join(parameters)}) {{\n" + "\n".join(lines) + "\n"
        )

    def dynamic_trees(self) -> list:
        return [
            t
            for t in self.range_trees
            if not isinstance(t.numel, int | sympy.Integer)
            and (not t.is_reduction or self.features.is_reduction())
        ]

    def call_kernel(self, name: str, node=None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)
        values = [str(value) for value in self.call_values]
        for tree in self.dynamic_trees():
            if isinstance(tree.numel, sympy.Symbol):
                values.append(str(tree.numel))
            else:
                values.append(str(wrapper.generate_numel_expr(name, tree).inner))
        total = sympy.prod([t.numel for t in self.kept_trees])
        if self.form.is_gpu:
            size = 1 if self.form.by_group else GROUP
            values.append(f"-(-({self.pexpr(total)}) // {size})")
        else:
            weight = sympy.prod([t.numel for t in self.range_trees if t.is_reduction])
            if not self.features.is_reduction():
                weight = sympy.S.One
            device = V.graph.get_current_device_or_throw()
            units = get_device_properties(device).multi_processor_count
            sizes = (total // self.length, self.length, weight)
            if all(isinstance(s, sympy.Integer) for s in sizes):
                values += map(str, split_work(*map(int, sizes), units))
            else:
                texts = ", ".join(self.pexpr(s) for s in sizes)
                values.append(f"*split_work({texts}, {units})")
        wrapper.writeline(f"{name}({', '.join(values)})")


def int_or_none(length: sympy.Expr) -> int | None:
    return int(length) if isinstance(length, sympy.Integer) else None
