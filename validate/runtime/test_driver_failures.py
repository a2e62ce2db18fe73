"""OpenCL calls that fail: the error, and that nothing is lost or left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from script import run_process

SOURCE = Path(__file__).with_name("failing_driver.c")
PROLOGUE = """
import ctypes, gc, sys
import torch, torch_opencl

preloaded = ctypes.CDLL(None)
OUT_OF_MEMORY, INVALID_VALUE = -4, -30  # CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_...

def fail(name, code=INVALID_VALUE, *, skipped=0, calls=1):
    preloaded.fail(name.encode(), code, skipped, calls)

def raised(error, call, *arguments):
    try:
        call(*arguments)
    except error as caught:
        assert type(caught) is error, type(caught)
        return str(caught)
    raise SystemExit("nothing was raised")

def reserved():
    return torch.opencl.memory_reserved(DEVICE)

def references():  # to cl_mem, of the extension
    return preloaded.memory_references()

def check_use():
    fail("", calls=0)
    x = torch.ones(3 << 20, device=DEVICE)
    assert x.add(1).sum().item() == 6 << 20
"""
SHARED = """
import pyopencl as cl, pyopencl.array

torch.ones(1, device=DEVICE)
queue = torch_opencl.pyopencl_queue(DEVICE)
array = cl.array.zeros(queue, 12, "float32")
owner = array.base_data
index = torch.device(DEVICE).index

def adopt(rows=3):
    return torch_opencl._C._adopt_memory(
        index, owner.int_ptr, owner.size, 0, [rows, 4], [4, 1], torch.float32, owner
    )

def held():
    gc.collect()
    return sys.getrefcount(owner), owner.get_info(cl.mem_info.REFERENCE_COUNT)

before = held()
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler for the library that makes calls fail")
    library = tmp_path_factory.mktemp("shim") / "failing_driver.so"
    command = [compiler, "-shared", "-fPIC", "-O2", SOURCE, "-o", library]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def run(device, shim):
    """Runs a script in which OpenCL calls can be made to fail; its stderr."""

    def run(*parts: str, **environment: str) -> str:
        code = f"DEVICE = {str(device)!r}\n" + "".join(map(textwrap.dedent, parts))
        preload = f"{shim} {os.environ.get('LD_PRELOAD', '')}"
        return run_process(code, LD_PRELOAD=preload, **environment).stderr

    return run


def test_segments(run):
    """A buffer that cannot be made, and one that the first use fails in."""
    run(
        PROLOGUE,
        """
        kept = torch.ones(5, device=DEVICE)
        torch.opencl.synchronize(DEVICE)
        held = lambda: (reserved(), references())
        before = held()
        for call in ("clCreateBuffer", "clEnqueueWriteBuffer"):
            fail(call)
            text = raised(RuntimeError, lambda: torch.empty(9 << 20, device=DEVICE))
            assert "-30 (CL_INVALID_VALUE)" in text and call in text, text
            assert held() == before
            # Once out of memory: tried again. Always: torch's own error.
            fail(call, OUT_OF_MEMORY)
            torch.empty(9 << 20, device=DEVICE)
            torch.opencl.empty_cache()
            assert held() == before
            fail(call, OUT_OF_MEMORY, calls=99)
            error = torch.OutOfMemoryError
            assert "OpenCL out of memory. Tried to allocate 36.00 MiB" in raised(
                error, lambda: torch.empty(9 << 20, device=DEVICE)
            )
            assert held() == before
            check_use()
            torch.opencl.empty_cache()
        assert kept.sum().item() == 5
        """,
    )


def test_mappings(run):
    """A buffer whose pages cannot be had, and one that would never give them back."""
    run(
        PROLOGUE,
        """
        def mapped():
            with open("/proc/self/statm") as pages:
                return int(pages.read().split()[0]) << 12

        check_use()
        torch.opencl.empty_cache()
        before = reserved(), references()
        size = mapped()
        for call in ("mmap", "clSetMemObjectDestructorCallback"):
            fail(call, OUT_OF_MEMORY)
            torch.empty(9 << 20, device=DEVICE)  # tried again
            torch.opencl.empty_cache()
            assert (reserved(), references()) == before
            for _ in range(20):
                fail(call, OUT_OF_MEMORY, calls=99)
                raised(
                    torch.OutOfMemoryError, lambda: torch.empty(9 << 20, device=DEVICE)
                )
            assert (reserved(), references()) == before
            check_use()
            torch.opencl.empty_cache()
        fail("clSetMemObjectDestructorCallback")
        text = raised(RuntimeError, lambda: torch.empty(9 << 20, device=DEVICE))
        assert "-30 (CL_INVALID_VALUE)" in text, text
        assert mapped() - size < 5 * (36 << 20), mapped() - size
        check_use()
        """,
    )


def test_a_failed_command(run):
    """Of a wait that is not known to be short: a marker tells ahead of the wait."""
    run(
        PROLOGUE,
        """
        FAILED = -14  # CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        waits = (
            lambda x: x[0].item(),
            lambda x: x.cpu(),
            lambda x: x.copy_(torch.ones(x.shape)),
            lambda x: torch.opencl.synchronize(DEVICE),
        )
        for size, wait in enumerate(waits, start=9):
            x = torch.ones(1 << size, device=DEVICE).add(1)  # larger than those before
            fail("clWaitForEvents", FAILED)
            text = raised(RuntimeError, wait, x)
            assert "-14 (CL_EXEC_STATUS" in text and "clWaitForEvents" in text, text
            assert x.sum().item() == 2 << size
        check_use()
        """,
    )


def test_pinned_memory(run):
    errors = run(
        PROLOGUE,
        """
        torch.ones(1, device=DEVICE).add(1).cpu()
        torch.opencl.set_device(DEVICE)
        before = references()
        for call in ("clCreateBuffer", "clEnqueueMapBuffer"):
            fail(call)
            text = raised(
                torch.OutOfMemoryError, lambda: torch.empty(5, pin_memory=True)
            )
            assert references() == before
            assert "page-locked" in text and "CL_INVALID_VALUE" in text, text
            assert torch.ones(5, pin_memory=True).is_pinned()
            torch.accelerator.empty_host_cache()
        # Failing to unmap is told, and the buffer is released all the same.
        x = torch.ones(99, pin_memory=True)
        assert references() == before + 1
        del x
        fail("clEnqueueUnmapMemObject", calls=99)
        torch.accelerator.empty_host_cache()
        fail("", calls=0)
        assert references() == before
        # So is that of a copy nobody can tell the end of: its block is not reused.
        x = torch.ones(77, pin_memory=True)
        z = x.to(DEVICE, non_blocking=True)
        address = x.data_ptr()
        fail("clEnqueueMarkerWithWaitList", calls=99)
        del x
        fail("", calls=0)
        assert torch.empty(77, pin_memory=True).data_ptr() != address
        assert z.sum().item() == 77
        y = torch.arange(99.0, pin_memory=True)
        assert y.is_pinned() and y.to(DEVICE).sum().item() == 99 * 49
        check_use()
        """,
    )
    assert "clEnqueueUnmapMemObject failed: -30 (CL_INVALID_VALUE)" in errors
    assert "not used again: OpenCL error -30" in errors


def test_build_log(run, tmp_path):
    run(
        PROLOGUE,
        """
        kernel = torch_opencl.RawKernel("kernel void f() { no_such_word; }", "f")
        call = lambda: kernel((1,), (1,), ())
        torch.ones(1, device=DEVICE)
        torch.opencl.set_device(DEVICE)
        assert "no_such_word" in raised(RuntimeError, call).split("compiler log")[1]
        for skipped in (0, 1):  # its size, and the text
            fail("clGetProgramBuildInfo", skipped=skipped, calls=99)
            text = raised(RuntimeError, call)
            assert "CL_BUILD_PROGRAM_FAILURE" in text, text
            expected = "clGetProgramBuildInfo failed with -30, CL_INVALID_VALUE"
            assert expected in text.split("compiler log")[1], text
        check_use()
        """,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path),
    )


def test_a_build_log_that_counts_the_lines_of_the_whole_text(run, tmp_path):
    """NVIDIA's compiler does not heed #line, which begins the user's lines."""
    run(
        PROLOGUE,
        """
        import re

        lines = "".join(f"// {number}\\n" for number in range(1, 1000))
        kernel = torch_opencl.RawKernel(lines + "kernel void f() { no_word; }", "f")
        torch.opencl.set_device(DEVICE)
        preloaded.set_log(b"<kernel>:700:24: error: use of undeclared identifier")
        fail("clGetProgramBuildInfo", 0, calls=99)
        text = raised(RuntimeError, lambda: kernel((1,), (1,), ()))
        number, comment = map(int, re.search(r"> (\\d+) . // (\\d+)", text).groups())
        # After the text that goes before the user's.
        assert 0 < number == comment < 700, text
        assert text.count(" | // ") == 17, text
        """,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path),
    )


def test_a_compiler_that_refuses_matrix_units(run, device, tmp_path):
    """The next kernel serves, with one warning."""
    if torch.opencl.get_device_properties(device).platform.startswith("Portable"):
        pytest.skip("PoCL compiles each GPU kernel of attention for a minute")
    run(
        PROLOGUE,
        """
        import warnings

        def attend():
            torch.manual_seed(0)
            x = torch.randn(1, 2, 30, 16).to(DEVICE, torch.float16).requires_grad_()
            out = torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return out, torch.autograd.grad(out.float().square().sum(), x)[0]

        torch.set_warn_always(True)
        expected = attend()
        torch.opencl.synchronize(DEVICE)
        torch.backends.opencl.solver = "units_sm_80"
        for refusals in (3, 0):  # forward, two in backward, and not again
            fail("clBuildProgram", -11, calls=refusals)
            with warnings.catch_warnings(record=True) as seen:
                result = attend()
                torch.opencl.synchronize(DEVICE)
            texts = [str(warning.message) for warning in seen]
            assert len(texts) == refusals, texts
            assert all("matrix units" in text for text in texts), texts
            for one, other in zip(result, expected, strict=True):
                assert torch.equal(one, other)
        """,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path),
        TORCH_OPENCL_DEVICE_CLASS="gpu",
        TORCH_OPENCL_MATRIX_UNITS="0",  # the device's own, where it has some
    )


def test_a_measured_tile_that_does_not_build(run, tmp_path):
    """Another one is taken."""
    run(
        PROLOGUE,
        """
        left, right = torch.randn(40, 50), torch.randn(50, 60)
        operands = left.to(DEVICE), right.to(DEVICE)
        torch.backends.opencl.benchmark = True
        fail("clBuildProgram", -11, calls=1)
        out = operands[0] @ operands[1]
        torch.testing.assert_close(out.cpu(), left @ right)
        (tile,) = (
            choice
            for choice in torch.backends.opencl.choices()
            if choice["problem"].startswith("tile:")
        )
        failed = [s for s in tile["seconds"].values() if s == float("inf")]
        assert len(failed) == 1, tile
        assert tile["seconds"][tile["fastest"]] < float("inf")
        """,
        TORCH_OPENCL_CACHE_DIR=str(tmp_path),
        TORCH_OPENCL_DEVICE_CLASS="gpu",
    )


def test_adopted_memory_that_becomes_no_tensor_is_released(run):
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    run(
        PROLOGUE,
        SHARED,
        """
        fail("clRetainMemObject")
        assert "clRetainMemObject" in raised(RuntimeError, adopt)
        assert held() == before
        assert "negative dimension" in raised(RuntimeError, adopt, -3)  # torch's
        assert held() == before
        x = adopt()
        assert held() == (before[0] + 1, before[1] + 1)
        assert x.add_(1).sum().item() == 12 and array.get().tolist() == [1] * 12
        del x
        assert held() == before
        check_use()
        """,
    )


def test_addresses_that_are_used_up(run):
    """Memory that gets no address is released, and addresses given back are used."""
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    run(
        PROLOGUE,
        SHARED,
        """
        def adopt_as(size):
            return torch_opencl._C._adopt_memory(
                index, owner.int_ptr, size, 0, [3, 4], [4, 1], torch.float32, owner
            )

        assert "address space is used up" in raised(RuntimeError, adopt_as, 1 << 50)
        assert held() == before
        taken, size = [], 1 << 42
        while size >= 1 << 21:
            try:
                taken.append(adopt_as(size))
            except RuntimeError:
                size //= 2
        assert taken
        torch.opencl.empty_cache()
        kept = reserved(), references()
        error = torch.OutOfMemoryError
        raised(error, lambda: torch.empty(30 << 20, device=DEVICE))
        assert (reserved(), references()) == kept
        count = len(taken)
        taken.clear()
        assert held() == before and references() == kept[1] - count
        check_use()
        """,
    )


def test_a_failing_release_warns(run):
    """Deleters run where nothing may be thrown."""
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    errors = run(
        PROLOGUE,
        SHARED,
        """
        x = adopt()
        torch.opencl.synchronize(DEVICE)
        fail("clReleaseMemObject")
        del x
        assert held() == (before[0], before[1] + 1)
        assert adopt().sum().item() == 0
        check_use()
        """,
    )
    assert "releasing memory of pyopencl failed" in errors
    assert "clReleaseMemObject" in errors
