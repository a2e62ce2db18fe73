"""Ops on torch's own samples, against the CPU: every op of the op tables, and
those with a kernel of their own that samples can judge.

An ordinary run takes every op forward in float32. The run's seed picks the rest: a
few samples an op, one other dtype, and which ops also get gradients,
non-contiguous inputs, out= and in place. --full takes everything.
"""

from __future__ import annotations

import zlib

import pytest
import torch
from conformance import judge, opinfo
from conftest import run_seed
from torch.testing._internal.common_methods_invocations import op_db

_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.bool,
)
_SAMPLES = 5

# A pass over one op compiles its kernels anew, which is what takes the time: an
# ordinary run passes over one in this many, beyond float32.
_SHARE = 8
_SHARE_OF_GRADIENTS = 3
_SHARE_OF_GPU_CLASS = 8

# By the shares above.
pytestmark = pytest.mark.sampled(1)

# Kernels of their own; files named after a family have what samples do not know.
_KERNELS = (
    "__getitem__",
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "cat",
    "cumprod",
    "cumsum",
    "dot",
    "fill",
    "flip",
    "gather",
    "index_add",
    "index_copy",
    "index_put",
    "index_select",
    "masked_select",
    "max",
    "min",
    "mm",
    "mv",
    "nonzero",
    "roll",
    "scatter_add",
    "sum",
    "tril",
    "triu",
)


def _ops() -> dict[str, opinfo.OpInfo]:
    """Test id -> OpInfo of every entry of the op tables and of _KERNELS."""
    declared = {entry["opinfo"] for entry in opinfo.op_table()} | set(_KERNELS)
    missing = declared - {op.name for op in op_db}
    assert not missing, f"no OpInfo for {missing}"
    return {
        op.name + (f"-{op.variant_test_name}" if op.variant_test_name else ""): op
        for op in op_db
        if op.name in declared
    }


def _picked(test: str, name: str, dtype: torch.dtype, share: int) -> bool:
    return zlib.crc32(f"{run_seed()} {test} {name} {dtype}".encode()) % share == 0


def _dtypes(test: str, name: str, op, config: pytest.Config) -> list[torch.dtype]:
    supported = [d for d in _DTYPES if d in op.supported_dtypes("cpu")]
    if config.getoption("full"):
        return supported
    gpu_class = config.getoption("gpu_class")
    share = _SHARE_OF_GPU_CLASS if gpu_class else _SHARE
    others = [d for d in supported if d != torch.float32]
    pick = zlib.crc32(f"{run_seed()} {name}".encode())
    candidates = [d for d in supported if d == torch.float32]
    candidates += [others[pick % len(others)]] if others else []
    always = {torch.float32} if test == "test_forward" and not gpu_class else set()
    return [d for d in candidates if d in always or _picked(test, name, d, share)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "op" not in metafunc.fixturenames:
        return
    test, config = metafunc.function.__name__, metafunc.config
    if "dtype" in metafunc.fixturenames:
        cases = [
            pytest.param(op, dtype, id=f"{name}-{str(dtype)[6:]}")
            for name, op in _ops().items()
            for dtype in _dtypes(test, name, op, config)
        ]
        metafunc.parametrize(("op", "dtype"), cases)
    else:
        share = _SHARE_OF_GRADIENTS if test == "test_gradient" else 1
        if config.getoption("gpu_class"):
            share = _SHARE_OF_GPU_CLASS
        cases = [
            pytest.param(op, id=name)
            for name, op in _ops().items()
            if config.getoption("full") or _picked(test, name, torch.float32, share)
        ]
        metafunc.parametrize("op", cases)


@pytest.fixture
def limit(pytestconfig: pytest.Config) -> int | None:
    return None if pytestconfig.getoption("full") else _SAMPLES


def test_forward(device, op, dtype, limit):
    _ask(judge.forward, op, dtype, device, limit)


def test_noncontiguous(device, op, dtype, limit):
    _ask(judge.noncontiguous, op, dtype, device, limit)


def test_out_and_in_place(device, op, dtype, limit):
    _ask(judge.out, op, dtype, device, limit)
    _ask(judge.in_place, op, dtype, device, limit)


def test_gradient(device, op, limit):
    if not op.supports_autograd or torch.float32 not in op.supported_backward_dtypes(
        "cpu"
    ):
        pytest.skip("has no gradient")
    _ask(judge.gradient, op, torch.float32, device, limit, requires_grad=True)


@pytest.mark.sampled(6)
def test_error_inputs(device, op):
    if op.error_inputs_func is None:
        pytest.skip("has no error inputs")
    judge.errors(op, device)


def _ask(question, op, dtype, device, limit, requires_grad=False) -> None:
    reason = judge.exemption(op, question.__name__, dtype, device)
    if reason:
        pytest.skip(reason)
    seed = run_seed()
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    question(op, device, opinfo.take(samples, limit, seed), seed)
