"""One op on one of torch's sample inputs: on the device, on the CPU, in float64."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch_opencl
from tolerance import MULTIPLE, REFERENCE_DTYPE, assert_same_strides, compare, perturbed
from torch.testing import assert_close
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map


def op_table() -> list[dict]:
    """The entries that the build's op tables declare."""
    path = Path(torch_opencl.__file__).parent / "_generated" / "op_table.json"
    return json.loads(path.read_text())


def map_sample(sample: SampleInput, function: Callable) -> SampleInput:
    """``function`` on every tensor and dtype; gradients stay wanted."""

    def apply(value):
        if not isinstance(value, (torch.Tensor, torch.dtype)):
            return value
        changed = function(value)
        if isinstance(value, torch.Tensor):
            differentiable = changed.is_floating_point() or changed.is_complex()
            changed = changed.detach().requires_grad_(
                value.requires_grad and differentiable
            )
        return changed

    return SampleInput(
        tree_map(apply, sample.input),
        args=tree_map(apply, sample.args),
        kwargs=tree_map(apply, sample.kwargs),
        output_process_fn_grad=sample.output_process_fn_grad,
        broadcasts_input=sample.broadcasts_input,
    )


def to_device(sample: SampleInput, device: torch.device) -> SampleInput:
    """A copy there, with the same strides; what shared memory shares it again."""
    moved = {}

    def move(value):
        # error inputs mix in tensors on "meta"
        if not torch.is_tensor(value) or value.device.type != "cpu":
            return value
        if value.layout != torch.strided or value.is_conj() or value.is_neg():
            return value.to(device, copy=True)
        storage = value.untyped_storage()
        key = (storage.data_ptr(), value.dtype)
        if key not in moved:
            flat = torch.empty(0, dtype=value.dtype).set_(storage)
            moved[key] = flat.to(device, copy=True)
        return moved[key].as_strided(
            value.shape, value.stride(), value.storage_offset()
        )

    copy = map_sample(sample, move)
    if str(copy.kwargs.get("device", "")) == "cpu":
        copy.kwargs["device"] = device
    return copy


def to_double(sample: SampleInput) -> SampleInput:
    def double(value):
        if isinstance(value, torch.dtype):
            return REFERENCE_DTYPE.get(value, value)
        return value.to(REFERENCE_DTYPE.get(value.dtype, value.dtype))

    return map_sample(sample, double)


def perturbed_sample(sample: SampleInput) -> SampleInput:
    """Floats changed by a rounding, as if computed another way beforehand."""
    generator = torch.Generator().manual_seed(0)

    def perturb(value):
        if not torch.is_tensor(value) or not value.is_floating_point():
            return value
        return perturbed(value, generator) if value.layout == torch.strided else value

    return map_sample(sample, perturb)


def lay_out(sample: SampleInput, layout: Callable) -> SampleInput:
    """The same values in the layout that a function of a tensor gives."""

    def apply(value):
        is_strided = torch.is_tensor(value) and value.layout == torch.strided
        return layout(value) if is_strided else value

    return map_sample(sample, apply)


def noncontiguous(sample: SampleInput) -> SampleInput:
    # noncontiguous_like leaves 0-dim tensors alone
    return lay_out(sample, noncontiguous_like)


def describe(sample: SampleInput) -> str:
    def brief(value):
        if torch.is_tensor(value):
            return f"{str(value.dtype)[6:]}{list(value.shape)}"
        return value

    parts = [tree_map(brief, v) for v in (sample.input, sample.args, sample.kwargs)]
    return f"input={parts[0]} args={parts[1]} kwargs={parts[2]}"


def call(op: Callable, sample: SampleInput):
    return op(sample.input, *sample.args, **sample.kwargs)


def tensors(value) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if torch.is_tensor(leaf)]


def differentiable(sample: SampleInput) -> list[torch.Tensor]:
    values = (sample.input, sample.args, sample.kwargs)
    return [t for t in tensors(values) if t.requires_grad]


def gradients(op: Callable, sample: SampleInput, seed: int) -> list[torch.Tensor]:
    """Of all inputs, for a seeded gradient of every output."""
    inputs = differentiable(sample)
    outputs = tensors(sample.output_process_fn_grad(call(op, sample)))
    outputs = [output for output in outputs if output.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    given = []
    for output in outputs:
        real = output.real.dtype if output.is_complex() else output.dtype
        values = torch.randn(output.shape, generator=generator).to(real)
        given.append(values.to(output.device).to(output.dtype))
    if not inputs or not outputs:
        return []
    return list(
        torch.autograd.grad(
            outputs, inputs, given, allow_unused=True, materialize_grads=True
        )
    )


def assert_result(
    result,
    baseline,
    reference: Callable[[], object],
    strides: bool = False,
    neighbour: Callable[[], object] | None = None,
) -> None:
    """Passes within torch.testing's defaults of the CPU, or else by the rule of
    tolerance.py against the float64 ``reference``, element by element too.

    The CPU may get an ill-conditioned result right by luck: then its result for
    perturbed inputs, ``neighbour``, says how far off rounding leads.
    """
    results, baselines = tensors(result), tensors(baseline)
    assert len(results) == len(baselines), f"{len(results)} outputs"
    references = None
    for index, (mine, cpu) in enumerate(zip(results, baselines, strict=True)):
        assert mine.shape == cpu.shape, f"shape {mine.shape}, expected {cpu.shape}"
        if strides:
            assert_same_strides(mine, cpu)
        try:
            assert_close(mine.cpu(), cpu, equal_nan=True)
        except AssertionError as error:
            if (
                not (cpu.is_floating_point() or cpu.is_complex())
                or mine.dtype != cpu.dtype
            ):
                raise
            references = references or tensors(reference())
            try:
                _assert_close_to(references[index], mine.cpu(), cpu)
            except AssertionError as distance:
                if neighbour is None:
                    raise AssertionError(f"{distance}\n{error}") from None
                nearby = tensors(neighbour())[index]
                _assert_close_to(references[index], mine.cpu(), nearby)


def _assert_close_to(reference, mine, cpu) -> None:
    comparison = compare(mine, reference, cpu)
    assert comparison.passed, str(comparison)
    _assert_elements(mine, reference, cpu)


def _assert_elements(mine, reference, cpu) -> None:
    # A relative L2 distance does not see a small wrong element among large ones.
    finite = reference.isfinite() & cpu.isfinite()
    wide = reference.dtype
    own = (cpu.to(wide) - reference)[finite].abs()
    error = (mine.to(wide) - reference)[finite].abs()
    scale = reference[finite].abs()
    eps = torch.finfo(cpu.dtype).eps
    allowed = MULTIPLE * own.max() + 1e-5 + 8 * eps * scale
    assert bool((error <= allowed).all()), f"an element is off by {error.max():.3g}"


def take(samples: Iterator[SampleInput], limit: int | None, seed: int):
    """All samples, or the first and a slice that the seed picks."""
    samples = list(samples)
    if limit is None or len(samples) <= limit:
        return samples
    generator = torch.Generator().manual_seed(seed)
    picked = torch.randperm(len(samples) - 1, generator=generator)[: limit - 1] + 1
    return [samples[0], *(samples[i] for i in sorted(picked.tolist()))]


def same_error(op: OpInfo, sample: SampleInput, expected: Exception) -> None:
    """The device raises what the CPU raised."""
    try:
        call(op, sample)
    except type(expected):
        return
    except Exception as error:
        raise AssertionError(f"{error!r}, expected {expected!r}") from error
    raise AssertionError(f"no error, expected {expected!r}")
