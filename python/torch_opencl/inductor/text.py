"""A whole kernel: the sections of its body within the loops of a form, and its call."""

from __future__ import annotations

import sympy
import torch
from torch._inductor.codegen.common import IndentedBuffer, SizeArg, TensorArg
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv

from ..opencl.devices import get_device_properties
from .kept_rows import keep_rows
from .loops import LoopedBody
from .types import LANES, NotGenerated, compute_dtype, name_of
from .work import GROUP, split_work

_KEPT_ROW = 4096
"""Elements of a row that may be kept: what the first level of caches holds."""

_LOCAL_BYTES = 32768
"""Local memory that every device has."""

_PARAMETER_BYTES = 1024 - 128
"""Parameters that every device takes, less what is passed beside tensors."""


class OpenCLKernel(LoopedBody):
    """A kernel and its call."""

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

    def _check_local_memory(self) -> None:
        dtypes = [
            compute_dtype(dtype)
            for section in self.sections
            for each in section.accumulators
            for dtype in each.dtypes
        ]
        # Bools lie there as ints.
        if GROUP * sum(max(dtype.itemsize, 4) for dtype in dtypes) > _LOCAL_BYTES:
            raise NotGenerated(f"{len(dtypes)} sums of a work-group")

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
        if self.form.by_group:
            self._check_local_memory()
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
        if not self.form.by_group:
            # A group a row has none to spare, and PoCL mistakes barriers behind it.
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
            self.call_values.append(str(value))
        if 16 * len(parameters) > _PARAMETER_BYTES:
            raise NotGenerated(f"{len(parameters)} parameters")
        is_double = torch.float64 in self.stored_dtypes
        for expr, number in self.host_numbers.items():
            kind = "long" if expr.is_integer else "real_t"
            parameters.append(f"const {kind} {number}")
            self.call_kinds += "l" if expr.is_integer else "fd"[is_double]
            self.call_values.append(self.pexpr(expr))
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
        values = list(self.call_values)
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
            sizes = (FloorDiv(total, self.length), self.length, weight)
            if all(isinstance(s, sympy.Integer) for s in sizes):
                values += map(str, split_work(*map(int, sizes), units))
            else:
                texts = ", ".join(self.pexpr(s) for s in sizes)
                values.append(f"*split_work({texts}, {units})")
        wrapper.writeline(f"{name}({', '.join(values)})")


def int_or_none(length: sympy.Expr) -> int | None:
    return int(length) if isinstance(length, sympy.Integer) else None
