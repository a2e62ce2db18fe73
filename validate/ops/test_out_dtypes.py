"""``out=`` of another dtype than the result: refused or converted as on the CPU."""

from __future__ import annotations

import pytest
import torch

_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
)
_OPS = {
    "mean": lambda x, out: torch.mean(x, 1, out=out),
    "nansum": lambda x, out: torch.nansum(x, 1, out=out),
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "prod": lambda x, out: torch.prod(x, 1, out=out),
    "var": lambda x, out: torch.var(x, 1, out=out),
    "std": lambda x, out: torch.std(x, 1, out=out),
    "norm": lambda x, out: torch.linalg.vector_norm(x, dim=1, out=out),
    "amax": lambda x, out: torch.amax(x, 1, out=out),
    "max": lambda x, out: torch.max(x, out=out),
    "min": lambda x, out: torch.min(x, out=out),
    "argmax": lambda x, out: torch.argmax(x, 1, out=out),
    "all": lambda x, out: torch.all(x, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "cumprod": lambda x, out: torch.cumprod(x, 1, out=out),
    "log_sigmoid": lambda x, out: torch._C._nn.log_sigmoid(x, out=out),
    "add": lambda x, out: torch.add(x, x, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
}
_PAIRS = {
    "mode": lambda x, out: torch.mode(x, 1, out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x, 2, 1, out=out),
    "median": lambda x, out: torch.median(x, 1, out=out),
    "nanmedian": lambda x, out: torch.nanmedian(x, 1, out=out),
    "sort": lambda x, out: torch.sort(x, dim=1, stable=True, out=out),
    "cummax": lambda x, out: torch.cummax(x, 1, out=out),
}


def _outcome(call, x, dtypes, device):
    """What ``call`` writes, or the error that it raises."""
    outs = [torch.empty(0, dtype=dtype, device=device) for dtype in dtypes]
    try:
        call(x.to(device), outs[0] if len(outs) == 1 else tuple(outs))
    except RuntimeError as error:
        return error
    return [out.cpu() for out in outs]


def _check(call, x, dtypes, device):
    expected = _outcome(call, x, dtypes, "cpu")
    found = _outcome(call, x, dtypes, device)
    if "the device has no float64" in str(found):
        raise found
    if isinstance(expected, RuntimeError):
        assert isinstance(found, RuntimeError), (x.dtype, dtypes)
        assert "OpenCL kernel" not in str(found)  # a compiler's log
        return found
    if isinstance(found, RuntimeError):
        raise found
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("name", _OPS)
def test_one_output(device, name, dtype):
    # Quarters, whose products of three are exact in half precision.
    x = torch.randint(1, 8, (5, 3)) / (4 if dtype.is_floating_point else 1)
    x = x.to(dtype)
    for out in _DTYPES:
        _check(_OPS[name], x, [out], device)


_WRAPPING = {
    "add": torch.add,
    "sub": lambda x, y, out: torch.sub(x, y, alpha=3, out=out),
    "mul": torch.mul,
    "square": lambda x, y, out: torch.square(x, out=out),
    "addcmul": lambda x, y, out: torch.addcmul(x, x, y, out=out),
    "pow": lambda x, y, out: torch.pow(x, 3, out=out),
    "bitwise_left_shift": lambda x, y, out: torch.bitwise_left_shift(x, 3, out=out),
    "add of a number": lambda x, y, out: torch.add(x, 100, alpha=7, out=out),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("name", _WRAPPING)
def test_integers_wrap_around_in_their_own_dtype(device, name, dtype):
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min, limits.max, (7, 13)).to(dtype)
    x[0, :3] = torch.tensor([limits.min, limits.max, 0])
    y = x.flip(1)
    for wanted in (torch.int64, torch.float32, torch.float16, torch.int32):
        expected = _WRAPPING[name](x, y, out=torch.empty(7, 13, dtype=wanted))
        out = torch.empty(7, 13, dtype=wanted, device=device)
        result = _WRAPPING[name](x.to(device), y.to(device), out=out)
        assert torch.equal(result.cpu(), expected)


_OF_BOOLS = {
    "add": torch.add,
    "add of a number": lambda x, y, out: torch.add(x, True, out=out),
    "mul": torch.mul,
    "maximum": torch.maximum,
    "bitwise_or": torch.bitwise_or,
}


@pytest.mark.parametrize("name", _OF_BOOLS)
def test_bools_are_zero_and_one_in_any_output(device, name):
    x, y = torch.rand(2, 7, 13) < 0.6
    for wanted in (torch.uint8, torch.int64, torch.float16, torch.float32):
        expected = _OF_BOOLS[name](x, y, out=torch.empty(7, 13, dtype=wanted))
        for there in (x.to(device), x.t().contiguous().to(device).t()):
            out = torch.empty(7, 13, dtype=wanted, device=device)
            _OF_BOOLS[name](there, y.to(device), out=out)
            assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("name", _PAIRS)
def test_values_and_indices(device, name):
    x = torch.stack([torch.randperm(7) for _ in range(5)]).to(torch.int32)
    for values in (torch.float32, torch.int32, torch.uint8):
        for indices in (torch.int64, torch.int32):
            _check(_PAIRS[name], x, [values, indices], device)


def test_texts(device):
    x = torch.rand(5, 7)
    for name, dtypes, text in (
        ("mode", [torch.uint8, torch.int64], "expected scalar type 'Float' but got"),
        ("kthvalue", [torch.uint8, torch.int64], "output values must be of same type"),
        ("median", [torch.float32, torch.int32], "argument #1 'indices' to have scala"),
    ):
        assert text in str(_check(_PAIRS[name], x, dtypes, device))
    for name, dtype, text in (
        ("mean", torch.int32, "not implemented for 'Int'"),
        ("cumsum", torch.bool, "not implemented for 'Bool'"),
        ("var", torch.complex64, "not implemented for 'ComplexFloat'"),
        ("max", torch.int64, "Float can't be cast to the desired output type Long"),
    ):
        assert text in str(_check(_OPS[name], x, [dtype], device))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(device, training):
    x, ones = torch.rand(5, 3, 4), torch.ones(3)
    for which in range(3):
        dtypes = [torch.float32] * 3
        dtypes[which] = torch.float64

        def call(x, out):
            statistics = [ones.to(x.device) for _ in range(4)]
            torch.native_batch_norm(x, *statistics, training, 0.1, 1e-5, out=out)

        text = "expected scalar type Float but found Double"
        assert text in str(_check(call, x, dtypes, device))
