"""Packed and transformed weights: kept while nothing is written to the weight."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
import torch.nn.functional as F
import torch_opencl
from tolerance import assert_matches

# Solver, and a weight that it packs or transforms.
SOLVERS = [
    ("winograd", (18, 17, 3, 3)),
    ("conv1x1", (18, 17, 1, 1)),
    ("im2col", (18, 17, 5, 3)),
    ("direct", (18, 48, 3, 3)),
]
ADD = """
kernel void add_one(TENSOR(float, x), const int size) {
  const int i = get_global_id(0);
  if (i < size) POINTER(x)[i] += 1;
}
"""


@pytest.fixture(autouse=True)
def _settings_stay():
    with torch.backends.opencl.flags():
        yield


def _allocated(device):
    gc.collect()
    return torch.opencl.memory_allocated(device)


def _layer(device, solver="winograd", shape=(18, 17, 3, 3), layout=None):
    """Weight and image, after enough calls that the packed weight is kept."""
    torch.backends.opencl.solver = solver
    layout = layout or torch.contiguous_format
    weight = torch.randn(shape).to(memory_format=layout).to(device)
    image = torch.randn(2, shape[1], 9, 11).to(memory_format=layout).to(device)
    before = _allocated(device)
    for _ in range(3):
        F.conv2d(image, weight)
    kept = _allocated(device) - before
    return weight, image, kept


def _check(image, weight):
    result = F.conv2d(image, weight)
    x, w = image.cpu(), weight.cpu()
    assert_matches(result, F.conv2d(x.double(), w.double()), F.conv2d(x, w))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("solver, shape", SOLVERS)
def test_a_packed_weight_is_kept_and_right(device, solver, shape, layout):
    is_gpu = torch.opencl.get_device_properties(device).device_class == "gpu"
    if solver == "direct" and is_gpu:
        pytest.skip("a solver for CPUs: GPUs read this weight unpacked")
    weight, image, kept = _layer(device, solver, shape, layout)
    assert kept > 0
    for images in (image, image[:1], torch.randn_like(image)):
        result = F.conv2d(images, weight)
        again = F.conv2d(images, weight.clone())
        assert torch.equal(result, again)
    _check(image, weight)


def _fused_step(weight):
    parameter = torch.nn.Parameter(weight)
    assert parameter.data_ptr() == weight.data_ptr()
    parameter.grad = torch.ones_like(weight)
    torch.optim.SGD([parameter], lr=0.1, fused=True).step()


def _foreach_step(weight):
    torch._foreach_add_([weight, torch.ones(3, device=weight.device)], 1.0)


def _raw_kernel(weight):
    kernel = torch_opencl.RawKernel(ADD, "add_one")
    kernel((weight.numel(),), (1,), (weight, weight.numel()))


WRITES = {
    "in place": lambda w: w.mul_(2),
    "data": lambda w: w.data.add_(1),
    "data from the host": lambda w: w.data.copy_(torch.randn(w.shape)),
    "detached": lambda w: w.detach().zero_(),
    "a view": lambda w: w[1, 2].neg_(),
    "the storage": lambda w: w.untyped_storage().copy_(
        torch.randn_like(w).untyped_storage()
    ),
    "another tensor of the storage": lambda w: (
        torch.empty(0, device=w.device).set_(w.untyped_storage(), 7, (20,)).fill_(3)
    ),
    "an index": lambda w: w.index_fill_(0, torch.tensor([3], device=w.device), 0.5),
    "out=": lambda w: torch.add(w, 1, out=w),
    "random": lambda w: torch.nn.init.normal_(w),
    "fused": _fused_step,
    "foreach": _foreach_step,
    "raw kernel": _raw_kernel,
    "set_": lambda w: w.set_(torch.randn_like(w)),
    "swapped data": lambda w: setattr(w, "data", torch.randn_like(w)),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_invalidates(device, write):
    weight, image, kept = _layer(device)
    assert kept > 0
    old = F.conv2d(image, weight)
    WRITES[write](weight)
    assert not torch.equal(F.conv2d(image, weight), old)
    _check(image, weight)


def test_pyopencl_writes_unseen(device):
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    weight, image, kept = _layer(device)
    assert kept > 0
    array = torch_opencl.to_pyopencl(weight)
    for value in (2, 3):
        for _ in range(3):
            F.conv2d(image, weight)
        array.fill(value)
        _check(image, weight)


def _through_dlpack(tensor):
    return torch.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))


def _through_pyopencl(tensor):
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    return torch_opencl.from_pyopencl(torch_opencl.to_pyopencl(tensor))


@pytest.mark.parametrize("share", [_through_dlpack, _through_pyopencl])
def test_a_storage_that_begins_inside_another(device, share):
    """Whichever of the two is written, and whichever is a weight."""
    torch.backends.opencl.solver = "winograd"
    both = torch.randn(2, 18, 18, 3, 3, device=device)
    image = torch.randn(1, 18, 9, 8, device=device)
    part = share(both[1])
    for write in (both.neg_, part.neg_, both[1, 3:].neg_, part[7:].neg_):
        for _ in range(3):
            F.conv2d(image, both[1]), F.conv2d(image, part)
        write()
        _check(image, part)
        _check(image, both[1])


def test_pyopencl_writes_unseen_by_a_part(device):
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    weight, image, kept = _layer(device)
    assert kept > 0
    array = torch_opencl.to_pyopencl(_through_dlpack(weight[7:]))
    for value in (2, 3):
        for _ in range(3):
            F.conv2d(image, weight)
        array.fill(value)
        _check(image, weight)
        for _ in range(3):
            F.conv2d(image, weight)
        weight[9].neg_()
        _check(image, weight)


def test_views_of_one_storage_are_told_apart(device):
    torch.backends.opencl.solver = "winograd"
    weights = torch.randn(2, 18, 18, 3, 3, device=device)
    image = torch.randn(1, 18, 9, 8, device=device)
    views = [weights[0], weights[1], weights[0].transpose(0, 1), weights[1].mT]
    for _ in range(3):
        results = [F.conv2d(image, view) for view in views]
    for view, result in zip(views, results, strict=True):
        assert torch.equal(result, F.conv2d(image, view.clone()))


def test_gradients_keep_their_own(device):
    weight, image, _ = _layer(device)
    image.requires_grad_()
    output = F.conv2d(image, weight)
    for _ in range(3):
        (grad,) = torch.autograd.grad(
            output, image, torch.ones_like(output), retain_graph=True
        )
    x = image.detach().cpu().requires_grad_()
    expected = F.conv2d(x.double(), weight.cpu().double()).sum()
    single = F.conv2d(x, weight.cpu()).sum()
    assert_matches(
        grad,
        torch.autograd.grad(expected, x)[0].double(),
        torch.autograd.grad(single, x)[0],
    )


def test_streams_have_their_own(device):
    weight, image, _ = _layer(device)
    expected = F.conv2d(image, weight)
    stream = torch.Stream(device)
    torch.opencl.synchronize(device)
    with stream:
        for _ in range(4):
            result = F.conv2d(image, weight)
    stream.synchronize()
    assert torch.equal(result, expected)


def test_a_writer_beside_a_reader_that_packs(device):
    """What is packed while another thread writes is not kept."""
    weight, image, _ = _layer(device)
    together = threading.Barrier(2, timeout=60)
    rounds = range(200)

    def write():
        for value in rounds:
            together.wait()
            weight.fill_(value)
            together.wait()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for value in rounds:
            together.wait()
            for _ in range(3):
                F.conv2d(image, weight)
            together.wait()
            expected = F.conv2d(image, weight.clone())
            assert torch.equal(F.conv2d(image, weight), expected), value
    finally:
        together.abort()
        thread.join()


def test_packed_weights_go_with_the_weight(device):
    before = _allocated(device)
    weight, image, kept = _layer(device)
    assert kept > 0
    del weight, image
    assert _allocated(device) == before


def test_packed_weights_are_released_on_request_and_when_memory_is_short(device):
    weight, image, kept = _layer(device)
    with_packed = _allocated(device)
    torch.opencl.empty_cache()
    assert _allocated(device) == with_packed - kept

    for _ in range(3):
        F.conv2d(image, weight)
    assert _allocated(device) == with_packed
    total = torch.opencl.get_device_properties(device).total_memory
    try:
        torch.opencl.set_per_process_memory_fraction((8 << 20) / total, device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(64 << 20, device=device)
    finally:
        torch.opencl.set_per_process_memory_fraction(1.0, device)
    assert _allocated(device) == with_packed - kept
    _check(image, weight)


READS = {
    "pointwise": lambda w: w + 1,
    "reduction": lambda w: w.sum(1),
    "index": lambda w: w[torch.tensor([1, 3], device=w.device)],
    "copy": lambda w: w.clone(),
    "transposed copy": lambda w: w.transpose(0, 1).contiguous(),
    "cast": lambda w: w.double(),
    "to the host": lambda w: w.cpu(),
    "convolution": lambda w: F.conv2d(w.new_ones(1, 17, 5, 5), w),
    "softmax": lambda w: w.softmax(1),
    "product": lambda w: w.flatten(1) @ w.flatten(1).mT,
    "address": lambda w: w.data_ptr(),
}


@pytest.mark.parametrize("read", READS)
def test_a_read_keeps(device, read):
    weight, image, kept = _layer(device)
    assert kept > 0
    READS[read](weight)
    gc.collect()
    held = _allocated(device)
    F.conv2d(image, weight)  # packs again, and keeps nothing, after a write
    weight.mul_(1)
    torch.opencl.synchronize(device)
    assert _allocated(device) == held - kept
