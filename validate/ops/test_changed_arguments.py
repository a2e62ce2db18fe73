"""One argument of another dtype, shape or value: the CPU's result or an error."""

from __future__ import annotations

import pytest
import torch
from conformance import arguments
from conformance.cases import op_name, ops_of_one_dtype
from conformance.opinfo import take
from torch.testing._internal.common_methods_invocations import op_db

_SAMPLES = 4
_CHANGES = 14

_CPU_READS_ON = "the CPU reads, or writes, behind what it was given"
_CPU_BY_LIBRARY = "on the CPU it depends on the library that is taken"
_FLOAT_STATISTICS = "as on CUDA, statistics of half types are float32"
_UINT8_CLASSES = "classes of uint8 are taken, and empty parts are not multiplied"
_PROMOTED = "operands are promoted, as those of other ops"
_NOT_ASKED = {
    "_batch_norm_with_update": _CPU_READS_ON,
    "_native_batch_norm_legit": _CPU_READS_ON,
    "_segment_reduce:lengths": _CPU_READS_ON,
    "_segment_reduce:offsets": _CPU_READS_ON,
    "addmv": "the CPU loses the dimension of a sum with no terms",
    "cross": _PROMOTED,
    "grid_sampler_2d": "modes that are none raise",
    "grid_sampler_3d": "modes that are none raise",
    "histc": "the CPU has no integers, and converts bounds all the same",
    "index_fill": "indices of int32 are taken",
    "linalg.cross": _PROMOTED,
    "linalg.pinv:singular": "products with no terms are not checked on the CPU",
    "lu_unpack": _CPU_READS_ON,
    "native_batch_norm": _CPU_READS_ON,
    "native_group_norm": _FLOAT_STATISTICS,
    "native_layer_norm": _FLOAT_STATISTICS,
    "native_dropout_backward": "as on CUDA the mask is bool",
    "nn.functional.conv1d": _CPU_BY_LIBRARY,
    "nn.functional.conv2d": _CPU_BY_LIBRARY,
    "nn.functional.conv3d": _CPU_BY_LIBRARY,
    "nn.functional.conv_transpose1d": _CPU_BY_LIBRARY,
    "nn.functional.conv_transpose2d": _CPU_BY_LIBRARY,
    "nn.functional.conv_transpose3d": _CPU_BY_LIBRARY,
    "nn.functional.ctc_loss": _CPU_READS_ON,
    "nn.functional.embedding_bag": "offsets that decrease end bags at once",
    "nn.functional.linear_cross_entropy": _UINT8_CLASSES,
    "nn.functional.linear_cross_entropy:chunked": _UINT8_CLASSES,
    "nn.functional.linear_cross_entropy:chunked_none": _UINT8_CLASSES,
    "nn.functional.pixel_unshuffle": "the CPU leaves empty images as they are",
    "sparse.mm:reduce": "a missing op",
    "tensor_split": "wants its indices on the CPU",
}
# Random, uninitialised, or equal elements in any order.
_ANY_VALUES = (
    "argsort", "bernoulli", "cauchy", "dropout", "empty", "exponential", "fractional",
    "geometric", "kthvalue", "log_normal", "lowrank", "median", "mode", "multi_head",
    "multinomial", "normal", "rand", "resize", "rrelu", "scaled_dot", "sort", "topk",
    "uniform",
)  # fmt: skip
# Of integers and doubles that a sample has not: the CPU is inexact (bessel of float64,
# trigamma at 0), or rounding hides small elements beside large ones, or overflows.
_ANY_PRECISION = (
    "airy", "bessel", "fft", "interpolate", "logit", "matrix_power", "polygamma",
    "polynomial", "upsample", "zeta",
)  # fmt: skip


_CASES = list(ops_of_one_dtype(_NOT_ASKED))


@pytest.mark.sampled(120)
@pytest.mark.parametrize("op, dtype", _CASES, ids=[op_name(op) for op, _ in _CASES])
def test_op(device, op, dtype):
    seed = torch.initial_seed()
    values = not any(name in op.name for name in _ANY_VALUES + _ANY_PRECISION)
    differences = [
        f"{what}\n    {difference}"
        for sample in take(op.sample_inputs("cpu", dtype), _SAMPLES, seed=seed)
        for what, given in arguments.changed(sample, _CHANGES, seed)
        if (difference := arguments.difference(op, given, device, values))
    ]
    assert not differences, "\n".join(differences)


def test_names_of_exceptions():
    assert _NOT_ASKED.keys() <= {op_name(op) for op in op_db}
