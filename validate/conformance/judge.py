"""What is asked of an op, on torch's own samples: one function a question.

A question takes op, dtype, device and samples, and raises AssertionError with
all that went wrong. Results are compared with the CPU; those of random ops and
of ops that leave memory uninitialised only in kind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from functools import partial

import torch
from conformance import opinfo
from conformance.layouts import LAYOUTS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
_SHOWN = 4
_LAYOUTS_OF_OUT = ("contiguous", "channels_last", "transposed", "strided", "offset")

# Indices are IndexErrors in the words of x[i], whatever the CPU's op calls them.
_VALUE_OF_AN_INDEX = re.compile(r"\bindex\b.*\bout of (range|bounds)")
_REPORTED_INDEX = re.compile(r"index -?\d+ is out of bounds for dimension \d+")

_BESSEL = "torch's CPU is 4e-7 off beyond 5; test_math.py judges these by mpmath"
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
_BYTES = "the CPU rounds weights to integers: test_upsample.py allows one level"
_COARSE = (
    torch.float16,
    torch.bfloat16,
    torch.bool,
    *_INTEGERS,
)
_TIES = "the CPU picks any of equal elements; test_sorting.py wants the first"
_JITERATOR = "writes CUDA kernels"

# Op, question and dtypes (None: all of them): why the CPU is no reference.
_EXEMPTIONS = (
    ("polygamma", None, _INTEGERS, "the CPU's poles are what rounding leaves of inf"),
    ("special.bessel_j0", None, (torch.float64,), _BESSEL),
    ("special.bessel_j1", None, (torch.float64,), _BESSEL),
    ("special.bessel_y0", None, (torch.float64,), _BESSEL),
    ("special.bessel_y1", None, (torch.float64,), _BESSEL),
    ("nn.functional.interpolate", None, (torch.uint8,), _BYTES),
    ("nn.functional.upsample_bilinear", None, (torch.uint8,), _BYTES),
    ("_upsample_bilinear2d_aa", None, (torch.uint8,), _BYTES),
    ("sort", None, _COARSE, _TIES),
    ("argsort", None, _COARSE, _TIES),
    ("msort", "gradient", _COARSE, _TIES),
    ("topk", None, _COARSE, _TIES),
    ("kthvalue", None, _COARSE, _TIES),
    ("mode", None, _COARSE, _TIES),
    ("fft.ihfft2", "out", None, "torch leaves out as it was"),
    ("fft.ihfftn", "out", None, "torch leaves out as it was"),
    ("native_group_norm", "noncontiguous", None, "the CPU wants contiguous input"),
    ("histogramdd", "out", None, "gives a list, and takes its outs one by one"),
    ("equal", "out", None, "has no out, whatever the database says"),
    ("_batch_norm_with_update", "out", None, "takes its outs one by one"),
    ("tensor_split", None, None, "wants its indices on the CPU"),
    ("jiterator_unary", None, None, _JITERATOR),
    ("jiterator_binary", None, None, _JITERATOR),
    ("jiterator_4inputs_with_extra_args", None, None, _JITERATOR),
    ("jiterator_binary_return_by_ref", None, None, _JITERATOR),
    ("jiterator_2inputs_2outputs", None, None, _JITERATOR),
)


def exemption(op, question: str, dtype: torch.dtype, device: torch.device) -> str:
    """Why the CPU's result is no reference here; empty where it is."""
    for name, only, dtypes, reason in _EXEMPTIONS:
        applies = only in (None, question) and (dtypes is None or dtype in dtypes)
        if op.name == name and applies:
            return reason
    if dtype in (torch.float64, torch.complex128) and device.type == "opencl":
        properties = torch.opencl.get_device_properties(device)
        if not properties.has_fp64:
            return f"{properties.name} has no float64"
    return ""


def forward(op, device, samples, seed) -> None:
    """The value, and its strides."""
    _for_each(samples, lambda sample: _check(op, op, sample, device, seed, True))


def compiled(op, device, samples, seed, dynamic: bool | None = None) -> None:
    """Inductor's kernels, called as the op is; of sizes unknown to them if dynamic."""

    def check(sample):
        expected, arbitrary = _on_cpu(op, op.op, sample)
        on_device = opinfo.to_device(sample, device)
        result = _through_compile(
            op,
            sample,
            lambda function, given: opinfo.call(function, given),
            on_device,
            dynamic,
        )
        if result is _NOT_TRACED:
            return
        if arbitrary:
            for mine, cpu in zip(
                opinfo.tensors(result), opinfo.tensors(expected), strict=True
            ):
                assert (mine.shape, mine.dtype) == (cpu.shape, cpu.dtype)
            return
        _assert_result(op, result, expected, sample)

    _for_each(samples, check)


def compiled_gradient(op, device, samples, seed, dynamic: bool | None = None) -> None:
    """Inductor's kernels of the backward graph."""

    def check(sample):
        with Draws() as draws:
            expected = opinfo.gradients(op.op, sample, seed)
        if draws.seen:
            return
        result = _through_compile(
            op,
            sample,
            lambda function, given: opinfo.gradients(function, given, seed),
            opinfo.to_device(sample, device),
            dynamic,
        )
        if result is not _NOT_TRACED:
            _assert_gradients(op, result, expected, sample, seed)

    _for_each(samples, check)


_NOT_TRACED = object()


def _through_compile(op, sample, ask: Callable, on_device, dynamic: bool | None):
    """What ``ask`` makes of the op as one compiled graph; ``_NOT_TRACED`` where the
    CPU's tensors cannot be traced or lowered either."""

    def function(*args, **kwargs):
        return op.op(*args, **kwargs)

    def asked(backend: str, given):
        torch._dynamo.reset()
        made = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
        return ask(made, given)

    try:
        return asked("inductor", on_device)
    except Exception as error:
        try:
            asked("aot_eager_decomp_partition", _copy(sample))
        except type(error):
            return _NOT_TRACED
        if "LoweringException" in str(error) and _said(error) == _said_on_cpu(
            lambda: asked("inductor", _copy(sample))
        ):
            return _NOT_TRACED
        raise


def _said_on_cpu(call: Callable) -> str:
    try:
        call()
    except Exception as error:
        return _said(error)
    return ""


def _said(error: Exception) -> str:
    """The first line, whatever its symbols are called."""
    return re.sub(r"\bs\d+\b", "s", str(error).split("\n")[0])


def noncontiguous(op, device, samples, seed) -> None:
    """The value, for inputs with gaps between their elements."""

    def check(sample):
        _check(op, op, opinfo.noncontiguous(sample), device, seed, False)

    _for_each(samples, check)


def in_place(op, device, samples, seed) -> None:
    """The value of the in-place form."""

    def check(sample):
        if not sample.broadcasts_input:
            _check(op, op.get_inplace(), _copy(sample), device, seed, False)

    if op.get_inplace() is not None:
        _for_each(samples, check)


def out(op, device, samples, seed) -> None:
    """The value in out=, whatever was there, for an empty out, and for one in another
    layout than the result's."""
    layouts = random.Random(seed)

    def check(sample):
        # nonzero takes no out when it shall give a tuple.
        expected, arbitrary = _on_cpu(op, op, sample)
        if arbitrary or sample.kwargs.get("as_tuple"):
            return
        laid_out = partial(_laid_out, layouts.random())
        for make in (_poisoned, _empty, laid_out):
            given = tree_map(partial(make, device), expected)
            on_device = opinfo.to_device(sample, device)
            # A product of a matrix wants an out that can be viewed as one.
            if make is laid_out:
                on_cpu = tree_map(partial(make, "cpu"), expected)
                if error := _refusal(op, sample, on_cpu):
                    opinfo.same_error(partial(op, out=given), on_device, error)
                    continue
            returned = opinfo.call(partial(op, out=given), on_device)
            if returned is not None:
                pairs = zip(
                    opinfo.tensors(returned), opinfo.tensors(given), strict=True
                )
                for ours, wanted in pairs:
                    assert ours is wanted or ours.data_ptr() == wanted.data_ptr()
            _assert_result(op, given, expected, sample)

    if op.supports_out:
        _for_each(samples, check)


def _refusal(op, sample, given) -> Exception | None:
    try:
        opinfo.call(partial(op, out=given), sample)
    except Exception as error:
        return error
    return None


def gradient(op, device, samples, seed) -> None:
    """The gradients of all inputs for a random gradient of each output."""

    def check(sample):
        with Draws() as draws:
            expected = opinfo.gradients(op, sample, seed)
        if draws.seen:
            return
        result = opinfo.gradients(op, opinfo.to_device(sample, device), seed)
        _assert_gradients(op, result, expected, sample, seed)

    _for_each(samples, check)


def _assert_gradients(op, result, expected, sample, seed) -> None:
    opinfo.assert_result(
        result,
        expected,
        lambda: opinfo.gradients(op, opinfo.to_double(sample), seed),
        neighbour=lambda: opinfo.gradients(op, opinfo.perturbed_sample(sample), seed),
    )


def errors(op, device) -> None:
    """What the CPU refuses is refused with the same exception and text."""
    failures = []
    for case in op.error_inputs("cpu"):
        expected = case.error_type
        pattern = case.error_regex.replace("cpu", "(cpu|opencl:[0-9]+)")
        try:
            opinfo.call(op, case.sample_input)
        except Exception as error:
            if _VALUE_OF_AN_INDEX.search(str(error)):
                expected, pattern = IndexError, _REPORTED_INDEX
        else:
            continue
        sample = opinfo.to_device(case.sample_input, device)
        try:
            opinfo.call(op, sample)
            torch.opencl.synchronize(device)
        except expected as error:
            if not re.search(pattern, str(error)):
                failures.append(f"{error}\n  does not match {pattern}")
        except Exception as error:
            failures.append(f"{error!r}, expected {expected}")
        else:
            failures.append(f"no {expected.__name__}: {opinfo.describe(sample)}")
    assert not failures, "\n".join(failures)


def _for_each(samples: Iterable, check: Callable) -> None:
    """Asks for every sample, then fails with all that went wrong."""
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
    assert not failures, f"{len(failures)} samples failed\n" + "\n".join(
        failures[:_SHOWN]
    )


def _check(op, function, sample, device, seed, strides) -> None:
    on_device = opinfo.to_device(sample, device)
    try:
        expected, arbitrary = _on_cpu(op, function, sample)
    except Exception as error:
        opinfo.same_error(function, on_device, error)
        return
    if arbitrary:
        _check_kind(op, function, on_device, expected, seed)
        return
    result = opinfo.call(function, on_device)
    _assert_result(op, result, expected, sample, strides)


def _assert_result(op, result, expected, sample, strides=False) -> None:
    opinfo.assert_result(
        result,
        expected,
        lambda: opinfo.call(op, opinfo.to_double(sample)),
        strides=strides,
        neighbour=lambda: opinfo.call(op, opinfo.perturbed_sample(sample)),
    )


class Draws(TorchDispatchMode):
    """Sees whether an op draws random numbers, whoever seeds the generator."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*args, **(kwargs or {}))
        state = torch.get_rng_state()
        result = function(*args, **(kwargs or {}))
        self.seen |= not torch.equal(state, torch.get_rng_state())
        return result


def _on_cpu(op, function, sample) -> tuple[object, bool]:
    """The CPU's result, and whether another call may give another one."""
    with Draws() as draws:
        result = opinfo.call(function, _copy(sample))
    return result, draws.seen or op.name in UNINITIALISED


def _check_kind(op, function, on_device, expected, seed) -> None:
    """Shape, dtype and device of a random result; the same seed repeats it."""
    results = []
    for _ in range(2):
        torch.manual_seed(seed)
        results.append(opinfo.tensors(opinfo.call(function, _copy(on_device))))
    for first, again, cpu in zip(*results, opinfo.tensors(expected), strict=True):
        assert first.shape == cpu.shape, f"shape {first.shape}, expected {cpu.shape}"
        assert first.dtype == cpu.dtype, f"dtype {first.dtype}, expected {cpu.dtype}"
        if op.name not in UNINITIALISED:
            assert torch.equal(first.cpu(), again.cpu()), "the seed does not repeat it"


def _copy(sample):
    return opinfo.to_device(sample, torch.device("cpu"))


def _poisoned(device, tensor):
    """Same shape, full of values that no op may leave behind."""
    if not torch.is_tensor(tensor):
        return tensor
    poisoned = torch.empty_like(tensor)
    poisoned.fill_(float("nan") if tensor.is_floating_point() else 1)
    return poisoned.to(device)


def _laid_out(share: float, device, tensor):
    """The same in another layout, where there is one: that at `share` of a list."""
    if not torch.is_tensor(tensor):
        return tensor
    poisoned = _poisoned("cpu", tensor.contiguous())
    others = [LAYOUTS[name](poisoned) for name in _LAYOUTS_OF_OUT]
    as_it_was = (tensor.stride(), 0)
    others = [t for t in others if (t.stride(), t.storage_offset()) != as_it_was]
    if not others:
        return poisoned.to(device)
    other = others[int(share * len(others))]
    elements = other.untyped_storage().nbytes() // other.element_size()
    memory = torch.empty(elements, dtype=other.dtype, device=device)
    there = memory.as_strided(other.shape, other.stride(), other.storage_offset())
    return there.copy_(other)


def _empty(device, tensor):
    if not torch.is_tensor(tensor):
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=device)
