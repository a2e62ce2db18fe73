"""The fuzzer's list of differences from the CPU that are on purpose: each reason holds
for its own cases alone."""

from __future__ import annotations

import pytest
import torch
from fuzz import known
from fuzz.generate import generate
from fuzz.program import Program, Ref, Step, ops_by_name
from fuzz.tensors import Input, Layout


def test_excluded_ops_exist():
    names = {op.name for op in ops_by_name().values()}
    assert set(known.EXCLUDED) <= names


def test_a_sparse_layout_that_both_refuse():
    program = generate(1)
    on_cpu = NotImplementedError(
        "Could not run 'aten::as_strided_' with arguments from the 'SparseCPU' backend."
    )
    mine = NotImplementedError("Cannot access storage of SparseTensorImpl")
    assert known.error(program, mine, on_cpu)
    by_dense_kernel = "tried to directly modify sizes for customized tensor"
    assert known.error(program, RuntimeError(by_dense_kernel), on_cpu)
    assert not known.error(program, RuntimeError(str(mine)), on_cpu)
    assert not known.error(program, None, ValueError(str(on_cpu)))


def test_a_negation_that_both_refuse():
    on_cpu = NotImplementedError("\"neg_cpu\" not implemented for 'Bool'")
    mine = NotImplementedError("\"neg\" not implemented for 'Bool'")
    assert known.error(generate(1), mine, on_cpu)
    assert not known.error(generate(1), mine, None)
    assert not known.error(generate(1), RuntimeError(str(mine)), on_cpu)


def test_a_bool_exponent_that_only_eager_code_refuses():
    on_cpu = RuntimeError(
        "Subtraction, the `-` operator, with a bool tensor is not supported."
    )
    compiled = Program({}, [], "torch.compile")
    assert known.error(compiled, None, on_cpu)
    assert not known.error(compiled, RuntimeError("another"), on_cpu)
    assert not known.error(Program({}, [], "pow"), None, on_cpu)


def test_a_variance_that_only_the_cpu_refuses():
    on_cpu = RuntimeError("std_var_all: Unsupported dtype BFloat16")
    assert known.error(generate(1), None, on_cpu)
    assert not known.error(generate(1), RuntimeError("another"), on_cpu)


@pytest.mark.parametrize(
    ("taken", "source", "out", "is_resized"),
    [
        (slice(1, None), 1, 2, True),  # an empty view
        (slice(0, None, 2), 2, 1, True),  # what is read is a part of it
        (slice(0, 2), 2, 2, False),  # in place
        (slice(0, 2), 3, 2, False),  # of another tensor
    ],
)
def test_an_out_that_is_resized_over_what_is_read(taken, source, out, is_resized):
    values = torch.randn(1, 3, 3) if taken.start else torch.randn(4, 3)
    steps = [
        Step("action:take", (Ref(1), (taken,)), result=2),
        Step("add", (Ref(source), 0.5), {"out": Ref(out)}, result=4),
    ]
    inputs = {1: Input(values), 3: Input(torch.randn(3, 3))}
    program = Program(inputs, steps, "sequence")
    reason = known.value(program, "t4", "too far from the float64 reference", ())
    assert bool(reason) == is_resized


def _batch_norm_into(x: torch.Tensor, out: torch.Tensor, trains: bool) -> Program:
    """``x`` and ``out`` in their strides, statistics for three channels."""
    inputs = {name: Input(torch.rand(3)) for name in range(1, 5)}
    for name, tensor in ((0, x), (6, out)):
        order = sorted(range(4), key=tensor.stride, reverse=True)
        steps = (2,) * 4 if not known._is_dense(tensor) else ()
        inputs[name] = Input(torch.rand(2, 3, 4, 5), Layout(tuple(order), steps))
    inputs |= {7: Input(torch.rand(0)), 8: Input(torch.rand(0, dtype=torch.float64))}
    arguments = (*map(Ref, range(5)), trains, 0.1, 0.5)
    step = Step("op:native_batch_norm", arguments, {"out": (Ref(6), Ref(7), Ref(8))})
    return Program(inputs, [step], "native_batch_norm")


_PLANES = torch.rand(2, 3, 4, 5)
_PIXELS = _PLANES.contiguous(memory_format=torch.channels_last)
_GAPS = torch.rand(4, 6, 8, 10)[::2, ::2, ::2, ::2]


@pytest.mark.parametrize(
    ("x", "out", "is_known"),
    [
        (_PLANES, _PIXELS, True),
        (_PIXELS, _PLANES, True),
        (_PLANES, _PLANES, False),
        (_PIXELS, _PIXELS, False),
    ],
)
def test_a_batch_norm_into_another_memory_format(x, out, is_known):
    program = _batch_norm_into(x, out, trains=True)
    for name in ("t6", "memory of t6", "t7"):
        reason = known.value(program, name, "too far from the float64 reference", ())
        assert bool(reason) == (is_known and name.endswith("t6"))


@pytest.mark.parametrize(
    ("out", "trains", "is_known"),
    [(_GAPS, False, True), (_GAPS, True, False), (_PLANES, False, False)],
)
def test_a_batch_norm_beside_statistics_of_another_dtype(out, trains, is_known):
    program = _batch_norm_into(_PLANES, out, trains)
    mine = RuntimeError("expected scalar type Float but found Double")
    assert bool(known.error(program, mine, None)) == is_known
    assert not known.error(program, mine, ValueError("another"))


@pytest.mark.parametrize("steps", [(), (3,)])
def test_a_gradient_of_a_batch_norm_with_a_strided_weight(steps):
    inputs = {name: Input(torch.rand(2)) for name in range(1, 5)}
    inputs |= {0: Input(torch.rand(1, 2)), 3: Input(torch.rand(2), Layout((0,), steps))}
    step = Step("op:nn.functional.batch_norm", tuple(map(Ref, range(5))), result=5)
    program = Program(inputs, [step, Step("backward", ())], "normalization")
    is_strided = bool(steps)
    for other, is_known in ((0.5, False), (float("nan"), is_strided)):
        reason = f"1 of 2 elements differ in NaN or infinity: 0.4, expected {other}"
        assert bool(known.value(program, "gradient of t0", reason, ())) == is_known


@pytest.mark.parametrize("op", ["mul", "__rmul__"])
def test_a_complex_infinity_times_real_numbers(op):
    reason = "2 of 66 elements differ in NaN or infinity: -inf, expected nan"
    for value, real, is_known in (
        (torch.inf, torch.rand(2), True),
        (1.0, torch.rand(2), False),
        (torch.inf, torch.rand(2, dtype=torch.complex64), False),
    ):
        inputs = {0: Input(torch.full((2,), complex(value, 0))), 1: Input(real)}
        program = Program(inputs, [Step(f"op:{op}", (Ref(0), Ref(1)), result=2)], op)
        assert bool(known.value(program, "t2", reason, ())) == is_known


@pytest.mark.parametrize(("size", "is_known"), [(1e30, True), (1.0, False)])
def test_a_transform_of_a_products_infinite_gradient(size, is_known):
    inputs = {0: Input(torch.full((2, 3), complex(size, 0)), requires_grad=True)}
    steps = [
        Step("fft.hfftn", (Ref(0),), {"dim": (0,)}, 1),
        Step("prod", (Ref(1), 1), result=2),
    ]
    program = Program(inputs, steps, "fourier", backward=True)
    reason = "1 of 6 elements differ in NaN or infinity: nan, expected -inf"
    assert bool(known.value(program, "gradient of t0", reason, ())) == is_known
    assert not known.value(program, "gradient of t0", "too far", ())


@pytest.mark.parametrize(("value", "is_known"), [(torch.inf, True), (1.0, False)])
def test_a_mean_of_a_complex_infinity(value, is_known):
    inputs = {0: Input(torch.full((2, 3), complex(1, value)))}
    program = Program(inputs, [Step("op:mean", (Ref(0), 1), result=1)], "mean")
    reason = "1 of 2 elements differ in NaN or infinity: inf, expected nan"
    assert bool(known.value(program, "t1", reason, ())) == is_known
