"""A function of tensors and its gradients: on the device, on the CPU, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from tolerance import MULTIPLE, assert_matches, perturbed, relative_distance
from torch.utils._pytree import tree_leaves

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
)

# Cancellation may cost about half of a result's bits; a result that loses more
# shows nothing. In units of the square root of epsilon.
_MOST_ROUNDING = 4
# A tensor of one element has a single error, which is near zero every so often.
_NEARBY_RUNS = 8
# Of incoming gradients, where a sum of them loses more than that.
_DRAWS = 3


class _ShowsNothing(AssertionError):
    """A result that cancellation leaves too few bits of to be judged."""


# Layouts of the same values. Gaps hold NaN, so that reading one shows.


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous()


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()])


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([_gap(tensor), tensor], -1)[..., 1]


def offset(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.contiguous().view(-1)
    return torch.cat([_gap(flat), flat])[flat.numel() :].view(tensor.shape)


PLAIN_LAYOUTS = (contiguous, transposed, strided, offset)
LAYOUTS = (*PLAIN_LAYOUTS, channels_last)


def _gap(tensor: torch.Tensor) -> torch.Tensor:
    value = float("nan") if tensor.is_floating_point() else 77
    return torch.full_like(tensor, value)


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((size,), (1,), 0)


def move(
    tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """With the storage around it, so that strides, gaps and offset stay."""
    whole = _memory(tensor.detach())
    if dtype is not None and tensor.is_floating_point():
        whole = whole.to(dtype)
    moved = whole.to(device, copy=True)
    return moved.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _run(
    function: Callable,
    inputs: Sequence[torch.Tensor | None],
    device: torch.device,
    dtype: torch.dtype,
    backward: bool,
    draw: int,
    noise: torch.Generator | None = None,
) -> dict[str, torch.Tensor]:
    """Outputs and gradients by name; with ``noise`` of incoming gradients that are
    a rounding away."""
    leaves = [
        value if value is None else move(value, device, dtype) for value in inputs
    ]
    wanted = [x for x in leaves if x is not None and x.is_floating_point()]
    if backward:
        for leaf in wanted:
            leaf.requires_grad_()
    outputs = [x for x in tree_leaves(function(*leaves)) if torch.is_tensor(x)]
    results = {f"output {i}": value for i, value in enumerate(outputs)}
    differentiable = [x for x in outputs if x.requires_grad]
    if backward and differentiable:
        generator = torch.Generator().manual_seed(1 + draw)
        gradients = [
            torch.randn(x.shape, generator=generator).to(x.dtype).to(x.device)
            for x in differentiable
        ]
        if noise is not None:
            gradients = [
                perturbed(x, noise) if x.is_floating_point() else x for x in gradients
            ]
        found = torch.autograd.grad(
            differentiable, wanted, gradients, allow_unused=True
        )
        results |= {
            f"gradient {i}": value for i, value in enumerate(found) if value is not None
        }
    return results


def check(
    function: Callable,
    inputs: Sequence[torch.Tensor | None],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    *,
    backward: bool = True,
    strides: bool = False,
    multiple: float = MULTIPLE,
) -> None:
    """Outputs and gradients of ``function`` against the CPU's.

    ``inputs`` lie on the CPU; their layout is kept and floats take ``dtype``.
    ``strides`` also asks for the CPU's layouts of outputs and gradients.
    """
    rounded = [
        x if x is None or not x.is_floating_point() else _round(x, dtype)
        for x in inputs
    ]
    for draw in range(_DRAWS):
        try:
            _check(function, rounded, device, dtype, backward, strides, multiple, draw)
            return
        except _ShowsNothing:
            if not backward or draw + 1 == _DRAWS:
                raise


def check_error(call: Callable, device: torch.device, *inputs: torch.Tensor) -> None:
    """What ``call`` raises of ``inputs`` on the CPU, type and text, it raises of them
    on the device."""
    with pytest.raises(Exception) as expected:
        call(*inputs)
    with pytest.raises(type(expected.value)) as raised:
        call(*(x.to(device) for x in inputs))
    assert str(raised.value) == str(expected.value)


def _check(
    function: Callable,
    inputs: Sequence[torch.Tensor | None],
    device: torch.device,
    dtype: torch.dtype,
    backward: bool,
    strides: bool,
    multiple: float,
    draw: int,
) -> None:
    cpu = torch.device("cpu")
    result = _run(function, inputs, device, dtype, backward, draw)
    baseline = _run(function, inputs, cpu, dtype, backward, draw)
    reference = _run(function, inputs, cpu, torch.float64, backward, draw)
    assert result.keys() == baseline.keys()
    for name, value in result.items():
        assert value.device.type == device.type
        try:
            assert_matches(
                value, reference[name], baseline[name], name, multiple, strides=strides
            )
        except AssertionError as error:
            # A sum that cancels, which the CPU may get right by luck: its results
            # for inputs a rounding away say how far off rounding leads.
            noise = torch.Generator().manual_seed(0)
            nearby = [
                _run(
                    function,
                    _perturbed(inputs, dtype, noise),
                    cpu,
                    dtype,
                    backward,
                    draw,
                    noise,
                )
                for _ in range(_NEARBY_RUNS)
            ]
            owns = [relative_distance(run[name], reference[name]) for run in nearby]
            own = max(owns)
            if not own < _MOST_ROUNDING * torch.finfo(dtype).eps ** 0.5:
                raise _ShowsNothing(str(error)) from error
            farthest = nearby[owns.index(own)][name]
            assert_matches(
                value, reference[name], farthest, name, multiple, strides=strides
            )


def _perturbed(
    inputs: Sequence[torch.Tensor | None],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> list[torch.Tensor | None]:
    changed = []
    for value in inputs:
        if value is not None and value.is_floating_point():
            value = move(value, torch.device("cpu"), dtype)
            # Elements of an expanded tensor share their memory.
            memory = _memory(value)
            memory.copy_(perturbed(memory, generator))
        changed.append(value)
    return changed


def _round(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return move(
        move(tensor, torch.device("cpu"), dtype), torch.device("cpu"), tensor.dtype
    )
