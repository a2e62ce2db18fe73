"""Shapes, strides, dtypes and devices of what the device returns are those that
FakeTensorMode says, whatever the layout of the inputs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from conformance.cases import op_name, ops_of_one_dtype
from conformance.layouts import differences, forms_of
from conformance.opinfo import take, tensors
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

_SAMPLES = 3

_GRADIENT = "autograd's formula takes another way for subclasses of tensors"
_ZEROS = "the kernels that ATen shares between devices allocate contiguous memory"
_LAPACK = "LAPACK's results are column by column; torch says row by row"
_COMPOSITION = "ATen composes it of other ops for subclasses of tensors"
_FORMAT = "the kernel keeps channels_last; torch's decomposition does not"
_DENSE = "contiguous or channels_last; torch's decomposition keeps other orders"
_ORDER = "of operands in different orders TensorIterator chooses another one"
# torch's CPU kernel differs from torch's fake kernel too, and the device's does as the
# CPU's.
_AS_ON_CPU = {
    "_batch_norm_with_update": _DENSE,
    "_native_batch_norm_legit": _DENSE,
    "copysign": _ORDER,
    "div:floor_rounding": _ORDER,
    "floor_divide": _ORDER,
    "heaviside": _ORDER,
    "ldexp": _ORDER,
    "linalg.householder_product": _LAPACK,
    "logaddexp": _ORDER,
    "logical_and": _ORDER,
    "logical_or": _ORDER,
    "logical_xor": _ORDER,
    "masked.prod": _GRADIENT,
    "max:reduction_no_dim": _GRADIENT,
    "median": _GRADIENT,
    "min:reduction_no_dim": _GRADIENT,
    "nanmedian": _GRADIENT,
    "native_batch_norm": _DENSE,
    "native_dropout_backward": "the decomposition multiplies in the gradient's order",
    "native_group_norm": "torch.group_norm passes no such layout; the CPU refuses it",
    "nn.functional.batch_norm": _DENSE,
    "nn.functional.channel_shuffle": _FORMAT,
    "nn.functional.cross_entropy": _COMPOSITION,
    "nn.functional.huber_loss": _ZEROS,
    "nn.functional.max_unpool2d": _FORMAT,
    "nn.functional.max_unpool2d:grad": _FORMAT,
    "nn.functional.mse_loss": _ZEROS,
    "nn.functional.nll_loss": "the CPU refuses its gradient in channels_last",
    "nn.functional.one_hot": _COMPOSITION,
    "nn.functional.pad:reflect": _FORMAT,
    "nn.functional.pad:replicate": _FORMAT,
    "nn.functional.smooth_l1_loss": _ZEROS,
    "normal": _ZEROS,
    "ormqr": _LAPACK,
    "prod": _GRADIENT,
}

_SPARSE = "FakeTensorMode has no sparse compressed tensors"
_NOT_COMPARED = {
    "sparse.mm:reduce": _SPARSE,
    "sparse.sampled_addmm": _SPARSE,
    "tensor_split": "wants its indices on the CPU",
}
_HALF_STATISTICS = "statistics are FakeTensorMode's, in float32; the order is the CPU's"
# Of these only one dtype, or one form, is not.
_NOT_COMPARED_IN = {
    "_batch_norm_with_update-torch.float16": _HALF_STATISTICS,
    "_native_batch_norm_legit-torch.float16": _HALF_STATISTICS,
    "native_batch_norm-torch.float16": _HALF_STATISTICS,
    "native_group_norm-torch.float16": "statistics are in float32, as layer_norm's on CUDA:"
    " gradients read them",
    "view_copy-out": "the fake kernel refuses transposed tensors",
}


# What an op takes besides its first dtype: integers, whose results are often floats.
_SECOND = (torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64)


def _cases():
    for op, first in ops_of_one_dtype(_NOT_COMPARED):
        second = (t for t in _SECOND if t in op.dtypes and t != first)
        for dtype in (first, next(second, first)):
            for form in forms_of(op, dtype):
                name = op_name(op)
                if {f"{name}-{dtype}", f"{name}-{form}"} & _NOT_COMPARED_IN.keys():
                    continue
                yield pytest.param(
                    op, dtype, form, dtype != first, id=f"{name}-{dtype}-{form}"
                )


def _samples(op: OpInfo, dtype: torch.dtype, form: str) -> list[SampleInput]:
    wanted = op.supports_autograd and dtype.is_floating_point
    wanted &= form != "out" and (form != "in_place" or op.supports_inplace_autograd)
    return list(op.sample_inputs("cpu", dtype, requires_grad=wanted))


def _is_transposed(tensor: torch.Tensor) -> bool:
    return list(tensor.stride()) != sorted(tensor.stride(), reverse=True)


def _may_be_as_on_cpu(op: OpInfo, is_strict: bool, sample: SampleInput) -> bool:
    if not is_strict:
        return True
    reason = _AS_ON_CPU.get(op_name(op))
    if reason is not _ORDER:
        return reason is not None
    operands = tensors((sample.input, sample.args, sample.kwargs))
    broadcasts = len({operand.shape for operand in operands}) > 1
    return broadcasts and any(_is_transposed(operand) for operand in operands)


@pytest.mark.sampled(300)
@pytest.mark.parametrize("op, dtype, form, is_second", list(_cases()))
def test_op(device, op, dtype, form, is_second):
    samples = take(_samples(op, dtype, form), _SAMPLES, seed=torch.initial_seed())
    # The decompositions make an empty out contiguous, round half values elsewhere, and
    # keep the order of a gradient whose layout is not the result's: the CPU's kernels
    # do not.
    is_strict = form == "in_place" or (form == "function" and not is_second)
    as_cpu = partial(_may_be_as_on_cpu, op, is_strict)
    try:
        found = list(differences(op, device, samples, as_cpu, form))
    except NotImplementedError as error:
        if not is_second:
            raise
        pytest.skip(f"test_unsupported_dtypes knows: {error}")
    assert not found


_OPS = {op_name(op): (op, dtype) for op, dtype in ops_of_one_dtype(())}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", _AS_ON_CPU)
def test_exceptions_are_needed(device, name):
    op, dtype = _OPS[name]
    samples = _samples(op, dtype, "function")
    assert any(differences(op, device, samples, lambda _: False))


def test_names_of_exceptions():
    names = {op_name(op) for op in op_db}
    some = {name.rsplit("-", 1)[0] for name in _NOT_COMPARED_IN}
    assert (_AS_ON_CPU.keys() | _NOT_COMPARED.keys() | some) <= names
