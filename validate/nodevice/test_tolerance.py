"""The judge itself: what must fail does fail."""

import math

import pytest
import torch
from tolerance import (
    assert_matches,
    assert_same_strides,
    compare,
    compare_all,
    perturbed,
    relative_distance,
    worst,
)


def softmax_case():
    x = torch.randn(40, 50, generator=torch.Generator().manual_seed(1))
    return x.double().softmax(1), x.softmax(1)


def test_the_cpu_result_passes():
    reference, baseline = softmax_case()
    comparison = compare(baseline, reference, baseline)
    assert comparison.passed
    assert comparison.error == comparison.baseline > 0
    assert comparison.ratio < 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: torch.zeros_like(t),
        lambda t: t * (1 + 1e-4),
        lambda t: -t,
        lambda t: t.flip(0),
        lambda t: torch.full_like(t, math.nan),
        lambda t: t.index_put(
            (torch.tensor(3), torch.tensor(4)), torch.tensor(math.nan)
        ),
        lambda t: t.index_put(
            (torch.tensor(3), torch.tensor(4)), torch.tensor(math.inf)
        ),
        lambda t: t.index_put((torch.tensor(3), torch.tensor(4)), torch.tensor(0.5)),
        lambda t: t[:-1],
        lambda t: t.unsqueeze(0),
        lambda t: t.double(),
        lambda t: t.half(),
        lambda t: torch.empty(0),
    ],
)
def test_a_spoilt_result_fails(spoil):
    reference, baseline = softmax_case()
    comparison = compare(spoil(baseline), reference, baseline)
    assert not comparison.passed
    assert comparison.reason
    with pytest.raises(AssertionError):
        assert_matches(spoil(baseline), reference, baseline)


def test_scale_does_not_matter():
    reference, baseline = softmax_case()
    tiny_reference, tiny = reference * 2.0**-60, baseline * 2.0**-60
    assert compare(tiny, tiny_reference, tiny).passed
    assert not compare(torch.zeros_like(tiny), tiny_reference, tiny).passed
    assert not compare(tiny * 1.001, tiny_reference, tiny).passed


def test_non_finite_values_have_to_agree():
    reference = torch.tensor([1.0, math.nan, math.inf, -math.inf], dtype=torch.float64)
    baseline = reference.float()
    assert compare(baseline, reference, baseline).passed
    for index, value in (
        (0, math.nan),
        (1, 2.0),
        (1, math.inf),
        (2, -math.inf),
        (3, math.nan),
    ):
        spoilt = baseline.clone()
        spoilt[index] = value
        assert not compare(spoilt, reference, baseline).passed


def test_overflow_in_the_dtype_is_allowed_where_the_cpu_overflows():
    reference = torch.tensor([1.0, 1e300], dtype=torch.float64)
    baseline = reference.float()
    assert baseline[1].isinf()
    assert compare(baseline, reference, baseline).passed
    assert not compare(torch.tensor([math.inf, 1.0]), reference, baseline).passed


def test_a_reference_of_zeros_measures_against_the_baseline():
    reference = torch.zeros(4, dtype=torch.float64)
    exact, noise = torch.zeros(4), torch.full((4,), 1e-9)
    assert compare(exact, reference, exact).passed
    assert not compare(noise, reference, exact).passed
    assert compare(2 * noise, reference, noise).passed
    assert not compare(100 * noise, reference, noise).passed


def test_empty_tensors_pass():
    empty = torch.empty(0, 3)
    assert compare(empty, empty.double(), empty).passed


def test_integers_have_to_be_equal():
    expected = torch.tensor([1, 2, 3])
    assert compare(expected.clone(), expected, expected).passed
    comparison = compare(torch.tensor([1, 2, 4]), expected, expected)
    assert "flat index 2: 4, expected 3" in comparison.reason
    flags = torch.tensor([True, False])
    assert not compare(~flags, flags, flags).passed


def test_complex_values():
    reference = torch.randn(8, dtype=torch.complex128)
    baseline = reference.to(torch.complex64)
    assert compare(baseline, reference, baseline).passed
    assert not compare(baseline.conj(), reference, baseline).passed


def test_low_precision_has_its_own_floor():
    reference = torch.rand(100, dtype=torch.float64)
    baseline = reference.bfloat16()
    assert compare(baseline * 1.01, reference, baseline).passed
    assert not compare(baseline * 1.2, reference, baseline).passed


def test_the_worst_tensor_is_named():
    reference, baseline = softmax_case()
    names = ("good", "bad", "ugly")
    references = dict.fromkeys(names, reference)
    baselines = dict.fromkeys(names, baseline)
    results = {"good": baseline, "bad": baseline * 1.001, "ugly": baseline * 1.0001}
    comparisons = compare_all(results, references, baselines)
    assert [c.name for c in comparisons if not c.passed] == ["bad", "ugly"]
    assert worst(comparisons).name == "bad"
    results["ugly"] = baseline * math.nan
    assert worst(compare_all(results, references, baselines)).name == "ugly"


def test_a_missing_tensor_fails():
    reference, baseline = softmax_case()
    comparisons = compare_all({}, {"x": reference}, {"x": baseline})
    assert [c.reason for c in comparisons] == ["missing from the result"]


def test_strides():
    x = torch.rand(2, 3, 4, 5)
    with pytest.raises(AssertionError, match="strides"):
        assert_same_strides(x.to(memory_format=torch.channels_last), x)
    assert_same_strides(torch.rand(1, 4).t().contiguous().t(), torch.rand(1, 4))


def test_relative_distance():
    assert relative_distance(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])) == 0
    assert relative_distance(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])) == 1
    assert relative_distance(torch.tensor([1.0]), torch.tensor([0.0])) == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_perturbed_values_are_at_most_a_rounding_away(dtype):
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(1000, generator=generator).to(dtype)
    changed = perturbed(values, generator)
    assert changed.dtype == dtype
    assert not torch.equal(changed, values)
    distance = (changed.double() - values.double()).abs()
    # Rounding the product to the dtype adds half a unit of its own.
    assert bool(
        (distance <= 1.5 * torch.finfo(dtype).eps * values.double().abs()).all()
    )
