"""Ops on torch's own samples, against the CPU: every op of the op tables, and
those with a kernel of their own that samples can judge.

An ordinary run takes every op in float32, forward and gradient. The run's seed
picks the rest: a few samples an op, one other dtype, and which ops also get
non-contiguous inputs, out= and in place. --full takes everything.
"""

from __future__ import annotations

import re
import zlib
from functools import partial

import opinfo
import pytest
import torch
from conftest import run_seed
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

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
_SHARE = 4
_SHARE_OF_GPU_CLASS = 8

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
    "tril",
    "triu",
)

_BESSEL_REASON = "torch's CPU is 4e-7 off beyond 5; test_math.py judges these by mpmath"
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

# op and dtypes: why the device differs from the CPU.
_EXCEPTIONS = {
    ("polygamma", _INTEGERS): "the CPU's value at a pole is what rounding leaves of "
    "infinity",
    ("special.bessel_j0", (torch.float64,)): _BESSEL_REASON,
    ("special.bessel_j1", (torch.float64,)): _BESSEL_REASON,
    ("special.bessel_y0", (torch.float64,)): _BESSEL_REASON,
    ("special.bessel_y1", (torch.float64,)): _BESSEL_REASON,
}


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
        share = _SHARE_OF_GPU_CLASS if config.getoption("gpu_class") else 1
        cases = [
            pytest.param(op, id=name)
            for name, op in _ops().items()
            if config.getoption("full") or _picked(test, name, torch.float32, share)
        ]
        metafunc.parametrize("op", cases)


@pytest.fixture
def limit(pytestconfig: pytest.Config) -> int | None:
    return None if pytestconfig.getoption("full") else _SAMPLES


def _skip_exceptions(device: torch.device, op, dtype: torch.dtype) -> None:
    for (name, dtypes), reason in _EXCEPTIONS.items():
        if op.name == name and dtype in dtypes:
            pytest.skip(reason)
    if dtype is torch.float64 and device.type == "opencl":
        properties = torch.opencl.get_device_properties(device)
        if not properties.has_fp64:
            pytest.skip(f"{properties.name} has no float64")


def _samples(op, dtype, limit, requires_grad=False):
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    return opinfo.take(samples, limit, run_seed())


def _check(op, function, sample, device, strides=False) -> None:
    """``function`` gives on the device what it gives on the CPU."""
    on_device = opinfo.to_device(sample, device)
    try:
        expected = opinfo.call(function, opinfo.map_sample(sample, _clone))
    except Exception as error:
        opinfo.same_error(function, on_device, error)
        return
    result = opinfo.call(function, on_device)
    opinfo.assert_result(
        result,
        expected,
        lambda: opinfo.call(function, opinfo.to_double(sample)),
        strides=strides,
    )


def _clone(value):
    return value.clone() if torch.is_tensor(value) else value


def _for_each(samples, check) -> None:
    """Runs every sample, then fails with all that went wrong."""
    failures = []
    for index, sample in enumerate(samples):
        try:
            check(sample)
        except Exception as error:
            text = str(error).strip().split("\n\nException raised from")[0]
            failures.append(
                f"sample {index}, {opinfo.describe(sample)}:\n"
                f"  {type(error).__name__}: {text}"
            )
    if failures:
        pytest.fail(
            f"{len(failures)} samples failed\n" + "\n".join(failures[:4]), pytrace=False
        )


def test_forward(device, op, dtype, limit):
    _skip_exceptions(device, op, dtype)
    samples = _samples(op, dtype, limit)
    _for_each(samples, lambda sample: _check(op, op, sample, device))


def test_noncontiguous(device, op, dtype, limit):
    _skip_exceptions(device, op, dtype)

    def check(sample):
        expected = opinfo.call(op, opinfo.map_sample(sample, _clone))
        strided = opinfo.noncontiguous(opinfo.to_device(sample, device))
        opinfo.assert_result(
            opinfo.call(op, strided),
            expected,
            lambda: opinfo.call(op, opinfo.to_double(sample)),
        )

    _for_each(_samples(op, dtype, limit), check)


def test_out_and_in_place(device, op, dtype, limit):
    _skip_exceptions(device, op, dtype)
    in_place = op.get_inplace()

    def check(sample):
        if in_place is not None and not sample.broadcasts_input:
            _check(op, in_place, opinfo.map_sample(sample, _clone), device)
        # nonzero takes no out when it shall give a tuple.
        if not op.supports_out or sample.kwargs.get("as_tuple"):
            return
        expected = opinfo.call(op, sample)
        for make in (_poisoned, _empty):
            out = tree_map(partial(make, device), expected)
            on_device = opinfo.to_device(sample, device)
            returned = op(on_device.input, *on_device.args, **on_device.kwargs, out=out)
            for ours, given in zip(
                opinfo.tensors(returned), opinfo.tensors(out), strict=True
            ):
                assert ours is given or ours.data_ptr() == given.data_ptr()
            opinfo.assert_result(
                returned,
                expected,
                lambda: opinfo.call(op, opinfo.to_double(sample)),
            )

    _for_each(_samples(op, dtype, limit), check)


def _poisoned(device, tensor):
    """Same shape, full of values that no op may leave behind."""
    if not torch.is_tensor(tensor):
        return tensor
    poisoned = torch.empty_like(tensor)
    poisoned.fill_(float("nan") if tensor.is_floating_point() else 1)
    return poisoned.to(device)


def _empty(device, tensor):
    if not torch.is_tensor(tensor):
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=device)


def test_gradient(device, op, limit):
    if not op.supports_autograd or torch.float32 not in op.supported_backward_dtypes(
        "cpu"
    ):
        pytest.skip("has no gradient")

    def check(sample):
        seed = run_seed()
        expected = opinfo.gradients(op, sample, seed)
        result = opinfo.gradients(op, opinfo.to_device(sample, device), seed)
        opinfo.assert_result(
            result,
            expected,
            lambda: opinfo.gradients(op, opinfo.to_double(sample), seed),
        )

    _for_each(_samples(op, torch.float32, limit, requires_grad=True), check)


def test_error_inputs(device, op):
    if op.error_inputs_func is None:
        pytest.skip("has no error inputs")
    if op.name in _KERNELS:
        pytest.skip("tensors that share memory no longer do so when moved")
    failures = []
    for case in op.error_inputs("cpu"):
        try:
            opinfo.call(op, case.sample_input)
        except Exception:
            pass
        else:
            continue
        sample = opinfo.to_device(case.sample_input, device)
        pattern = case.error_regex.replace("cpu", "(cpu|opencl:[0-9]+)")
        try:
            opinfo.call(op, sample)
        except case.error_type as error:
            if not re.search(pattern, str(error)):
                failures.append(f"{error}\n  does not match {pattern}")
        except Exception as error:
            failures.append(f"{error!r}, expected {case.error_type}")
        else:
            failures.append(f"no {case.error_type.__name__}: {opinfo.describe(sample)}")
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
