"""Runs the tests on every OpenCL device of this machine.

    python -m pytest validate                the test suite
    python -m pytest validate --gpu-class    the kernel tests once more, with the
                                             kernels that GPUs get
    python -m pytest validate --guard        a few of the kernel tests, with
                                             TORCH_OPENCL_GUARD=1
`make test` runs them all. Kernels are chosen by the device's class, which a process
reads once, hence several runs. Everything in validate/ops is a kernel test; mark
tests elsewhere with `gpu_class`.

    TORCH_OPENCL_TEST=pocl,intel    devices whose platform, name or version has one of
                                    these; "cpu" stands for torch's own CPU device
    TORCH_OPENCL_TEST_SEED=7        seed of this run, printed at its start
    --full                          everything, not a slice chosen by the seed
Of the cases of a kernel test an ordinary run takes some, so that a run without
compiled programs on disk is short: one in a few of many, all of few. A test
elsewhere can ask for the same, and a kernel test for another share, by the mark
`sampled`. A test in validate/networks, or one that is marked `one_device`, runs on one
of the devices.
"""

from __future__ import annotations

import faulthandler
import math
import os
import random
import zlib
from collections import defaultdict
from pathlib import Path

import pytest

_KERNEL_TESTS = Path(__file__).parent / "ops"
_NETWORK_TESTS = Path(__file__).parent / "networks"
_SHARE_OF_KERNEL_TESTS = 20
# PoCL compiles kernels with barriers for seconds to a minute each: it takes half of
# their tests, and of each fewer cases.
_SHARE_WITH_BARRIERS_ON_POCL = 80
# llvmpipe compiles for seconds. Of Mesa 22.3, besides what quirks.h has:
_SHARE_ON_RUSTICL = 80
_NO_LONG_LOOPS = "llvmpipe ends loops after 65,535 rounds"
_NO_SUBNORMALS = "llvmpipe has no subnormal numbers"
_DIVIDES_OUTSIDE = "Mesa 22.3 divides for work-items that are out"
_NOT_ON_RUSTICL = {
    "test_integer_edges": _DIVIDES_OUTSIDE,
    "test_integers_divided_by_zero": _DIVIDES_OUTSIDE,
    "test_lcm_of_narrow_integers": _DIVIDES_OUTSIDE,
    "test_layer_norm_gradient_of_long_rows": _NO_LONG_LOOPS,
    "test_millions_a_statistic": _NO_LONG_LOOPS,
    "test_parts_below_an_overflow": _NO_SUBNORMALS,
    "test_products_of_parts_out_of_range": _NO_SUBNORMALS,
    "test_random_problems": "Mesa 22.3 compiles it for minutes",
}
# Of these, only cases with one of the parameters.
_PARAMETERS_NOT_ON_RUSTICL = {
    "test_integer_edges": {"torch.int8", "torch.uint8"},
    "test_parts_below_an_overflow": {"exp"},
}
_SHARE_IN_GUARD_MODE = 80
_LEAST_CASES = 1
_TIMEOUT_SECONDS = 180
_TIMEOUT_WITH_BARRIERS_ON_POCL = 600
_NO_DEVICE = (
    "no OpenCL device to test on: `python -m torch_opencl.diagnose` says what is "
    "missing (TORCH_OPENCL_TEST={selection!r})"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("opencl")
    group.addoption(
        "--gpu-class", action="store_true", help="kernel tests, as on a GPU"
    )
    group.addoption(
        "--guard", action="store_true", help="kernel tests, reporting stray writes"
    )
    group.addoption("--full", action="store_true", help="run everything, however long")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu_class: also run with the kernels for GPUs")
    config.addinivalue_line("markers", "slow: minutes or gigabytes; runs with --full")
    config.addinivalue_line(
        "markers", "sampled(n): one case in n of a device's; all with --full"
    )
    config.addinivalue_line("markers", "one_device: on one of them; all with --full")
    faulthandler.enable()
    # These are read when the extension loads, so they stand before any import
    # of torch; worker processes inherit them.
    os.environ.setdefault("TORCH_OPENCL_TEST_SEED", str(int.from_bytes(os.urandom(2))))
    os.environ["TORCH_OPENCL_FALLBACK"] = "error"
    # Kernels divide their work by compute units: PoCL has as many as a desktop's CPU.
    os.environ.setdefault("POCL_PTHREAD_MIN_THREADS", "8")
    if config.getoption("gpu_class"):
        os.environ["TORCH_OPENCL_DEVICE_CLASS"] = "gpu"
    if config.getoption("guard"):
        os.environ["TORCH_OPENCL_GUARD"] = "1"
    if config.pluginmanager.hasplugin("timeout") and config.option.timeout is None:
        config.option.timeout = _TIMEOUT_SECONDS
        # A hang inside a driver never returns to Python to see a signal.
        config.option.timeout_method = "thread"


def run_seed() -> int:
    return int(os.environ["TORCH_OPENCL_TEST_SEED"])


def _platform_and_name(index: int) -> str:
    import torch

    properties = torch.opencl.get_device_properties(index)
    # "PoCL" stands in its platform's version only
    return f"{properties.platform} {properties.name} {properties.platform_version}"


def _selected_devices() -> dict[str, str]:
    """Device string -> test id."""
    selection = os.environ.get("TORCH_OPENCL_TEST", "")
    if selection == "cpu":
        return {"cpu": "cpu"}
    import torch
    import torch_opencl  # noqa: F401

    wanted = [part.strip().lower() for part in selection.split(",") if part.strip()]
    names = [_platform_and_name(index) for index in range(torch.opencl.device_count())]
    for part in wanted:
        if not any(part in name.lower() for name in names):
            raise pytest.UsageError(
                f"TORCH_OPENCL_TEST: no device matches {part!r}: {names}"
            )
    return {
        f"opencl:{index}": f"opencl{index}-{name.split()[0].split('(')[0]}"
        for index, name in enumerate(names)
        if not wanted or any(part in name.lower() for part in wanted)
    }


def pytest_report_header(config: pytest.Config) -> str:
    kernels = "gpu" if config.getoption("gpu_class") else "each device's own"
    guard = ", guard mode" if config.getoption("guard") else ""
    seed = f"TORCH_OPENCL_TEST_SEED={run_seed()}"
    return f"opencl: {seed}, kernels of class: {kernels}{guard}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" not in metafunc.fixturenames:
        return
    devices = _selected_devices()
    if not devices:
        # An empty parameter set would be reported as a skip, and a run that
        # skipped everything as a success.
        raise pytest.UsageError(
            _NO_DEVICE.format(selection=os.environ.get("TORCH_OPENCL_TEST", ""))
        )
    metafunc.parametrize(
        "device", devices, ids=devices.values(), indirect=True, scope="session"
    )


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _reason_not_on_rusticl(item: pytest.Item) -> str | None:
    test = _test_of(item).split("::")[-1]
    only_of = _PARAMETERS_NOT_ON_RUSTICL.get(test)
    if only_of and only_of.isdisjoint(map(str, item.callspec.params.values())):
        return None
    return _NOT_ON_RUSTICL.get(test)


def _has_barriers_on_pocl(item: pytest.Item) -> bool:
    return item.config.getoption("gpu_class") and "-Portable" in item.nodeid


def _kept(item: pytest.Item, cases: int) -> int:
    """How many of the cases of a test on a device a run takes."""
    has_barriers = _has_barriers_on_pocl(item)
    if has_barriers and random.Random(f"{run_seed()} {_test_of(item)}").random() < 0.5:
        return 0
    if sampled := item.get_closest_marker("sampled"):
        return math.ceil(cases / sampled.args[0])
    if not item.get_closest_marker("gpu_class"):
        return cases
    if "-rusticl" in item.nodeid:
        return math.ceil(cases / _SHARE_ON_RUSTICL)
    if has_barriers:
        return math.ceil(cases / _SHARE_WITH_BARRIERS_ON_POCL)
    return max(math.ceil(cases / _SHARE_OF_KERNEL_TESTS), _LEAST_CASES)


def _left_out_of_guard_mode(items: list[pytest.Item]) -> set[pytest.Item]:
    shuffled = random.Random(run_seed()).sample(items, len(items))
    return set(shuffled[math.ceil(len(items) / _SHARE_IN_GUARD_MODE) :])


def _of_other_devices(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of tests for one device: those that are not for the one that the seed picks."""
    cases = defaultdict(lambda: defaultdict(set))
    for item in items:
        device = getattr(item, "callspec", None) and item.callspec.params.get("device")
        is_for_one = _NETWORK_TESTS in item.path.parents
        if device and (is_for_one or item.get_closest_marker("one_device")):
            cases[_test_of(item)][device].add(item)
    left_out = set()
    for test, by_device in cases.items():
        picked = random.Random(f"{run_seed()} {test}").choice(sorted(by_device))
        left_out.update(
            *(by_device[device] for device in by_device if device != picked)
        )
    return left_out


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    cases = defaultdict(list)
    for item in items:
        if parameters := getattr(item, "callspec", None):
            cases[_test_of(item), parameters.params.get("device")].append(item)
        elif item.cls and item.get_closest_marker("sampled"):
            cases[item.parent.nodeid, None].append(item)  # of torch's test classes
    left_out = set()
    for (test, device), of_test in cases.items():
        random.Random(f"{run_seed()} {test} {device}").shuffle(of_test)
        left_out.update(of_test[_kept(of_test[0], len(of_test)) :])
    return left_out


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    for item in items:
        if _KERNEL_TESTS in item.path.parents:
            item.add_marker("gpu_class")
    selected, deselected = [], []
    left_out = set()
    if not config.getoption("full"):
        guard = config.getoption("guard")
        if guard:
            left_out = _left_out_of_guard_mode(items)
        else:
            left_out = _left_out(items) | _of_other_devices(items)
    for item in items:
        if _has_barriers_on_pocl(item) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_TIMEOUT_WITH_BARRIERS_ON_POCL))
        if item.get_closest_marker("slow") and not config.getoption("full"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --full"))
        if "-rusticl" in item.nodeid and (reason := _reason_not_on_rusticl(item)):
            item.add_marker(pytest.mark.skip(reason=reason))
        is_wanted = item.get_closest_marker("gpu_class") or not (
            config.getoption("gpu_class") or config.getoption("guard")
        )
        if not is_wanted or item in left_out:
            deselected.append(item)
        else:
            selected.append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
    items[:] = selected


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function):
    """Ops in float64 are refused by a device without it."""
    try:
        return (yield)
    except (RuntimeError, AssertionError) as error:
        # pytest.raises wanted another text.
        context = error.__context__ if isinstance(error, AssertionError) else error
        callspec = getattr(pyfuncitem, "callspec", None)
        dtype = callspec.params.get("dtype") if callspec else None
        wants_float64 = str(dtype) in ("torch.float64", "torch.complex128")
        if _is_float64_refused(context or error, wants_float64):
            pytest.skip("the device has no float64")
        raise


def _is_float64_refused(error: BaseException, wants_float64: bool) -> bool:
    """Not where a kernel of another dtype needs float64: that is our mistake."""
    text = str(error)
    if "the device has no float64" not in text:
        return False
    is_of_op = isinstance(error, NotImplementedError) or "with these arguments" in text
    return is_of_op or "DTYPE=float64" in text or wants_float64


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest):
    """Each selected device in turn, as a torch.device."""
    import torch

    return torch.device(request.param)


@pytest.fixture(scope="session")
def first_device():
    """The first selected one, for what takes long and is the same on every driver."""
    import torch

    for name in _selected_devices():
        return torch.device(name)
    raise pytest.UsageError(_NO_DEVICE.format(selection=""))


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    import torch

    torch.manual_seed(run_seed() + zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def _stray_writes(request: pytest.FixtureRequest):
    """In guard mode, a test fails by what it wrote, not the next one that waits."""
    yield
    if request.config.getoption("guard") and "device" in request.fixturenames:
        import torch

        torch.opencl.synchronize(request.getfixturevalue("device"))


@pytest.fixture
def without_fallbacks(device) -> None:
    """Fails a test of which an op ran on the CPU."""
    import torch

    torch.opencl.reset_fallback_stats()
    yield
    assert torch.opencl.fallback_stats() == {}


@pytest.fixture
def attention_compiles(request: pytest.FixtureRequest, device) -> None:
    """Skips a test whose fused attention would not be compiled in time."""
    import torch

    platform = torch.opencl.get_device_properties(device).platform
    if request.config.getoption("gpu_class") and platform.startswith("Portable"):
        pytest.skip("PoCL compiles each GPU kernel of attention for a minute")


@pytest.fixture
def fresh_inductor():
    """The test compiles anew, without graphs that another run has left."""
    import torch._dynamo
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False), fresh_cache():
        yield
    torch._dynamo.reset()
