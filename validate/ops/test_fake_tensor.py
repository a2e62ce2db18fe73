"""Shapes, strides, dtypes and devices of what the device returns are those that
FakeTensorMode says, whatever the layout of the inputs."""

from __future__ import annotations

import pytest
import torch
from conformance.cases import op_name, ops_of_one_dtype
from conformance.layouts import differences
from conformance.opinfo import take
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo

_SAMPLES = 3

_GRADIENT = "autograd's formula takes another way for subclasses of tensors"
_ZEROS = "the kernels that ATen shares between devices allocate contiguous memory"
_LAPACK = "LAPACK's results are column by column; torch says row by row"
_COMPOSITION = "ATen composes it of other ops for subclasses of tensors"
_FORMAT = "the kernel keeps channels_last; torch's decomposition does not"
_DENSE = "contiguous or channels_last; torch's decomposition keeps other orders"
# torch's CPU kernel differs from torch's fake kernel too, and the device's does as the
# CPU's.
_AS_ON_CPU = {
    "_batch_norm_with_update": _DENSE,
    "_native_batch_norm_legit": _DENSE,
    "linalg.householder_product": _LAPACK,
    "masked.prod": _GRADIENT,
    "max:reduction_no_dim": _GRADIENT,
    "median": _GRADIENT,
    "min:reduction_no_dim": _GRADIENT,
    "nanmedian": _GRADIENT,
    "native_batch_norm": _DENSE,
    "native_dropout_backward": "the decomposition multiplies in the gradient's order",
    "native_group_norm": "torch.group_norm passes no such layout; the CPU refuses it",
    "nn.functional.batch_norm": _DENSE,
    "nn.functional.binary_cross_entropy_with_logits": _COMPOSITION,
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


_CASES = list(ops_of_one_dtype(_NOT_COMPARED))


@pytest.mark.sampled(120)
@pytest.mark.parametrize("op, dtype", _CASES, ids=[op_name(op) for op, _ in _CASES])
def test_op(device, op, dtype):
    wanted = op.supports_autograd and dtype.is_floating_point
    samples = op.sample_inputs("cpu", dtype, requires_grad=wanted)
    samples = take(samples, _SAMPLES, seed=torch.initial_seed())
    # Of operands in different orders torch's decompositions choose another one than
    # TensorIterator.
    as_cpu = isinstance(op, BinaryUfuncInfo) or op_name(op) in _AS_ON_CPU
    assert not list(differences(op, device, samples, as_cpu))


def test_names_of_exceptions():
    names = {op_name(op) for op in op_db}
    assert (_AS_ON_CPU.keys() | _NOT_COMPARED.keys()) <= names
