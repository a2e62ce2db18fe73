"""torchvision's ops on the device, against the CPU, or against vision_oracle.py where
torchvision's own did not load; and that against its definition."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
import torch_opencl  # noqa: F401
import vision_oracle
from against_cpu import FLOATS, check

torchvision = pytest.importorskip("torchvision")
from torchvision import ops  # noqa: E402

vision_oracle.register()

_POOLS = {
    "roi_align": lambda x, rois: ops.roi_align(x, rois, (3, 2), 0.5, 2, aligned=True),
    "roi_align adaptive": lambda x, rois: ops.roi_align(x, rois, (3, 2), 0.5),
    "roi_pool": lambda x, rois: ops.roi_pool(x, rois, (3, 2), 0.5),
    "ps_roi_align": lambda x, rois: ops.ps_roi_align(x, rois, (3, 2), 0.5, 2),
    "ps_roi_align adaptive": lambda x, rois: ops.ps_roi_align(x, rois, (3, 2), 0.5),
    "ps_roi_pool": lambda x, rois: ops.ps_roi_pool(x, rois, (3, 2), 0.5),
}


def _boxes(count: int) -> torch.Tensor:
    corner = torch.rand(count, 2) * 30 - 5
    return torch.cat([corner, corner + torch.rand(count, 2) * 40], 1)


def _regions(count: int) -> torch.Tensor:
    return torch.cat([torch.randint(2, (count, 1)).float(), _boxes(count)], 1)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 300, 1000])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_nms(device, count, threshold):
    boxes, scores = _boxes(count), torch.rand(count)
    # ties keep their order, and empty boxes overlap nothing
    scores[count // 2 :] = 0.5
    boxes[: count // 5, 2:] = boxes[: count // 5, :2]
    result = ops.nms(boxes.to(device), scores.to(device), threshold)
    assert torch.equal(result.cpu(), ops.nms(boxes, scores, threshold))


def test_nms_by_hand(device):
    boxes = [[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30], [0, 0, 10, 5]]
    scores = torch.tensor([0.5, 0.9, 0.1, 0.8], device=device)
    kept = ops.nms(torch.tensor(boxes, device=device).float(), scores, 0.5)
    assert kept.tolist() == [1, 3, 2]


def test_batched_nms(device):
    boxes, scores = _boxes(100), torch.rand(100)
    classes = torch.randint(3, (100,))
    result = ops.batched_nms(
        boxes.to(device), scores.to(device), classes.to(device), 0.4
    )
    assert torch.equal(result.cpu(), ops.batched_nms(boxes, scores, classes, 0.4))


@pytest.mark.parametrize("count", [0, 7])
@pytest.mark.parametrize("name", _POOLS)
def test_regions(device, name, count):
    rois = _regions(count)
    check(
        lambda x: _POOLS[name](x, rois.to(x.device, x.dtype)),
        [torch.randn(2, 18, 20, 23)],
        device,
    )


def test_gradient_of_regions_that_cross_edges(device):
    rois = torch.cat((_regions(5), torch.tensor([[1.0, -2, -1, 20, 20]])))
    rois = rois.to(device, torch.float64)
    x = torch.randn(2, 12, 9, 11, dtype=torch.float64, device=device)
    assert torch.autograd.gradcheck(
        lambda x: _POOLS["ps_roi_pool"](x, rois), x.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["roi_align", "ps_roi_pool"])
def test_regions_dtypes(device, name, dtype):
    # of quarters, which every dtype has
    rois = (_regions(5) * 4).round() / 4
    x = torch.randn(2, 12, 9, 11).contiguous(memory_format=torch.channels_last)
    if dtype in (torch.float16, torch.bfloat16):
        expected = _POOLS[name](x.to(dtype).float(), rois)
        result = _POOLS[name](x.to(device, dtype), rois.to(device, dtype))
        assert result.dtype == dtype
        torch.testing.assert_close(result.cpu().float(), expected, rtol=2e-2, atol=2e-2)
    else:
        check(lambda x: _POOLS[name](x, rois.to(x.device, x.dtype)), [x], device, dtype)


@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv2d(device, masked):
    groups, offset_groups = 2, 3
    weight = torch.randn(4, 6 // groups, 3, 2)
    x, bias = torch.randn(2, 6, 8, 9), torch.randn(4)
    offset = torch.randn(2, 2 * offset_groups * 6, 4, 10)
    mask = [torch.rand(2, offset_groups * 6, 4, 10)] if masked else []

    def function(x, offset, weight, bias, mask=None):
        return ops.deform_conv2d(
            x, offset, weight, bias, stride=(2, 1), padding=1, mask=mask
        )

    check(function, [x, offset, weight, bias, *mask], device)


def test_undeformed_is_conv2d(device):
    x, weight = torch.randn(1, 4, 7, 6), torch.randn(5, 4, 3, 3)
    offset = torch.zeros(1, 18, 7, 6)
    given = [t.to(device) for t in (x, offset, weight)]
    result = ops.deform_conv2d(*given, padding=1)
    expected = torch.conv2d(x, weight, padding=1)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("image", [2, -1, 9e9])
@pytest.mark.parametrize("name", _POOLS)
def test_regions_of_no_image(device, name, image):
    """The CPU reads foreign memory."""
    x, rois = torch.randn(2, 18, 20, 23).to(device), _regions(7)
    good = _POOLS[name](x, rois.to(device)).cpu()
    rois[4, 0] = image
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 2"):
        _POOLS[name](x, rois.to(device))
        torch.opencl.synchronize(device)
    x.requires_grad_()
    rois[4, 0] = 1
    _POOLS[name](x, rois.to(device)).sum().backward()
    assert torch.equal(_POOLS[name](x, rois.to(device)).cpu()[:4], good[:4])


@pytest.mark.parametrize("far", [1e30, float("inf")])
@pytest.mark.parametrize("name", ["roi_align adaptive", "ps_roi_align adaptive"])
def test_regions_of_more_samples_than_ints_count(device, name, far):
    x = torch.randn(2, 18, 20, 23)
    near = torch.tensor([[0, 1, 2, 9, 8.0]])
    region = torch.tensor([[1, 1, 2, far, far]])
    results = _POOLS[name](x.to(device), torch.cat([region, near]).to(device))
    # Of no samples; on the CPU, whose count is as large, memory would not do.
    assert not results[0].any()
    torch.testing.assert_close(results[1:].cpu(), _POOLS[name](x, near))


def test_gradients_of_the_cpu():
    rois = _regions(2).double()
    x = torch.randn(2, 6, 5, 6, dtype=torch.double, requires_grad=True)
    for name, function in _POOLS.items():
        torch.autograd.gradcheck(lambda x: function(x, rois), x)  # noqa: B023
        assert name


def test_errors(device):
    with pytest.raises(RuntimeError, match="boxes should have 4 elements"):
        ops.nms(torch.rand(3, 5, device=device), torch.rand(3, device=device), 0.5)
    x = torch.rand(1, 5, 4, 4, device=device)
    rois = torch.rand(3, 5, device=device)
    with pytest.raises(RuntimeError, match="input channels must be a multiple"):
        ops.ps_roi_pool(x, rois, 2)


def test_ops_that_the_cpu_lacks_name_the_cause():
    """In another process: vision_oracle.py is not registered there."""
    program = """
import torch, torch_opencl, torchvision
boxes = torch.tensor([[0., 0, 4, 4], [0, 0, 4, 4]])
print(torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9]), 0.5).tolist())
if not torchvision.extension._has_ops.__module__.startswith("torch_opencl"):
    print("loaded")
else:
    regions = torch.zeros(1, 5)
    torchvision.ops.roi_align(torch.zeros(1, 2, 4, 4), regions, 2)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.stdout.startswith("[1]\n")
    is_missing = "torchvision::roi_align is not available" in done.stderr
    assert is_missing or "loaded" in done.stdout


@pytest.mark.parametrize("masked", [False, True])
def test_gradient_of_samples_at_the_edge(device, masked):
    """A row of zeros lies around the image: the slope at -1 is that to the first pixel."""
    x, weight = torch.randn(1, 4, 7, 6), torch.randn(5, 4, 3, 3)
    mask = torch.rand(1, 9, 7, 6) if masked else None
    incoming = torch.randn(1, 5, 7, 6)
    gradients = []
    for place in ("cpu", device):
        offset = torch.zeros(1, 18, 7, 6, device=place, requires_grad=True)
        given = [None if t is None else t.to(place) for t in (x, weight, mask)]
        y = ops.deform_conv2d(given[0], offset, given[1], padding=1, mask=given[2])
        y.backward(incoming.to(place))
        gradients.append(offset.grad.cpu())
    assert (gradients[0][0, 0, 0] != 0).any()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


def test_nms_at_the_threshold(device):
    """Overlaps of 3/10, which lies on either side of 0.3 as it is rounded."""
    for dtype in (torch.float32, torch.float64):
        boxes = torch.tensor([[0, 0, 10, 1], [0, 0, 3, 1]], dtype=dtype)
        scores = torch.tensor([0.9, 0.8], dtype=dtype)
        overlap = float(torch.tensor(3, dtype=dtype) / 10)
        for at in (overlap, 0.3, float(torch.tensor(0.3))):
            for threshold in (at, math.nextafter(at, 0), math.nextafter(at, 1)):
                result = ops.nms(boxes.to(device), scores.to(device), threshold)
                assert torch.equal(result.cpu(), ops.nms(boxes, scores, threshold))


def test_nan_is_never_the_largest(device):
    x = torch.randn(1, 2, 4, 4)
    x[0, 0, 0, 0] = float("nan")
    x[0, 1, :2, :2] = float("nan")
    x[0, 1, 2:, 2:] = -float("inf")
    rois = torch.tensor([[0.0, 0, 0, 3, 3]])
    results = []
    for place in ("cpu", device):
        leaf = x.detach().to(place).requires_grad_()
        y = ops.roi_pool(leaf, rois.to(place), 2)
        y.sum().backward()
        results.append((y.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def _rois_of(draws):
    """Regions of two images, of uniform numbers."""
    return torch.cat([draws[:, :1].round(), draws[:, 1:] * 4], 1)


_SAMPLERS = {
    "grid_sample": lambda x, grid: torch.nn.functional.grid_sample(
        x, grid, align_corners=False
    ),
    "roi_align": lambda x, grid: ops.roi_align(
        x, _rois_of(grid.reshape(-1, 5)[:9]), 4, sampling_ratio=2
    ),
    "deform_conv2d": lambda x, grid: ops.deform_conv2d(
        x,
        grid.reshape(-1)[: 2 * 18 * 30].view(2, 18, 5, 6),
        torch.ones_like(x)[:, :, :3, :3],
    ),
}


@pytest.mark.parametrize("name", _SAMPLERS)
def test_gradients_of_sampled_pixels_on_gpus(device, request, name):
    """They are sorted by pixel once for all channels, and the same each time."""
    x, grid = torch.randn(2, 6, 7, 8), torch.rand(2, 20, 50, 2)
    x, grid = x.to(device).requires_grad_(), grid.to(device)

    def gradient():
        return torch.autograd.grad(_SAMPLERS[name](x, grid).square().sum(), x)[0]

    assert torch.equal(gradient(), gradient())
    if request.config.getoption("gpu_class"):
        with torch.opencl.profile() as profile:
            gradient()
            torch.opencl.synchronize(device)
        used = {entry.name.split(":")[-1] for entry in profile.kernels}
        assert "scatter_chunks" in used
        assert not any("image_backward" in kernel for kernel in used)
