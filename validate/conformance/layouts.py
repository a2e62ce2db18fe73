"""Shapes, strides, dtypes and devices of results: the device's kernels against what
``FakeTensorMode`` says, which torch.compile and torch.export rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from conformance.opinfo import (
    call,
    describe,
    differentiable,
    lay_out,
    map_sample,
    to_device,
)
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map_only

# The fake kernels cannot know: shapes or results depend on values.
_UNKNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

_FALLBACK = "TORCH_OPENCL_FALLBACK"


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats:
        return tensor
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() < 2:
        return tensor
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.numel() == 0:
        return tensor
    return tensor[..., :1].expand_as(tensor)


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor])[len(tensor) :] if tensor.dim() else tensor


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


LAYOUTS = {
    "contiguous": torch.Tensor.contiguous,
    "channels_last": _channels_last,
    "transposed": _transposed,
    "strided": noncontiguous_like,
    "expanded": _expanded,
    "offset": _offset,
}


def _out(op: OpInfo) -> Callable:
    """Into what has no elements yet: the op chooses the strides."""

    def call_with_out(*args, **kwargs):
        given = tree_map_only(
            torch.Tensor, lambda t: t.new_empty(0), op(*args, **kwargs)
        )
        op(*args, out=given, **kwargs)
        return given

    return call_with_out


def _in_place(op: OpInfo) -> Callable:
    method = op.get_inplace()

    def call_in_place(tensor, *args, **kwargs):
        return method(_strided_clone(tensor), *args, **kwargs)

    return call_in_place


def _strided_clone(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0 or 0 in tensor.stride():
        return tensor.clone()
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


# How an op is called. With "gradient" the gradients of its results have the layout of
# its inputs, not that of the results.
FORMS = {
    "function": lambda op: op,
    "gradient": lambda op: op,
    "out": _out,
    "in_place": _in_place,
}


def forms_of(op: OpInfo, dtype: torch.dtype) -> Iterator[str]:
    yield "function"
    if op.supports_autograd and dtype.is_floating_point:
        yield "gradient"
    if op.supports_out:
        yield "out"
    if op.get_inplace() is not None:
        yield "in_place"


def _run(
    op: Callable, sample: SampleInput, incoming: Callable = _as_it_is
) -> list[torch.Tensor | None]:
    """Outputs, and the gradients of what wants them, for ``incoming`` ones."""
    result = call(op, sample)
    outputs = [leaf for leaf in tree_leaves(result) if torch.is_tensor(leaf)]
    seen = tree_leaves(sample.output_process_fn_grad(result))
    roots = [x for x in seen if torch.is_tensor(x) and x.requires_grad]
    wanted = differentiable(sample)
    if not roots or not wanted:
        return outputs
    ones = [incoming(torch.ones_like(root)) for root in roots]
    return outputs + list(torch.autograd.grad(roots, wanted, ones, allow_unused=True))


@dataclass(frozen=True)
class Kind:
    """What FakeTensorMode knows of a tensor. The stride of a dimension of one
    element, or of an empty tensor, means nothing."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor | None) -> Kind | None:
        if tensor is None or tensor.layout != torch.strided:
            return None
        strides = ()
        if tensor.numel() > 1:
            strides = tuple(
                stride if size > 1 else 0
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
        return cls(
            tuple(tensor.shape),
            strides,
            tensor.storage_offset(),
            tensor.dtype,
            tensor.device,
        )

    def __str__(self) -> str:
        return (
            f"{self.shape} by {self.strides} at {self.offset}, {self.dtype}, "
            f"{self.device}"
        )


def kinds(
    op: Callable, sample: SampleInput, incoming: Callable = _as_it_is
) -> list[Kind | None]:
    return [Kind.of(tensor) for tensor in _run(op, sample, incoming)]


def fake_kinds(
    op: Callable, sample: SampleInput, incoming: Callable = _as_it_is
) -> list[Kind | None] | None:
    """What FakeTensorMode says; None where it cannot know."""
    mode = FakeTensorMode()
    try:
        fake = map_sample(
            sample, lambda v: mode.from_tensor(v) if torch.is_tensor(v) else v
        )
        with mode:
            return kinds(op, fake, incoming)
    except _UNKNOWN:
        return None


def differences(
    op: OpInfo,
    device: torch.device,
    samples: Iterable[SampleInput],
    as_cpu: Callable[[SampleInput], bool],
    form: str = "function",
) -> Iterator[str]:
    """Of all samples in all layouts. Of what the CPU refuses nothing is said.

    Args:
        as_cpu: whether the device may do as the CPU's kernel does, against the fake
            one.
        form: one of ``FORMS``.
    """
    function = FORMS[form](op)
    for sample in samples:
        if form == "in_place" and sample.broadcasts_input:
            continue
        for name, layout in LAYOUTS.items():
            incoming = layout if form == "gradient" else _as_it_is
            laid_out = lay_out(sample, layout)
            moved = to_device(laid_out, device)
            try:
                mine = kinds(function, moved, incoming)
                torch.opencl.synchronize(device)  # raises what a kernel reported
            except Exception as error:
                # What falls back to the CPU has the CPU's strides.
                if _FALLBACK in str(error) or not _on_cpu(function, laid_out, incoming):
                    continue
                raise
            said = fake_kinds(function, moved, incoming)
            if said is None or mine == said:
                continue
            if as_cpu(laid_out):
                found = _on_cpu(function, laid_out, incoming)
                if found is None or mine == [
                    kind and replace(kind, device=device) for kind in found
                ]:
                    continue
            pairs = zip(mine, said, strict=False)
            wrong = [f"{a}, said {b}" for a, b in pairs if a != b]
            yield f"{name} {describe(laid_out)}: {wrong or 'count of results'}"


def _on_cpu(
    op: Callable, sample: SampleInput, incoming: Callable
) -> list[Kind | None] | None:
    """The CPU's; None where it refuses."""
    try:
        return kinds(op, sample, incoming)
    except Exception:
        return None
