"""score_mod and mask_mod of flex_attention as functions of OpenCL C."""

from __future__ import annotations

from dataclasses import dataclass

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.common import KernelArgs
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.virtualized import OpsValue, V
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from .kernel import KernelBody
from .operations import has_lanes, operand
from .types import NotGenerated, Text, compute_dtype, name_of, type_of
from .values import Variable
from .work import Form

INDICES = ("batch", "head", "query_index", "key_index")


@dataclass(frozen=True)
class Shape:
    """What the functions of a kernel have in common.

    Attributes:
        lanes: which side the lanes are, ``query`` or ``key``; none of scalars.
        sizes: for each of :data:`INDICES`, how many there are.
    """

    lanes: str
    sizes: tuple[sympy.Expr, ...]


class FunctionBody(KernelBody):
    """The statements of a function.

    Args:
        args: the kernel's, to which what the function reads is added.
        shape: of the kernel.
        used: whether a parameter says where the result is used.
    """

    passes_numbers = False

    def __init__(self, args: KernelArgs, shape: Shape, used: bool) -> None:
        form = Form("x") if shape.lanes else Form(is_gpu=True)
        features = SIMDKernelFeatures([], sympy.S.One)
        super().__init__({"x": sympy.S.One}, form=form, features=features)
        self.args = args
        self.shape = shape
        self.used = used
        self.given: dict[str, Variable] = {}
        self.row: Variable | None = None

    def note_access(self, index: sympy.Expr) -> None:
        """There are no loops whose form is chosen by it."""

    def give(self, name: str, dtype: torch.dtype, lanes: bool, size=None) -> None:
        """A parameter, which the graph reads as the buffer ``name``."""
        bounds = ValueRanges.unknown()
        if size is not None:
            known = isinstance(size, sympy.Integer)
            bounds = ValueRanges(0, int(size) - 1 if known else int_oo)
        text = Text(name, dtype, lanes)
        self.given[name] = self.cse.generate(
            self.compute, text, dtype=dtype, bounds=bounds
        )

    def give_indices(self) -> None:
        lanes = f"{self.shape.lanes}_index"
        for name, size in zip(INDICES, self.shape.sizes, strict=True):
            self.give(name, torch.int32, name == lanes, size)
        self.row = self.given.get(lanes)

    def load(self, name: str, index: sympy.Expr):
        if name in self.given:
            return self.given[name]
        run = self._run(name, index)
        return super().load(name, index) if run is None else run

    def _run(self, name: str, index: sympy.Expr):
        """Neighbouring elements for the lanes, which are neighbouring rows."""
        if self.row is None or self.lane_mask:
            return None
        index = self.prepare_indexing(index)
        varying = [s for s in index.free_symbols if has_lanes(self._variable(s))]
        if [s.name for s in varying] != [str(self.row)]:
            return None
        (row,) = varying
        if sympy.expand(index.xreplace({row: row + 1}) - index) != 1:
            return None
        first = sympy.Symbol("first", integer=True, nonnegative=True)
        place = self.index_to_str(index.xreplace({row: first}))
        stored = V.graph.get_dtype(name)
        pointer = self.args.input(name)
        text = f"load_run_{name_of(stored)}({pointer} + ({place}), width)"
        return self.named(Text(text, compute_dtype(stored), True))

    def used_lanes(self, lanes: bool) -> str:
        """Only lanes whose score is used."""
        if not self.used:
            return super().used_lanes(lanes)
        used = f"(used & {self.lane_mask})" if self.lane_mask else "used"
        return f"(any({used}) != 0)" if self.shape.lanes and not lanes else used

    def use_math(self, dtype: torch.dtype) -> None:
        if dtype == torch.float64:
            raise NotGenerated("functions of float64")
        super().use_math(dtype)

    def store(self, name, index, value, mode=None) -> None:
        raise NotGenerated("stores")

    def function(
        self, name: str, graph: ir.ComputedBuffer, dtype: torch.dtype, sums=()
    ) -> str:
        """The function that returns what the graph computes, and the macro that calls
        it where it adds to sums (pairs of them and of graphs of values) too."""
        lanes = bool(self.shape.lanes)
        with V.graph.set_current_device(graph.get_device()), self:
            if self.used:
                self.give("score", torch.float32, lanes)
            self.give_indices()
            if name == "grad_score_mod":
                self.give("grad_score", torch.float32, lanes)
            returned = operand(_result(graph), dtype, lanes)
            added = "".join(
                each.statement(operand(_result(value), torch.float32, lanes))
                for each, value in sums
            )
        parameters = [
            f"const {type_of(variable.dtype, variable.lanes)} {given}"
            for given, variable in self.given.items()
        ]
        if lanes:
            parameters += ["const int first", "const int width"]
        if self.used:
            parameters.append(f"const {type_of(torch.bool, lanes)} used")
        macro = ""
        more = []
        if sums:
            macro = _adding(name, lanes, [each for each, _ in sums])
            name += "_adding"
            more = ["const int owned"]
            more += [p for each, _ in sums for p in each.parameters]
        text = self.compute.getvalue() + added
        more = "".join(f", {each}" for each in more)
        return (
            f"static inline {type_of(dtype, lanes)} {name}("
            f"{', '.join(parameters)} CAPTURED_PARAMETERS{more}) {{\n{text}"
            f"return {returned};\n}}\n{macro}"
        )


def _result(graph: ir.ComputedBuffer):
    """The value that the graph computes."""
    if isinstance(graph.data, ir.InputBuffer):
        result = graph.data.make_loader()(())
    else:
        result = graph.data.inner_fn(())
    return result.value if isinstance(result, OpsValue) else result


def _adding(name: str, lanes: bool, sums: list) -> str:
    """What the kernel calls instead of a function that adds to sums: it knows which
    rows are its own, and where the sums are."""
    given = ["score_", "batch_", "head_", "query_", "key_", "grad_"]
    given += ["first_", "width_", "used_"] if lanes else ["used_"]
    passed = [*given, "limit - first - v * 16" if lanes else "ITEM_ROW(i) < limit"]
    passed += [argument for each in sums for argument in each.arguments]
    return f"#define {name}({', '.join(given)}) {name}_adding({', '.join(passed)})\n"
