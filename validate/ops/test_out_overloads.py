"""``out=`` of another dtype than the result, of every overload: refused or converted as
on the CPU."""

from __future__ import annotations

import pytest
import torch
from conformance import outputs
from conformance.cases import op_name, ops_of_one_dtype
from conformance.opinfo import take
from torch.testing._internal.common_methods_invocations import op_db

_SAMPLES = 6
# Random, uninitialised, or equal elements in any order.
_ANY_VALUES = (
    "bernoulli", "dropout", "empty", "fractional", "lowrank", "median", "mode",
    "multinomial", "normal", "rand", "rrelu", "sort", "topk",
)  # fmt: skip
_NOT_ASKED = {
    "nn.functional.gelu": "the CPU's library refuses a gradient of float64",
    "__rpow__": "sums that no int32 holds",
}
_CASES = list(ops_of_one_dtype(_NOT_ASKED))
# Their overloads check dtypes themselves, and no meta function does.
_WITHOUT_META = (
    "nn.functional.adaptive_avg_pool3d", "nn.functional.cross_entropy",
    "nn.functional.binary_cross_entropy", "nn.functional.max_pool3d",
    "nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss",
    "nn.functional.pad:reflect", "nn.functional.pad:replicate",
    "nn.functional.rrelu", "nn.functional.unfold",
)  # fmt: skip


@pytest.mark.sampled(20)
@pytest.mark.parametrize("op, dtype", _CASES, ids=[op_name(op) for op, _ in _CASES])
def test_op(device, op, dtype):
    requires_grad = op.supports_autograd and dtype.is_floating_point
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    values = not any(name in op.name for name in _ANY_VALUES)
    picked = take(samples, _SAMPLES, seed=torch.initial_seed())
    found = list(outputs.differences(op, picked, device, values))
    assert not found, "\n".join(found)


def test_ops_without_meta(device):
    for op, dtype in _CASES:
        if op_name(op) in _WITHOUT_META:
            test_op(device, op, dtype)


def test_names_of_exceptions():
    assert {*_NOT_ASKED, *_WITHOUT_META} <= {op_name(op) for op in op_db}
