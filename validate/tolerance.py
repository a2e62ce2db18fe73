"""The one rule by which a result is compared with a reference.

A float result passes when its relative L2 distance to a float64 CPU reference
is at most a small multiple of the distance that the CPU's own result in the
same dtype has, plus a floor of a few roundings. Thresholds that do not scale
with the reference pass nonsense: the output of an untrained network can be
1e-9. Anything else (integers, bool, non-finite values) has to be equal.

Every decision is written as "passes when", so that NaN fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

# Another order of summation and another rounding of exp or tanh stay within
# this multiple of the CPU's own error.
MULTIPLE = 4.0
# When the CPU's result happens to be nearly exact, a few roundings are still
# allowed, in units of the dtype's epsilon.
FLOOR_EPSILONS = 8.0
# The dtype of a reference.
REFERENCE_DTYPE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class Comparison:
    """Outcome for one tensor; ``reason`` is empty when it passed."""

    name: str
    error: float
    baseline: float
    limit: float
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason

    @property
    def ratio(self) -> float:
        """Share of the limit that was used; infinite for other failures."""
        if math.isfinite(self.error) and self.limit > 0:
            return self.error / self.limit
        return 0.0 if self.passed else math.inf

    def __str__(self) -> str:
        text = (
            f"{self.name}: error {self.error:.3g}, CPU's own {self.baseline:.3g}, "
            f"limit {self.limit:.3g}"
        )
        return f"{text}: {self.reason}" if self.reason else text


def floor(dtype: torch.dtype) -> float:
    return FLOOR_EPSILONS * torch.finfo(dtype).eps


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().cpu()


def perturbed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The floats ``tensor``, each at most a rounding away from what it was; of complex
    numbers each part."""
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.resolve_conj())
        return torch.view_as_complex(perturbed(parts, generator))
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    factors = 1 + torch.finfo(tensor.dtype).eps * (2 * noise - 1)
    return (tensor.double() * factors).to(tensor.dtype)


def _flat_double(tensor: torch.Tensor) -> torch.Tensor:
    tensor = to_host(tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.double().reshape(-1)


def _are_finite(*tensors: torch.Tensor) -> bool:
    """False too if a sum overflows; many times as fast as asking of each element."""
    return all(math.isfinite(tensor.sum().item()) for tensor in tensors)


def relative_distance(result: torch.Tensor, reference: torch.Tensor) -> float:
    """||result - reference|| / ||reference|| over the finite elements."""
    result, reference = _flat_double(result), _flat_double(reference)
    if not _are_finite(result, reference):
        finite = result.isfinite() & reference.isfinite()
        result, reference = result[finite], reference[finite]
    difference = torch.linalg.vector_norm(result - reference).item()
    norm = torch.linalg.vector_norm(reference).item()
    if difference == 0.0:
        return 0.0
    return difference / norm if norm > 0.0 else math.inf


def same_non_finite(result: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """True where both are finite, both NaN, or the same infinity."""
    return (
        (result.isfinite() & other.isfinite())
        | (result.isnan() & other.isnan())
        | (result.isinf() & (result == other))
    )


def _non_finite_mismatch(
    result: torch.Tensor, reference: torch.Tensor, baseline: torch.Tensor
) -> str:
    # What overflows in the result's dtype but not in float64 has to overflow
    # on the CPU too.
    result, reference = _flat_double(result), _flat_double(reference)
    baseline = _flat_double(baseline)
    if _are_finite(result, reference, baseline):
        return ""
    agrees = same_non_finite(result, reference)
    agrees |= same_non_finite(result, baseline)
    if bool(agrees.all()):
        return ""
    index = int((~agrees).nonzero()[0])
    count = int((~agrees).sum())
    return (
        f"{count} of {result.numel()} elements differ in NaN or infinity, the "
        f"first at flat index {index}: {result[index].item()}, expected "
        f"{baseline[index].item()}"
    )


def compare(
    result: torch.Tensor,
    reference: torch.Tensor,
    baseline: torch.Tensor,
    name: str = "result",
    multiple: float = MULTIPLE,
    baseline_reference: torch.Tensor | None = None,
) -> Comparison:
    """Judges ``result``.

    Args:
        result: the tensor under test, on any device.
        reference: the same computed on the CPU in float64 (complex128).
        baseline: the same computed on the CPU in the result's dtype.
        name: named in reports.
        multiple: of the baseline's distance that is allowed.
        baseline_reference: where the baseline has a float64 reference of its
            own.
    """
    if baseline_reference is None:
        baseline_reference = reference
    if result.shape != baseline.shape:
        return _failed(
            name, f"shape {list(result.shape)}, expected {list(baseline.shape)}"
        )
    if result.dtype != baseline.dtype:
        return _failed(name, f"dtype {result.dtype}, expected {baseline.dtype}")
    if not (result.is_floating_point() or result.is_complex()):
        return _compare_exact(result, baseline, name)
    reason = _non_finite_mismatch(result, reference, baseline)
    if reason:
        return _failed(name, reason)
    error = relative_distance(result, reference)
    own = relative_distance(baseline, baseline_reference)
    limit = multiple * own + floor(baseline.dtype)
    # An infinite distance is a reference of zeros: then the baseline's norm
    # is the scale.
    if math.isinf(error):
        error = torch.linalg.vector_norm(_flat_double(result)).item()
        own = torch.linalg.vector_norm(_flat_double(baseline)).item()
        limit = multiple * own
    reason = "" if error <= limit else "too far from the float64 reference"
    return Comparison(name, error, own, limit, reason)


def _failed(name: str, reason: str) -> Comparison:
    return Comparison(name, math.nan, math.nan, math.nan, reason)


def _compare_exact(
    result: torch.Tensor, baseline: torch.Tensor, name: str
) -> Comparison:
    result, baseline = to_host(result).reshape(-1), to_host(baseline).reshape(-1)
    differs = result != baseline
    count = int(differs.sum())
    reason = ""
    if count:
        index = int(differs.nonzero()[0])
        reason = (
            f"{count} of {result.numel()} elements differ, the first at flat "
            f"index {index}: {result[index].item()}, expected {baseline[index].item()}"
        )
    return Comparison(name, float(count), 0.0, 0.0, reason)


def compare_all(
    results: Mapping[str, torch.Tensor],
    references: Mapping[str, torch.Tensor],
    baselines: Mapping[str, torch.Tensor],
    multiple: float = MULTIPLE,
    baseline_references: Mapping[str, torch.Tensor] | None = None,
) -> list[Comparison]:
    """Compares tensors of the same name; a missing or extra name fails."""
    if baseline_references is None:
        baseline_references = references
    comparisons = []
    for name in sorted(results.keys() | baselines.keys()):
        if name not in results or name not in baselines:
            side = "missing from" if name not in results else "only in"
            comparisons.append(_failed(name, f"{side} the result"))
            continue
        comparisons.append(
            compare(
                results[name],
                references[name],
                baselines[name],
                name,
                multiple,
                baseline_references[name],
            )
        )
    return comparisons


def compare_errors(
    errors: list[float], baselines: list[float], name: str, multiple: float = MULTIPLE
) -> list[Comparison]:
    """The same rule for distances that are known already, of float32 values."""
    comparisons = []
    for index, (error, own) in enumerate(zip(errors, baselines, strict=True)):
        limit = multiple * own + floor(torch.float32)
        reason = "" if error <= limit else "more than rounding"
        comparisons.append(Comparison(f"{name} {index}", error, own, limit, reason))
    return comparisons


def worst(comparisons: list[Comparison]) -> Comparison:
    """The comparison nearest to (or furthest beyond) its limit."""
    return max(
        comparisons, key=lambda comparison: (not comparison.passed, comparison.ratio)
    )


def assert_matches(
    result: torch.Tensor,
    reference: torch.Tensor,
    baseline: torch.Tensor,
    name: str = "result",
    multiple: float = MULTIPLE,
    strides: bool = False,
) -> None:
    """Raises AssertionError unless ``compare`` passes.

    ``strides`` also asks for the baseline's memory layout.
    """
    comparison = compare(result, reference, baseline, name, multiple)
    assert comparison.passed, str(comparison)
    if strides:
        assert_same_strides(result, baseline, name)


def assert_same_strides(
    result: torch.Tensor, expected: torch.Tensor, name: str = "result"
) -> None:
    # The stride of a dimension of size 1, or of an empty tensor, means nothing.
    if expected.numel() == 0:
        return
    pairs = zip(expected.shape, result.stride(), expected.stride(), strict=True)
    same = all(size == 1 or left == right for size, left, right in pairs)
    assert same, f"{name}: strides {result.stride()}, expected {expected.stride()}"
