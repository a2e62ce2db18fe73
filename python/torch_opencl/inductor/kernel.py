"""A kernel while Inductor runs its nodes: loads, stores, reductions and indices."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import sympy
import torch
from torch._inductor.codegen.common import DeferredLine, IndentedBuffer, PythonPrinter
from torch._inductor.codegen.simd import SIMDKernel
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.functions import CeilToInt, FloorToInt, RoundToInt, TruncToInt
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges

from .index_range import fits_32_bits, of_64_bits
from .operations import OpenCLOverrides, has_lanes, operand
from .printer import print_index
from .reductions import Accumulator, accumulator
from .types import SCALAR, NotGenerated, Text, compute_dtype, name_of, type_of
from .values import TypedCSE, Variable
from .work import Form

_SIZES = (
    SymT.SIZE,
    SymT.PRECOMPUTED_SIZE,
    SymT.UNBACKED_INT,
    SymT.FLOAT,
    SymT.UNBACKED_FLOAT,
)
_INTEGERS_OF_FLOATS = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)


@dataclass
class Section:
    """Statements; with ``is_loop`` over what is reduced."""

    text: IndentedBuffer
    is_loop: bool = False
    accumulators: list[Accumulator] = field(default_factory=list)


class KernelBody(SIMDKernel):
    """Collects the sections of a kernel, in one :class:`Form`."""

    overrides = OpenCLOverrides
    kexpr = sexpr = staticmethod(print_index)
    pexpr = PythonPrinter().doprint
    suffix = ";"
    # Whether the host computes numbers of sizes, with Python's floats, and passes them.
    passes_numbers = True

    def __init__(self, tiling, form: Form = Form(), **options) -> None:  # noqa: B008
        self.form = form
        super().__init__(tiling, **options)
        self.cse = TypedCSE("", self.suffix)
        self.sections: list[Section] = []
        self.accumulators: list[Accumulator] = []
        self.used_entries: dict[str, object] = {}
        self.host_numbers: dict[sympy.Expr, str] = {}
        self.math_dtype: torch.dtype | None = None
        self.uses_philox = False
        self.reports = False
        self.scope_depth = 0
        self.lane_mask: str | None = None
        self.names = 0
        # Accesses of neighbouring elements, and others, that vary along the lanes.
        self.runs, self.gathers = 0, 0
        self.unrolled_lanes: set[str] = set()
        self._reduced = [t for t in self.range_trees if t.is_reduction]
        if len(self._reduced) > 1:
            raise NotGenerated("reductions over two axes of tiles")

    # What Inductor asks.

    def should_use_persistent_reduction(self) -> bool:
        return False

    def should_use_cooperative_reduction(self) -> bool:
        return False

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return SCALAR[dtype]

    def create_cse_var(self, *args, **kwargs) -> Variable:
        return Variable(*args, **kwargs)

    def codegen_iteration_ranges_entry(self, entry) -> None:
        self.used_entries[entry.name] = entry

    # Names.

    @property
    def is_in_loop(self) -> bool:
        return self.inside_reduction and self.features.is_reduction()

    def use_math(self, dtype: torch.dtype) -> None:
        """Asks for math.clh; of float32 and float64 it is that of float64."""
        if self.math_dtype != torch.float64:
            self.math_dtype = dtype
        if dtype == torch.float64 and self.form.lanes:
            raise NotGenerated("vectors of float64")

    def new_name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def new_variable(self, dtype: torch.dtype, lanes: bool) -> Variable:
        """Of a value that is assigned by statements."""
        variable = self.cse.newvar(dtype=dtype)
        variable.lanes = lanes
        variable.outer = not (self.is_in_loop or self.scope_depth)
        return variable

    @contextlib.contextmanager
    def masked_scope(self, condition, scope: IndentedBuffer):
        """What is generated goes into ``scope`` and holds there only. Yields whether
        the condition has to be looked at in each lane."""
        by_lane = has_lanes(condition)
        outer_mask = self.lane_mask
        with self.swap_buffers(scope):
            self.scope_depth += 1
            if by_lane:
                both = str(condition) + (f" & {outer_mask}" if outer_mask else "")
                self.lane_mask = self.new_name("mask")
                scope.writeline(f"const int16 {self.lane_mask} = {both};")
            try:
                yield by_lane
            finally:
                self.scope_depth -= 1
                self.lane_mask = outer_mask

    # Indices.

    def _entry(self, symbol: sympy.Symbol):
        return self.range_tree_nodes.get(symbol)

    def _variable(self, symbol: sympy.Expr) -> Variable | None:
        if isinstance(symbol, sympy.Symbol) and symbol_is_type(symbol, SymT.TMP):
            return self.cse.varname_map.get(symbol.name)
        return None

    def _is_along_lanes(self, symbol: sympy.Symbol) -> bool:
        entry = self._entry(symbol)
        if entry is None or entry.divisor != 1:
            return False
        if self.form.lanes == "r":
            return entry.root.is_reduction
        return self.form.lanes == "x" and entry.root.prefix == "x"

    def lane_stride(self, index: sympy.Expr) -> int | None:
        """How far neighbouring lanes lie from each other; None where that varies."""
        if not self.form.lanes:
            return 0
        for symbol in index.free_symbols:
            if has_lanes(self._variable(symbol)):
                return None
        step = {s: s + 1 for s in index.free_symbols if self._is_along_lanes(s)}
        if not step:
            return 0
        difference = sympy.expand(index.xreplace(step) - index)
        return int(difference) if difference.is_Integer else None

    def is_outer_index(self, index: sympy.Expr) -> bool:
        """Whether the index is the same in all iterations of a loop."""
        for symbol in index.free_symbols:
            entry, variable = self._entry(symbol), self._variable(symbol)
            if entry is not None and entry.root.is_reduction:
                return False
            if variable is not None and not variable.outer:
                return False
        return True

    def _bound(self, symbol: sympy.Symbol) -> sympy.Expr:
        """The greatest value; 0 of values that have 64 bits."""
        if self._variable(symbol) is not None:
            return sympy.S.Zero
        entry = self._entry(symbol)
        if entry is None:
            return symbol if symbol_is_type(symbol, _SIZES) else sympy.oo
        return entry.length - 1

    def index_text(self, index: sympy.Expr, is_access: bool, lanes=None) -> str:
        """The index as text, with ``lanes`` in place of symbols."""
        places = dict(lanes or {})
        elements = sympy_product(tree.numel for tree in self.range_trees)
        if self.index_dtype == "int" and not fits_32_bits(
            index, self._bound, elements, is_access
        ):
            for symbol in index.free_symbols:
                if self._entry(symbol) is not None:
                    places[symbol] = of_64_bits(places.get(symbol, symbol))
        return super().index_to_str(index.xreplace(places))

    def index_to_str(self, index: sympy.Expr) -> str:
        """Of the index of an element."""
        return self.index_text(index, is_access=True)

    def each_lane(
        self, index: sympy.Expr, lines: IndentedBuffer, is_access: bool = True
    ) -> str:
        """The index of lane ``m``. What holds vectors is first stored as arrays."""
        lanes = {}
        for symbol in index.free_symbols:
            variable = self._variable(symbol)
            if has_lanes(variable):
                lanes[symbol] = sympy.Symbol(
                    f"{self.as_array(variable, lines)}[m]", integer=True
                )
            elif self._is_along_lanes(symbol):
                lanes[symbol] = symbol + sympy.Symbol("m", integer=True)
        return self.index_text(index, is_access, lanes)

    def as_array(self, variable, lines: IndentedBuffer) -> str:
        name = self.new_name("lane")
        kind = SCALAR[variable.dtype] if variable.dtype != torch.bool else "int"
        lines.writeline(f"{kind} {name}[LANES];")
        lines.writeline(f"vstore16({variable}, 0, {name});")
        return name

    def _host_number(self, expr: sympy.Expr) -> str | None:
        """The parameter that has the value of ``expr``, if it is made of sizes alone."""
        symbols = expr.free_symbols
        of_sizes = symbols and all(symbol_is_type(s, _SIZES) for s in symbols)
        if not of_sizes or not self.passes_numbers:
            return None
        expr = V.graph.sizevars.remove_precomputed_replacements(expr)
        return self.host_numbers.setdefault(expr, f"number{len(self.host_numbers)}")

    def prepare_indexing(self, index: sympy.Expr) -> sympy.Expr:
        """In a kernel ``int(0.7 * size)`` would be rounded otherwise than in Python."""
        integers = sorted(index.atoms(*_INTEGERS_OF_FLOATS), key=sympy.count_ops)
        for expr in reversed(integers):
            name = self._host_number(expr) if index.has(expr) else None
            if name is not None:
                number = sympy.Symbol(
                    name, integer=True, nonnegative=expr.is_nonnegative
                )
                index = index.xreplace({expr: number})
        return super().prepare_indexing(index)

    def index_value(self, expr, dtype: torch.dtype) -> Text | Variable:
        """An index as a value of ``dtype``."""
        if dtype.is_floating_point and not expr.is_integer:
            name = self._host_number(expr)
            if name is not None:
                kind = compute_dtype(dtype)
                return Text(f"(({SCALAR[kind]}){name})", kind, False, True)
        index = self.prepare_indexing(expr)
        outer = self.is_outer_index(index)
        # Of quotients of sizes sympy does not know whether they are integers.
        whole = index.is_integer or not dtype.is_floating_point
        kind = torch.int64 if whole else compute_dtype(dtype)
        stride = self.lane_stride(index)
        if stride == 0:
            text = f"(({SCALAR[kind]})({self.index_text(index, False)}))"
            value = Text(text, kind, False, outer)
        elif stride is not None and whole:
            text = f"((long16)({self.index_text(index, False)}) + "
            text += f"convert_long16(LANE_NUMBERS) * {stride}l)"
            value = Text(text, kind, True, outer)
        else:
            value = self._gathered(
                kind, lambda lines: f"({self.each_lane(index, lines, False)})", outer
            )
        return OpenCLOverrides.to_dtype(value, dtype)

    def _gathered(self, dtype: torch.dtype, lane_text, outer: bool) -> Variable:
        """A vector of what ``lane_text(lines)`` is for each lane ``m``."""
        lines = IndentedBuffer()
        text = lane_text(lines)
        array = self.new_name("gathered")
        is_bool = dtype == torch.bool
        kind = "int" if is_bool else SCALAR[dtype]
        variable = self.new_variable(dtype, True)
        vector = type_of(dtype, True)
        value = f"-(int)({text} != 0)" if is_bool else text
        self.compute.writeline(f"{vector} {variable};")
        self.compute.writeline("{")
        with self.compute.indent():
            self.compute.splice(lines)
            self.compute.writeline(f"{kind} {array}[LANES];")
            self.compute.writeline("for (int l = 0; l < LANES; ++l) {")
            self.compute.writeline("  const int m = min(l, width - 1);")
            self.compute.writeline(f"  {array}[l] = {value};")
            self.compute.writeline("}")
            self.compute.writeline(f"{variable} = vload16(0, {array});")
        self.compute.writeline("}")
        return variable

    # Memory.

    def load(self, name: str, index: sympy.Expr):
        pointer = self.args.input(name)
        stored = V.graph.get_dtype(name)
        if stored not in SCALAR:
            raise NotGenerated(f"{stored}")
        dtype = compute_dtype(stored)
        index = self.prepare_indexing(index)
        stride = self.lane_stride(index)
        load = f"load_{name_of(stored)}"
        outer = self.is_outer_index(index) and not self.scope_depth
        place = self.index_to_str(index)
        if stride == 0:
            self.note_access(index)
            text = f"{load}({pointer}, {place})"
            if self.lane_mask:
                text = f"(any({self.lane_mask}) ? {text} : 0)"
            return self.named(Text(text, dtype, False, outer))
        if stride == 1 and not self.lane_mask:
            self.runs += 1
            text = f"load_run_{name_of(stored)}({pointer} + ({place}), width)"
            return self.named(Text(text, dtype, True, outer))
        self.gathers += 1
        key = f"{pointer} {index} {self.lane_mask}"
        known = self.cse.try_get(key)
        if known is not None:
            return known

        def lane_text(lines: IndentedBuffer) -> str:
            text = f"{load}({pointer}, {self.each_lane(index, lines)})"
            if self.lane_mask:
                mask = self.new_name("lane")
                lines.writeline(f"int {mask}[LANES];")
                lines.writeline(f"vstore16({self.lane_mask}, 0, {mask});")
                text = f"({mask}[m] ? {text} : 0)"
            return text

        variable = self._gathered(dtype, lane_text, False)
        self.cse.put(key, variable)
        return variable

    def named(self, text: Text) -> Variable:
        return self.cse.generate(self.compute, text, dtype=text.dtype)

    def store(self, name: str, index: sympy.Expr, value, mode=None) -> None:
        if mode is not None:
            raise NotGenerated(f"stores that are {mode}")
        self._store(self.compute, name, index, value)

    def store_reduction(self, name: str, index: sympy.Expr, value) -> None:
        self._store(self.stores, name, index, value)

    def _store(self, lines: IndentedBuffer, name: str, index, value) -> None:
        pointer = self.args.output(name)
        stored = V.graph.get_dtype(name)
        if stored not in SCALAR:
            raise NotGenerated(f"{stored}")
        index = self.prepare_indexing(index)
        stride = self.lane_stride(index)
        place = self.index_to_str(index)
        if stride == 0:
            self.note_access(index)
            if has_lanes(value):
                raise NotGenerated("many lanes of one element")
            text = operand(value, stored, False)
            line = f"store_{name_of(stored)}({pointer}, {place}, {text});"
            if self.form.by_group and self.is_outer_index(index):
                line = f"if (get_local_id(0) == 0) {line}"
                written = V.graph.scheduler.mutation_real_name.get(name, name)
                if written in self.args.input_buffers:  # by the group's other items
                    line = f"barrier(CLK_GLOBAL_MEM_FENCE); {line}"
            lines.writeline(DeferredLine(name, line))
            return
        text = operand(value, stored, True)
        if stride == 1:
            self.runs += 1
            line = f"store_run_{name_of(stored)}({pointer} + ({place}), {text}, width);"
            lines.writeline(DeferredLine(name, line))
            return
        self.gathers += 1
        before = IndentedBuffer()
        each = self.each_lane(index, before)
        array = self.new_name("scattered")
        kind = "int" if stored == torch.bool else SCALAR[stored]
        statements = [line for line in before.getvalue().split("\n") if line]
        statements += [
            f"{kind} {array}[LANES]; vstore16({text}, 0, {array});",
            f"for (int m = 0; m < width; ++m) "
            f"store_{name_of(stored)}({pointer}, {each}, {array}[m]);",
        ]
        lines.writeline(DeferredLine(name, "{ " + " ".join(statements) + " }"))

    def safe_index(self, index: Variable, size: sympy.Expr) -> Variable:
        """``index`` where it lies in ``size``. Another is reported, and 0 is used; the
        next wait raises."""
        bounds = index.bounds
        is_below = isinstance(size, sympy.Number) and bounds.upper < size
        if bounds.lower >= 0 and is_below:
            return index
        self.reports = True
        lanes = has_lanes(index)
        text = (
            f"safe_index(record, op, {operand(index, torch.int64, lanes)}, "
            f"{self.index_to_str(size)}, {self.used_lanes(lanes)})"
        )
        return self.named(Text(text, torch.int64, lanes, index.outer))

    def used_lanes(self, lanes: bool) -> str:
        """Whether the results of a value, or of each lane of it, are used. Those beyond
        a tail are not, and may have values of their own."""
        if lanes:
            inside = "(LANE_NUMBERS < width)"
            return f"({inside} & {self.lane_mask})" if self.lane_mask else inside
        return f"any({self.lane_mask}) != 0" if self.lane_mask else "true"

    def check_divisor(self, divisor, dtype: torch.dtype) -> None:
        """Reports a zero among integers of ``dtype``; the next wait raises."""
        bounds = getattr(divisor, "bounds", None)
        if 0 not in (bounds if bounds is not None else (divisor,)):
            return
        self.reports = True
        lanes = has_lanes(divisor)
        zero = f"({operand(divisor, dtype, lanes)}) == ({type_of(dtype, lanes)})0"
        used = self.used_lanes(lanes)
        found = f"({zero}) && ({used})"
        if lanes:
            found = f"any(convert_int16({zero}) & {used})"
        self.compute.writeline(
            f"if ({found}) write_report(record, op, REPORT_ZERO_DIVISION, 0, 0, 0);"
        )

    def check_bounds(self, expr, size, lower: bool, upper: bool) -> None:
        """Reports an index that no load goes on with."""
        if not (lower or upper) or self._variable(expr) is not None:
            return
        if self.lane_stride(expr) != 0:
            raise NotGenerated("checks of vectors")
        self.reports = True
        self.compute.writeline(
            f"checked_index(record, op, {self.index_text(expr, False)}, 0, "
            f"{self.index_to_str(size)}, 0);"
        )

    # Reductions.

    def reduction(self, dtype, src_dtype, reduction_type, value):
        key = (src_dtype, reduction_type, value)
        if key in self.cse.reduction_cache:
            return self.cse.reduction_cache[key]
        if self.scope_depth:
            raise NotGenerated("a reduction under a mask")
        values = value if isinstance(value, tuple) else (value,)
        lanes = bool(self.form.lanes)
        made = accumulator(
            self.new_name("sum"),
            reduction_type,
            src_dtype,
            tuple(operand(v, src_dtype, lanes) for v in values),
            lanes,
            "inside" if self.form.lanes == "r" else None,
            "place",
        )
        self.accumulators.append(made)
        self.compute.writeline(made.step.format(*made.parts()))
        is_folded = self.form.lanes == "r" or self.form.by_group
        results = []
        for part, of in zip(
            made.parts("_all" if is_folded else ""), made.results, strict=False
        ):
            variable = self.cse.namedvar(
                part, ValueRanges.unknown(), dtype=of, shape=None
            )
            variable.outer, variable.lanes = True, self.form.lanes == "x"
            results.append(variable)
        if reduction_type in ("argmax", "argmin"):
            results = results[1:]
        result = results[0] if len(results) == 1 else tuple(results)
        self.cse.reduction_cache[key] = result
        return result

    def scan(self, *args):
        raise NotGenerated("scans")

    def sort(self, *args):
        raise NotGenerated("sorts")

    def bucketize(self, *args):
        raise NotGenerated("bucketize")

    def device_assert_async(self, cond, msg: str) -> None:
        raise NotGenerated("assertions")

    def codegen_body(self) -> None:
        """Ends a section."""
        if not (self.body or self.compute or self.stores):
            return
        is_loop = self.is_in_loop
        self.sections.append(Section(self.body))
        self.sections.append(Section(self.compute, is_loop, self.accumulators))
        self.sections.append(Section(self.stores))
        self.body, self.compute, self.stores = (IndentedBuffer() for _ in range(3))
        self.accumulators = []
        if is_loop:
            kept = OrderedSet(v for v in self.cse.varname_map.values() if v.outer)
            self.cse.invalidate(kept)
