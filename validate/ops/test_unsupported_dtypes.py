"""What an op does not take is refused in torch's words before a kernel is built."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch_opencl
from conformance import dtypes, refusals
from conformance.cases import op_name
from torch.testing._internal.common_methods_invocations import op_db

_LEFT_OUT = ("jiterator", "tensor_split")  # CUDA's only; wants its indices on the CPU
_OPS = {
    op_name(op): op
    for op in op_db
    if not op.name.startswith(_LEFT_OUT) and op.supported_dtypes("cpu")
}

_CALLS = {
    "kthvalue": lambda x: x.kthvalue(1),
    "median": lambda x: x.median(),
    "median of rows": lambda x: x.median(0),
    "nanmedian": lambda x: x.nanmedian(),
    "mode": lambda x: x.mode(),
    "unique": lambda x: x.unique(),
    "unique rows": lambda x: x[:, None].unique(dim=0),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "unique_consecutive rows": lambda x: x[:, None].unique_consecutive(dim=0),
    "searchsorted": lambda x: torch.searchsorted(x, x),
    "bucketize": lambda x: torch.bucketize(x, x),
    "logsigmoid": F.logsigmoid,
    "logsigmoid backward": lambda x: torch.ops.aten.log_sigmoid_backward(x, x, x),
    "bincount": torch.bincount,
    "log_normal_": lambda x: x.log_normal_(),
    "geometric_": lambda x: x.geometric_(0.5),
    "exponential_": lambda x: x.exponential_(),
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "random_": lambda x: x.random_(),
}
_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", _COMPLEX)
@pytest.mark.parametrize("name", _CALLS)
def test_complex_numbers_are_refused_as_on_the_cpu(device, name, dtype):
    with pytest.raises(Exception) as expected:
        _CALLS[name](torch.ones(4, dtype=dtype))
    x = torch.ones(4, dtype=dtype, device=device)
    torch.opencl.synchronize(device)
    before = torch_opencl._C._program_cache_stats(device.index)
    with pytest.raises(expected.type) as raised:
        _CALLS[name](x)
    assert str(raised.value).split("\n")[0] == str(expected.value).split("\n")[0]
    assert torch_opencl._C._program_cache_stats(device.index) == before


@pytest.mark.parametrize("name", ["normal_", "log_normal_", "exponential_", "cauchy_"])
def test_integers_have_no_continuous_distribution(device, name):
    x = torch.zeros(4, dtype=torch.int32)
    with pytest.raises((NotImplementedError, RuntimeError)) as expected:
        getattr(x, name)()
    with pytest.raises(expected.type):
        getattr(x.to(device), name)()


@pytest.mark.sampled(120)
@pytest.mark.parametrize("name", _OPS)
def test_every_dtype(device, name):
    needed = set()
    for dtype in dtypes.DTYPES:
        needed |= dtypes.check(_OPS[name], dtype, device, seed=0)
    unneeded = refusals.unneeded(name, needed)
    if not torch.opencl.get_device_properties(device).has_fp64:
        unneeded = {x for x in unneeded if x[1] != torch.complex128}
    assert not unneeded, f"no longer needed: {unneeded}"


@pytest.mark.parametrize("rule", refusals.of_every_op(), ids=lambda rule: rule.example)
def test_every_rule_is_needed(device, rule):
    op = _OPS[rule.example]
    for dtype in rule.dtypes or dtypes.DTYPES:
        if (rule, dtype) in dtypes.check(op, dtype, device, seed=0):
            return
    pytest.fail(f"no longer needed: {rule.reason}")


@pytest.mark.parametrize("first", [torch.float32, torch.float64])
def test_cdist_of_two_dtypes(device, first):
    second = torch.float64 if first == torch.float32 else torch.float32
    x, y = torch.ones(3, 2, dtype=first), torch.ones(4, 2, dtype=second)
    for p in (0.0, 1.0, 2.0, 3.0):
        with pytest.raises(RuntimeError) as expected:
            torch.cdist(x, y, p)
        with pytest.raises(RuntimeError) as raised:
            torch.cdist(x.to(device), y.to(device), p)
        assert str(raised.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_native_dropout_backward_of_integers(device):
    grad = torch.arange(8, dtype=torch.uint8)
    mask = torch.arange(8) % 3 == 0
    expected = torch.ops.aten.native_dropout_backward(grad, mask, 1.5)
    result = torch.ops.aten.native_dropout_backward(
        grad.to(device), mask.to(device), 1.5
    )
    torch.testing.assert_close(result.cpu(), expected)


_MIXED = {
    "addbmm": lambda x: torch.addbmm(x.double(), x[None], x[None]),
    "addbmm of integers": lambda x: torch.addbmm(x.char(), x.int()[None], x[None]),
    "addbmm out": lambda x: torch.addbmm(x, x[None], x[None], out=x.double()),
    "batch norm's statistics": lambda x: torch.native_batch_norm(
        x, None, None, None, None, True, 0.1, 1e-5,
        out=(x.clone(), x[0].char(), x[0].char()),
    ),
    "index_put of integers": lambda x: x.index_put_(
        (torch.tensor([0], device=x.device),), x[0].long(), accumulate=True
    ),
    "index_put of float64": lambda x: x.index_put_(
        (torch.tensor([0], device=x.device),), x[0].double(), accumulate=True
    ),
    "dropout of integers": lambda x: F.dropout(x.int()),
    "dropout of bool": lambda x: torch.native_dropout(x.bool(), 0.5, True),
    "masked_fill of complex": lambda x: x.masked_fill(x > 0, x[0, 0] * 2j),
    "masked_fill beyond uint8": lambda x: x.byte().masked_fill(x > 0, x.int()[0, 0] * 300),
    "addr": lambda x: torch.addr(x.long(), x[0], x[0], out=x.long()),
    "index_put by floats": lambda x: x.index_put_((x[0],), x[0], accumulate=True),
    "softmax backward": lambda x: torch._softmax_backward_data(
        x.half(), x, 1, torch.float32
    ),
    "log_softmax backward": lambda x: torch._log_softmax_backward_data(
        x.double(), x, 1, torch.float32
    ),
    "threshold of uint8": lambda x: F.threshold(x.byte(), 1, -8.5),
    "cdist of a negative norm": lambda x: torch.cdist(x, x, -1.0),
    "logcumsumexp of a dimension": lambda x: x.sum().logcumsumexp(2),
    "xor of half types": lambda x: x.bfloat16() ^ x.char(),
    "lcm of half types": lambda x: torch.lcm(x.half(), x.char()),
}  # fmt: skip


@pytest.mark.parametrize("name", _MIXED)
def test_dtypes_that_do_not_go_together(device, name):
    with pytest.raises(Exception) as expected:
        _MIXED[name](torch.ones(2, 2))
    with pytest.raises(expected.type) as raised:
        _MIXED[name](torch.ones(2, 2, device=device))
    words = str(expected.value).split("\n")[0].replace("_cpu", "")
    assert str(raised.value).split("\n")[0] == words
