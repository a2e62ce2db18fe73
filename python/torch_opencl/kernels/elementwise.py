"""Element-by-element kernels from an expression."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor

from .. import _C
from . import parameters as p

_ops = torch.ops.torch_opencl


class ElementwiseKernel:
    """A kernel that computes outputs element by element from inputs.

    Inputs are broadcast and may have any strides, offsets and dtypes; numbers
    are passed by value. The work is done by the engine behind PyTorch's own
    pointwise ops. The result takes no part in autograd: docs/custom-kernels.md
    shows how to give it a gradient.

    Args:
        in_params: types and names such as ``"T x, T y, float32 alpha"``. A
            type is a dtype of torch or a placeholder, a name that begins with a
            capital letter and stands for the dtype of whatever is passed.
        out_params: the same of the outputs.
        operation: OpenCL C statements that assign the outputs. Values of half
            types are ``float`` here.
        name: in profiles and error messages.
        preamble: OpenCL C before the kernel, such as functions.

    Raises:
        TypeError: an argument is no str.
        ValueError: the parameter lists are malformed, or a text has a NUL.

    Example::

        squared_difference = ElementwiseKernel(
            "T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference"
        )
        z = squared_difference(x, y)
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "elementwise_kernel",
        preamble: str = "",
    ) -> None:
        self.name = p.check_name(name, "ElementwiseKernel: name")
        self.inputs = p.parse(in_params, f"{name}: in_params")
        self.outputs = p.parse(out_params, f"{name}: out_params")
        if not self.outputs:
            raise ValueError(f"{name}: a kernel needs an output")
        p.check_names(name, (*self.inputs, *self.outputs))
        self.operation = p.check_text(operation, f"{name}: operation")
        self.preamble = p.check_text(preamble, f"{name}: preamble")
        # Its ops, before a call is traced; importing them takes milliseconds.
        importlib.import_module("torch_opencl.kernels.traced")
        self._kernels: dict[tuple[torch.dtype, ...], int] = {}
        # How kernels are told apart in compiled graphs, also of other processes.
        self._texts = [in_params, out_params, operation, name, preamble]
        declared = [
            [each.kind if each.is_placeholder else p.DTYPES[each.kind] for each in side]
            for side in (self.inputs, self.outputs)
        ]
        self._calls = _C._ElementwiseCalls(*declared)

    def __repr__(self) -> str:
        return f"<torch_opencl.ElementwiseKernel {self.name!r}>"

    def __call__(self, *args) -> Tensor | tuple[Tensor, ...]:
        """Runs on the tensors' device.

        Args:
            *args: all inputs, then all outputs or none of them. Outputs that
                are given are written, in their own layout.

        Returns:
            The output, or a tuple of several.

        Raises:
            TypeError: the number of arguments or a dtype is wrong.
            RuntimeError: shapes do not broadcast, devices differ, or the
                operation does not compile.
        """
        if torch.compiler.is_dynamo_compiling():
            from . import traced

            return traced.call(self, args)
        result = self._calls(args)
        return self._checked(args) if result is None else result

    @torch.no_grad()
    def _checked(self, args: tuple) -> Tensor | tuple[Tensor, ...]:
        inputs, outputs = p.split_arguments(self.name, args, self.inputs, self.outputs)
        device = p.device_of(self.name, args)
        every = (*self.inputs, *self.outputs)
        placeholders = p.resolve(self.name, every, (*inputs, *outputs))
        dtypes = tuple(p.dtype_of(self.name, each, placeholders) for each in every)
        for index, value in enumerate(inputs):
            if not isinstance(value, Tensor):
                place = f"{self.name}: argument '{self.inputs[index].name}'"
                inputs[index] = p.number(place, value, dtypes[index])
        if not outputs:
            outputs = [
                _ops._elementwise_output(inputs, dtype, device)
                for dtype in dtypes[len(inputs) :]
            ]
        kernel = self._kernels.get(dtypes)
        if kernel is None:
            kernel = self._kernels[dtypes] = self._define(dtypes, placeholders)
            self._calls.add(list(dtypes), kernel)
        _ops._elementwise(kernel, outputs, inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _define(
        self, dtypes: tuple[torch.dtype, ...], placeholders: dict[str, torch.dtype]
    ) -> int:
        """The operation as a function, so that its names are its own."""
        names = [p.NAMES[dtype] for dtype in dtypes]
        ins = list(zip(names, self.inputs, strict=False))
        outs = list(zip(names[len(ins) :], self.outputs, strict=True))
        arguments = [f"const compute_{dtype} {each.name}" for dtype, each in ins]
        arguments += [f"compute_{dtype} *user_{each.name}" for dtype, each in outs]
        text = (
            p.typedefs(placeholders)
            + p.from_line(self.preamble, f"{self.name}.preamble")
            + f"static inline void user_operation({', '.join(arguments)}) {{\n"
            + "".join(f"compute_{dtype} {each.name} = 0;\n" for dtype, each in outs)
            + "{"
            + p.from_line(f"{self.operation};", self.name)
            + "}\n"
            + "".join(f"*user_{each.name} = {each.name};\n" for _, each in outs)
            + "}\n"
        )
        in_names = [f"user_in{index}" for index in range(len(ins))]
        out_names = [f"user_out{index}" for index in range(len(outs))]
        values = [*in_names, *(f"&{each}" for each in out_names)]
        return _ops._define_elementwise(
            self.name,
            f"user_operation({', '.join(values)})",
            " ".join(in_names),
            " ".join(out_names),
            text,
        )
