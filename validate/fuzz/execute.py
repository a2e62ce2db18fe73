"""Runs a program on a device."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, field

import torch
from fuzz.program import Program, Ref, Step, resolve
from fuzz.tensors import CONTIGUOUS, Input
from tolerance import REFERENCE_DTYPE, perturbed
from torch.utils._pytree import tree_leaves, tree_map

CPU = torch.device("cpu")

_PRODUCTS = ("matmul", "mm", "bmm", "mv")


def is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


@dataclass
class Result:
    """Tensors by name after the last step, or the error and the step that raised it
    (the number of steps for the backward pass)."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    error: Exception | None = None
    step: int = -1


def _sums_magnitude(target: str, args: tuple, result) -> torch.Tensor | int:
    """How large the terms of a sum are together, of which its error is a rounding: of
    a dot product by Cauchy and Schwarz, of a matrix product as that of the magnitudes,
    of a transform as its largest element. The mean of equal elements may be a rounding
    off, whose square is their variance."""
    if target in ("dot", "vdot"):
        norms = [torch.linalg.vector_norm(factor) for factor in args]
        magnitude = norms[0] * norms[1]
    elif target in _PRODUCTS and is_inexact(result):
        magnitude = resolve(target)(*(factor.abs() for factor in args))
    elif target.startswith("fft.") and result.numel() > 0:
        magnitude = result.abs().max()
    elif target in ("var", "std") and result.numel() > 0:
        magnitude = args[0].abs().max()
        if target == "var":
            magnitude = magnitude.square() * torch.finfo(magnitude.dtype).eps
    else:
        return 0
    return torch.complex(magnitude, magnitude) if result.is_complex() else magnitude


class Machine:
    """Executes steps one by one, and knows the values between them.

    Args:
        double: in float64.
        noise: moves each float of inputs and gradients by at most a rounding.
    """

    def __init__(
        self,
        inputs: dict[int, Input],
        device: torch.device,
        double: bool = False,
        noise: torch.Generator | None = None,
    ) -> None:
        self.device, self._double, self.noise = device, double, noise
        self.values: dict[int, object] = {}
        self.memory: dict[int, torch.Tensor] = {}
        self._streams: dict[int | None, object] = {}
        self._stream: int | None = None
        for name, given in inputs.items():
            self.add(name, given)

    def add(self, name: int, given: Input) -> None:
        numbers = given.values
        if self.noise is not None and is_inexact(numbers):
            values = perturbed(numbers, self.noise)
            given = Input(values, given.layout, given.requires_grad)
        tensor = given.build(self.device, torch.float64 if self._double else None)
        self.values[name] = tensor
        if given.layout != CONTIGUOUS:
            elements = tensor.untyped_storage().nbytes() // tensor.element_size()
            self.memory[name] = tensor.detach().as_strided((elements,), (1,), 0)

    def do(self, step: Step) -> None:
        if step.target == "forget":
            self.forget(step.args[0].name)
            return
        function = resolve(step.target)
        args = tree_map(self._value, step.args)
        kwargs = tree_map(self._value, step.kwargs)
        with self._on_stream(step.stream):
            if self.noise is not None and step.target == "action:run_compiled":
                result = self._step_by_step(*args)
            else:
                result = function(*args, **kwargs)
        if self.noise is not None:
            self._round_otherwise(result, _sums_magnitude(step.target, args, result))
        del args, kwargs
        if step.result is not None:
            self.values[step.result] = result

    def _step_by_step(self, graph, _, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """A graph's results, each step's rounded otherwise."""
        inner = Machine({}, self.device, noise=self.noise)
        inner.values.update(zip(graph.inputs, tensors, strict=True))
        for step in graph.steps:
            inner.do(step)
        return [inner.values[step.result] for step in graph.steps]

    def _round_otherwise(self, result, offset) -> None:
        """As if the step had been computed another way: what cancels later shows it.
        The elements are off by roundings of themselves and of ``offset``."""
        for leaf in tree_leaves(result):
            if not torch.is_tensor(leaf) or not is_inexact(leaf):
                continue
            if leaf.layout != torch.strided or leaf.is_conj() or leaf.numel() == 0:
                continue
            numbers = leaf.data  # autograd's count of versions stays
            if not torch._debug_has_internal_overlap(numbers):
                numbers.copy_(perturbed(numbers + offset, self.noise) - offset)

    def _value(self, leaf):
        if isinstance(leaf, Ref):
            return self.values[leaf.name]
        if isinstance(leaf, torch.device):
            return self.device
        if self._double and isinstance(leaf, torch.dtype):
            return REFERENCE_DTYPE.get(leaf, leaf)
        return leaf

    @contextlib.contextmanager
    def _on_stream(self, wanted: int | None):
        if self.device.type != "opencl":
            yield
            return
        stream, before = self._side(wanted), self._side(self._stream)
        if stream != before:
            stream.wait_stream(before)
        self._stream = wanted
        with torch.opencl.stream(stream):
            yield

    def _side(self, number: int | None):
        if number not in self._streams:
            self._streams[number] = (
                torch.opencl.current_stream(self.device)
                if number is None
                else torch.opencl.Stream(self.device)
            )
        return self._streams[number]

    def back_to_first_stream(self) -> None:
        with self._on_stream(None):
            pass

    def forget(self, name: int) -> None:
        self.values.pop(name, None)


def run(
    program: Program,
    device: torch.device,
    double: bool = False,
    noise: torch.Generator | None = None,
) -> Result:
    torch.manual_seed(0)
    machine, step = None, -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            machine = Machine(program.inputs, device, double, noise)
            for step, call in enumerate(program.steps):  # noqa: B007
                machine.do(call)
            machine.back_to_first_stream()
            step = len(program.steps)
            tensors = _collect(program, machine)
            if device.type == "opencl":  # a kernel's error is raised by a wait
                torch.opencl.synchronize(device)
            return Result(tensors)
        except Exception as error:
            if machine is not None:  # a side stream may still write to its tensors
                machine.back_to_first_stream()
            return Result(error=error, step=step)


def _collect(program: Program, machine: Machine) -> dict[str, torch.Tensor]:
    found = {}
    for name, value in machine.values.items():
        leaves = [leaf for leaf in tree_leaves(value) if torch.is_tensor(leaf)]
        for index, leaf in enumerate(leaves):
            found[f"t{name}" if len(leaves) == 1 else f"t{name}[{index}]"] = leaf
    gradients = _gradients(program, machine, found) if program.backward else {}
    around = {f"memory of t{name}": value for name, value in machine.memory.items()}
    return {key: value.detach() for key, value in (found | around | gradients).items()}


def _gradients(program: Program, machine: Machine, found: dict) -> dict:
    names = [name for name, given in program.inputs.items() if given.requires_grad]
    inputs = {name: machine.values[name] for name in names if name in machine.values}
    outputs = [value for value in found.values() if value.grad_fn is not None]
    if not inputs or not outputs:
        return {}
    generator = torch.Generator().manual_seed(1)
    given = []
    for output in outputs:
        real = output.real.dtype if output.is_complex() else output.dtype
        values = torch.randn(output.shape, generator=generator).to(real)
        if machine.noise is not None:
            values = perturbed(values, machine.noise)
        given.append(values.to(output.device).to(output.dtype))
    gradients = torch.autograd.grad(
        outputs, list(inputs.values()), given, allow_unused=True
    )
    pairs = zip(inputs, gradients, strict=True)
    return {f"gradient of t{name}": g for name, g in pairs if g is not None}
