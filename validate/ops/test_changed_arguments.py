"""One argument of another dtype, shape or value: the CPU's result or an error."""

from __future__ import annotations

import pytest
import torch
from conformance import arguments
from conformance.cases import op_name
from conformance.opinfo import take
from torch.testing._internal.common_methods_invocations import op_db

_SAMPLES = 4
_CHANGES = 14
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
_LEFT_OUT = ("jiterator", "tensor_split")  # CUDA's only; wants its indices on the CPU
_RANDOM = (
    "bernoulli", "cauchy", "dropout", "empty", "exponential", "geometric",
    "log_normal", "multinomial", "new_empty", "normal", "rand", "rrelu", "uniform",
)  # fmt: skip


def _cases():
    for op in op_db:
        dtype = next((dtype for dtype in _DTYPES if dtype in op.dtypes), None)
        if dtype is not None and not op.name.startswith(_LEFT_OUT):
            yield pytest.param(op, dtype, id=op_name(op))


@pytest.mark.sampled(120)
@pytest.mark.parametrize("op, dtype", list(_cases()))
def test_op(device, op, dtype):
    seed = torch.initial_seed()
    values = not any(name in op.name for name in _RANDOM)
    differences = [
        f"{what}\n    {difference}"
        for sample in take(op.sample_inputs("cpu", dtype), _SAMPLES, seed=seed)
        for what, given in arguments.changed(sample, _CHANGES, seed)
        if (difference := arguments.difference(op, given, device, values))
    ]
    assert not differences, "\n".join(differences)
