"""Reductions from expressions."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from . import parameters as p

_ops = torch.ops.torch_opencl
_RESERVED = ("a", "b", "count")


class ReductionKernel:
    """A kernel that maps elements to values and reduces these along dimensions.

    Inputs are broadcast and may have any strides, offsets and dtypes. The work
    is done by the engine behind PyTorch's own reductions: sums are blocked and
    the same input gives the same bits. The result takes no part in autograd:
    docs/custom-kernels.md shows how to give it a gradient.

    Several reductions in one pass over the inputs are made of sequences of the
    same length in place of the strings.

    Args:
        in_params: types and names such as ``"T x, float32 y"``; see
            :class:`ElementwiseKernel`.
        out_params: the same of the outputs.
        map_expr: an expression over the inputs, what is reduced.
        reduce_expr: an expression over two values ``a`` and ``b``. It has to be
            associative and commutative.
        post_map_expr: statements that assign the outputs from the reduced value
            ``a``, of several reductions ``a0``, ``a1`` and so on; a sequence
            has one for each reduction, over its ``a``. ``count``, a ``long``, is
            the number of elements that an output was made of.
        identity: an expression that changes no value it is reduced with.
        name: in profiles and error messages.
        reduce_type: type in which values are reduced, by default that of the
            outputs in turn, or of the first one.
        preamble: OpenCL C before the kernel, such as functions.

    Raises:
        TypeError: an argument is neither a str nor a sequence of them.
        ValueError: the parameter lists are malformed, the sequences have
            different lengths, or a text has a NUL.

    Example::

        sums = ReductionKernel(
            "T x", "T sum, T squares", ("x", "x * x"), ("a + b", "a + b"),
            ("sum = a", "squares = a"), ("0", "0"), "sums",
        )
        sum, squares = sums(x, axis=(0, 2, 3))
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str | Sequence[str],
        reduce_expr: str | Sequence[str],
        post_map_expr: str | Sequence[str],
        identity: str | Sequence[str],
        name: str = "reduce_kernel",
        reduce_type: str | Sequence[str] | None = None,
        preamble: str = "",
    ) -> None:
        self.name = p.check_name(name, "ReductionKernel: name")
        self.inputs = p.parse(in_params, f"{name}: in_params")
        self.outputs = p.parse(out_params, f"{name}: out_params")
        if not self.inputs or not self.outputs:
            raise ValueError(f"{name}: a reduction needs an input and an output")
        p.check_names(name, (*self.inputs, *self.outputs))
        for each in (*self.inputs, *self.outputs):
            if each.name in _RESERVED:
                raise ValueError(f"{name}: {each.name!r} has a meaning in reductions")
        self.maps = p.texts(map_expr, f"{name}: map_expr")
        self.reduces = p.texts(reduce_expr, f"{name}: reduce_expr")
        if isinstance(identity, Sequence) and not isinstance(identity, (str, bytes)):
            identity = [
                str(each) if isinstance(each, numbers.Real) else each
                for each in identity
            ]
        self.identities = p.texts(identity, f"{name}: identity")
        posts = p.texts(post_map_expr, f"{name}: post_map_expr")
        self.posts = posts[0] if isinstance(post_map_expr, str) else posts
        lengths = {len(self.maps), len(self.reduces), len(self.identities)}
        if not isinstance(post_map_expr, str):
            lengths.add(len(posts))
        if len(lengths) != 1 or not self.maps:
            raise ValueError(
                f"{name}: map_expr, reduce_expr, post_map_expr and identity are of "
                f"different numbers of reductions: {sorted(lengths)}"
            )
        self.types = self._types(reduce_type)
        self.preamble = p.check_text(preamble, f"{name}: preamble")
        self._kernels: dict[tuple[torch.dtype, ...], int] = {}

    def _types(self, given: str | Sequence[str] | None) -> tuple[str, ...]:
        count = len(self.maps)
        if given is None:
            kinds = tuple(each.kind for each in self.outputs)
            return kinds if len(kinds) == count else (kinds[0],) * count
        kinds = p.texts(given, f"{self.name}: reduce_type")
        kinds = kinds * count if len(kinds) == 1 else kinds
        if len(kinds) != count:
            raise ValueError(
                f"{self.name}: {len(kinds)} reduce_types for {count} reductions"
            )
        entries = ", ".join(f"{kind} a{i}" for i, kind in enumerate(kinds))
        return tuple(e.kind for e in p.parse(entries, f"{self.name}: reduce_type"))

    def __repr__(self) -> str:
        return f"<torch_opencl.ReductionKernel {self.name!r}>"

    @torch.no_grad()
    def __call__(
        self,
        *args,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Reduces along ``axis``.

        Args:
            *args: all inputs, then all outputs or none of them.
            axis: dimensions of the broadcast inputs, by default all.
            keepdims: keep reduced dimensions, of size 1.

        Returns:
            The output, or a tuple of several.

        Raises:
            TypeError: the number of arguments or a dtype is wrong, or an axis is
                no integer.
            IndexError: an axis does not exist.
            RuntimeError: shapes do not fit, devices differ, or an expression
                does not compile.
        """
        inputs, outputs = p.split_arguments(self.name, args, self.inputs, self.outputs)
        device = p.device_of(self.name, args)
        every = (*self.inputs, *self.outputs)
        placeholders = p.resolve(self.name, every, (*inputs, *outputs))
        dtypes = tuple(p.dtype_of(self.name, each, placeholders) for each in every)
        inputs = torch.broadcast_tensors(
            *(
                (
                    value
                    if isinstance(value, Tensor)
                    else p.number(f"{self.name}: argument '{each.name}'", value, dtype)
                ).to(device)
                for each, value, dtype in zip(self.inputs, inputs, dtypes, strict=False)
            )
        )
        reduced = self._dimensions(axis, inputs[0].dim())
        sizes = list(enumerate(inputs[0].shape))
        kept = [size for d, size in sizes if d not in reduced]
        shown = [1 if d in reduced else n for d, n in sizes] if keepdims else kept
        if not outputs:
            outputs = [
                torch.empty(shown, dtype=dtype, device=device)
                for dtype in dtypes[len(inputs) :]
            ]
        for each, output in zip(self.outputs, outputs, strict=True):
            if list(output.shape) != shown:
                raise RuntimeError(
                    f"{self.name}: output '{each.name}' has shape "
                    f"{list(output.shape)}, expected {shown}"
                )
        kernel = self._kernels.get(dtypes)
        if kernel is None:
            kernel = self._kernels[dtypes] = self._define(dtypes, placeholders)
        written = [output.view(kept) for output in outputs] if keepdims else outputs
        _ops._reduction(kernel, written, inputs, sorted(reduced))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _dimensions(self, axis: int | Sequence[int] | None, dim: int) -> set[int]:
        if axis is None:
            return set(range(dim))
        try:
            dims = [axis] if isinstance(axis, int) else map(operator.index, axis)
            dims = list(dims)
        except TypeError:
            raise TypeError(
                f"{self.name}: axis must be an integer or a sequence of them, got "
                f"{axis!r}"
            ) from None
        found: set[int] = set()
        for each in dims:
            if not -max(dim, 1) <= each < max(dim, 1):
                raise IndexError(
                    "Dimension out of range (expected to be in range of "
                    f"[{-max(dim, 1)}, {max(dim, 1) - 1}], but got {each})"
                )
            each %= max(dim, 1)
            if each in found:
                raise RuntimeError(
                    f"dim {each} appears multiple times in the list of dims"
                )
            found.add(each)
        return found if dim else set()

    def _define(
        self, dtypes: tuple[torch.dtype, ...], placeholders: dict[str, torch.dtype]
    ) -> int:
        """The expressions as functions over a struct of all reduced values."""
        names = [p.NAMES[dtype] for dtype in dtypes]
        ins = list(zip(names, self.inputs, strict=False))
        outs = list(zip(names[len(ins) :], self.outputs, strict=True))
        types = []
        for kind in self.types:
            dtype = p.dtype_of(
                self.name, p.Parameter(kind, "reduce_type"), placeholders
            )
            types.append(f"compute_{p.NAMES[dtype]}")
        numbered = list(enumerate(types))

        def at(text: str, part: str, index: int) -> str:
            place = f"{self.name}.{part}" + (f"[{index}]" if len(types) > 1 else "")
            return p.from_line(text, place)

        def reduce(b: str, index: int) -> str:
            kind = types[index]
            return (
                f"{{\nconst {kind} a = state.value{index};\n"
                f"const {kind} b = {b};\n"
                f"state.value{index} = ({at(self.reduces[index], 'reduce_expr', index)});\n}}\n"
            )

        inputs = "".join(f", const compute_{dtype} {each.name}" for dtype, each in ins)
        state = "user_state_t state"
        text = p.typedefs(placeholders)
        text += p.from_line(self.preamble, f"{self.name}.preamble")
        text += "typedef struct {\n"
        text += "".join(f"{kind} value{i};\n" for i, kind in numbered)
        text += "} user_state_t;\n"
        text += f"static inline user_state_t user_identity(void) {{\n{state};\n"
        for i, _ in numbered:
            text += f"state.value{i} = ({at(self.identities[i], 'identity', i)});\n"
        text += "return state;\n}\n"
        for i, kind in numbered:
            text += f"static inline {kind} user_map{i}({inputs[2:]}) {{\n"
            text += f"return ({at(self.maps[i], 'map_expr', i)});\n}}\n"
        values = ", ".join(each.name for _, each in ins)
        text += f"static inline user_state_t user_step({state}{inputs}) {{\n"
        text += "".join(reduce(f"user_map{i}({values})", i) for i, _ in numbered)
        text += "return state;\n}\n"
        text += (
            f"static inline user_state_t user_combine({state}, user_state_t other) {{\n"
        )
        text += "".join(reduce(f"other.value{i}", i) for i, _ in numbered)
        text += "return state;\n}\n"
        for index, (dtype, each) in enumerate(outs):
            text += f"static inline compute_{dtype} user_result{index}"
            text += f"({state}, long count) {{\n"
            text += "".join(f"compute_{d} {e.name} = 0;\n" for d, e in outs)
            if isinstance(self.posts, str):
                for i, kind in numbered:
                    text += f"const {kind} a{i} = state.value{i};\n"
                text += f"const {types[0]} a = a0;\n{{"
                text += at(f"{self.posts};", "post_map_expr", 0) + "}\n"
            else:
                for i, kind in numbered:
                    text += f"{{\nconst {kind} a = state.value{i};\n"
                    text += at(f"{self.posts[i]};", "post_map_expr", i) + "}\n"
            text += f"return {each.name};\n}}\n"
        in_names = [f"user_in{index}" for index in range(len(ins))]
        return _ops._define_reduction(
            self.name,
            f"user_step(state, {', '.join(in_names)})",
            " ".join(in_names),
            text,
            8 * len(types),
            [f"user_result{index}(state, count)" for index in range(len(outs))],
        )
