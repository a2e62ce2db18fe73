"""Memory, context and queue shared with pyopencl."""

from __future__ import annotations

import gc

import pytest
import torch
import torch_opencl

cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
cl_array = pytest.importorskip("pyopencl.array")

SCALE = "kernel void scale(global float *x) { x[get_global_id(0)] *= 2; }"


def test_one_memory(device):
    x = torch.arange(12.0, device=device).view(3, 4)
    array = torch_opencl.to_pyopencl(x)
    assert array.shape == (3, 4) and array.get().tolist() == x.tolist()
    x += 1
    assert array.get().tolist() == x.tolist()
    array.fill(5)
    assert x.cpu().tolist() == [[5] * 4] * 3


def test_views_keep_offset_and_strides(device):
    x = torch.arange(20.0, device=device).view(4, 5)[1:, 2:4]
    array = torch_opencl.to_pyopencl(x)
    assert (
        array.strides == (20, 4)
        and array.offset == torch_opencl.to_pyopencl(x._base).offset + 28
    )
    y = torch_opencl.from_pyopencl(array)
    assert y.stride() == (5, 1) and y.device == device
    assert torch.equal(y, x)
    y += 1
    assert torch.equal(y, x)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32]
)
def test_dtypes(device, dtype):
    x = torch.arange(7, device=device).to(dtype)
    array = torch_opencl.to_pyopencl(x)
    assert array.dtype.name == str(dtype).removeprefix("torch.")
    assert torch.equal(torch_opencl.from_pyopencl(array), x)


def _beginning_a_buffer(device: torch.device) -> torch.Tensor:
    # Where earlier tests left room behind what is still alive, the first ones fill it.
    tensors = []
    for _ in range(100):
        tensors.append(torch.ones(5 << 20, device=device))
        if torch_opencl.to_pyopencl(tensors[-1]).offset == 0:
            return tensors[-1]
    raise AssertionError("no tensor begins a buffer")


def test_one_queue_orders_both(device):
    queue = torch_opencl.pyopencl_queue(device)
    program = cl.Program(queue.context, SCALE).build()
    kernel = cl.Kernel(program, "scale")
    x = _beginning_a_buffer(device)
    buffer = torch_opencl.to_pyopencl(x)
    assert buffer.queue == queue and buffer.offset == 0
    for _ in range(20):
        kernel(queue, (x.numel(),), None, buffer.base_data)
        x -= 1
    # 1 -> 2 -> 1 -> ...
    assert torch.equal(x.cpu(), torch.ones(5 << 20))


def test_streams_have_their_own_queue(device):
    first = torch_opencl.pyopencl_queue(device)
    with torch.opencl.stream(torch.Stream(device=device)):
        second = torch_opencl.pyopencl_queue(device)
        assert second != first and second.context == first.context
    assert torch_opencl.pyopencl_queue(device) == first


def test_memory_of_pyopencl(device):
    queue = torch_opencl.pyopencl_queue(device)
    array = cl_array.arange(queue, 6, dtype="float32").reshape(2, 3)
    x = torch_opencl.from_pyopencl(array)
    del array
    gc.collect()
    x *= 2
    assert x.cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
    assert (x @ x.T).cpu().tolist() == [[20, 56], [56, 200]]


def test_another_queue_is_waited_for(device):
    context = torch_opencl.pyopencl_queue(device).context
    other = cl.CommandQueue(context)
    for _ in range(5):
        array = cl_array.zeros(other, 1 << 18, dtype="float32")
        array += 3
        x = torch_opencl.from_pyopencl(array)
        assert x.sum().item() == 3 * (1 << 18)


def test_memory_lives_as_long_as_either(device):
    gc.collect()
    before = torch.opencl.memory_allocated(device)
    x = torch.ones(1 << 20, device=device)
    array = torch_opencl.to_pyopencl(x)
    view = array[3:5]
    del x, array
    gc.collect()
    assert torch.opencl.memory_allocated(device) > before
    assert view.get().tolist() == [1, 1]
    del view
    gc.collect()
    assert torch.opencl.memory_allocated(device) == before


def test_empty(device):
    array = torch_opencl.to_pyopencl(torch.empty(0, 3, device=device))
    assert array.shape == (0, 3)
    assert torch_opencl.from_pyopencl(array).shape == (0, 3)


def test_errors(device):
    x = torch.ones(4, device=device)
    with pytest.raises(ValueError, match="Expected an opencl tensor"):
        torch_opencl.to_pyopencl(x.cpu())
    with pytest.raises(RuntimeError, match="requires grad"):
        torch_opencl.to_pyopencl(x.requires_grad_())
    with pytest.raises(TypeError, match="bfloat16"):
        torch_opencl.to_pyopencl(x.detach().bfloat16())
    with pytest.raises(TypeError, match=r"expected a pyopencl\.array\.Array"):
        torch_opencl.from_pyopencl(x)
    array = torch_opencl.to_pyopencl(x.detach())
    with pytest.raises(ValueError, match="negative"):
        torch_opencl.from_pyopencl(array[::-1])
    theirs = cl.Context([torch_opencl.pyopencl_queue(device).device])
    foreign = cl_array.zeros(cl.CommandQueue(theirs), 4, dtype="float32")
    with pytest.raises(ValueError, match="another OpenCL context"):
        torch_opencl.from_pyopencl(foreign)
