"""A kernel of flex_attention: its program, and its node in Inductor's graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir, metrics
from torch._inductor.codegen.common import KernelArgs, SizeArg
from torch._inductor.virtualized import V

from .flex_functions import FunctionBody, Shape
from .flex_sums import HELPERS, Sums
from .runtime import check_builds, kernel_source
from .types import NotGenerated, name_of
from .work import Form

GROUP = 256
"""Work-items of a work-group on devices of class gpu."""


class Program:
    """What is written ahead of the kernels of
    backend/attention/compiled_attention_*.clh.

    Args:
        kernel: the macro that names the kernel.
        dtype: of queries, keys and values.
        shape: what its functions have in common.
    """

    def __init__(self, kernel: str, dtype: torch.dtype, shape: Shape) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.shape = shape
        self.args = KernelArgs()
        self.form = Form("x") if shape.lanes else Form(is_gpu=True)
        self.math_dtype: torch.dtype | None = None
        self.uses_philox = False
        self.reports = False
        self.stored_dtypes: set[torch.dtype] = set()
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.tensors: list[ir.IRNode] = []
        self.kinds = ""
        self.parameters: list[str] = []
        self.numbers: list[sympy.Expr] = []
        self.sums: list[Sums] = []

    def tensor(self, name: str, node, kind: str = "storage_t", written=False) -> None:
        macro = "TENSOR" if written else "CONST_TENSOR"
        self.parameters.append(f"{macro}({kind}, {name})")
        self.kinds += "w" if written else "r"
        self.tensors.append(node)

    def number(self, value) -> str:
        """A literal, or a parameter where the value is not known yet."""
        value = V.graph.sizevars.simplify(sympy.sympify(value))
        if isinstance(value, sympy.Integer):
            return f"{int(value)}l" if abs(int(value)) >= 2**31 else str(int(value))
        if value not in self.numbers:
            self.numbers.append(value)
        return f"number{self.numbers.index(value)}"

    def define(self, name: str, value) -> None:
        text = value if isinstance(value, str) else self.number(value)
        self.lines.append(f"#define {name} {text}")

    def strides(self, name: str, strides: Sequence[Any]) -> None:
        self.define(name, "{" + ", ".join(map(self.number, strides)) + "}")

    def function(self, name: str, graph, dtype: torch.dtype, sums=()) -> None:
        body = FunctionBody(self.args, self.shape, used=name != "mask_mod")
        self.functions.append(body.function(name, graph, dtype, sums))
        for each, _ in sums:
            self.tensor(each.name, each.buffer, "float", written=True)
            self.sums.append(each)
        self.math_dtype = self.math_dtype or body.math_dtype
        self.uses_philox |= body.uses_philox
        self.reports |= body.reports

    def finish(self) -> tuple[str, list[str]]:
        """The source, and the buffers that the functions read; numbers follow them
        in a call."""
        _, values, arguments, _ = self.args.python_argdefs()
        buffers, sizes, pointers, passed, accepted = [], [], [], [], []
        for argument, value in zip(arguments, values, strict=True):
            name = argument.name
            passed.append(name)
            if isinstance(argument, SizeArg):
                sizes.append((name, argument.expr))
                accepted.append(f"const long {name}")
                continue
            if argument.dtype == torch.float64:
                raise NotGenerated("captured tensors of float64")
            kind = f"storage_{name_of(argument.dtype)}"
            pointer = f"const global {kind} *{name}"
            self.tensor(name, None, kind)
            self.tensors.pop()
            buffers.append(value)
            pointers.append(f"{pointer} = POINTER({name});")
            accepted.append(pointer)
        pointers += [f"global float *{s.name} = POINTER({s.name});" for s in self.sums]
        if self.sums and self.form.is_gpu:
            pointers.append(f"local float shares[{GROUP}];")
        parameters = list(self.parameters)
        parameters += [f"const long {name}" for name, _ in sizes]
        parameters += [f"const long number{i}" for i in range(len(self.numbers))]
        self.kinds += "l" * (len(sizes) + len(self.numbers))
        self.numbers = [expr for _, expr in sizes] + self.numbers
        if self.reports:
            passed += ["record", "op"]
            accepted += ["global report_t *record", "const int op"]
            parameters += accepted[-2:]
        lines = [
            f"#define {self.kernel} KERNEL_NAME",
            *self.lines,
            f"#define FLEX_PARAMETERS {', '.join(parameters)}",
            f"#define FLEX_POINTERS {' '.join(pointers)}",
            f"#define CAPTURED {''.join(f', {name}' for name in passed)}",
            f"#define CAPTURED_PARAMETERS {''.join(f', {each}' for each in accepted)}",
            *([HELPERS[self.form.is_gpu]] if self.sums else []),
            *self.functions,
        ]
        text = "\n".join(lines)
        more = ("#define USES_ATTENTION",)
        return kernel_source(self, text, self.dtype, more), buffers


class FlexKernel(ir.ExternKernel):
    """A launch of a program, which writes into ``outputs``.

    Args:
        program: of the kernel.
        outputs: those of its tensors that it writes.
        groups: number of work-groups.
    """

    def __init__(self, program: Program, outputs: list, groups: sympy.Expr) -> None:
        self.source, buffers = program.finish()
        self.program = program
        nodes = [*program.tensors, *map(V.graph.get_buffer, buffers)]
        self.device = outputs[0].get_device()
        layout = ir.NoneLayout(device=self.device)
        inputs = self.unwrap_storage(nodes)
        super().__init__(None, layout, inputs, (*program.numbers, groups))
        self.mutation_outputs = [
            ir.MutationOutput(ir.NoneLayout(device=self.device), output, self)
            for output in outputs
        ]
        self.name = V.graph.register_buffer(self)
        V.graph.register_operation(self)

    def get_device(self) -> torch.device:
        return self.device

    def should_allocate(self) -> bool:
        return False

    def _define(self, wrapper) -> str:
        program = self.program
        key = (self.source, program.kinds)
        if key not in wrapper.src_to_kernel:
            name = f"opencl_{program.kernel.lower()}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[key] = name
            source = self.source.replace("KERNEL_NAME", name)
            size = GROUP if program.form.is_gpu else 1
            check_builds(name, source, size, self.device, "flex_attention")
            text = (
                f"compiled_kernel({name!r}, r'''\n{source}''', {program.kinds!r}, "
                f"{size}, {program.reports})"
            )
            wrapper.define_kernel(name, text, None, gpu=False)
            metrics.generated_kernel_count += 1
        return wrapper.src_to_kernel[key]

    def codegen(self, wrapper) -> None:
        name = self._define(wrapper)
        values = [node.codegen_reference() for node in self.inputs]
        for number in self.constant_args:
            for symbol in number.free_symbols:
                wrapper.ensure_size_computed(symbol)
            values.append(wrapper.codegen_sizevar(number))
        wrapper.writeline(f"{name}({', '.join(values)})")
