"""Padding by repetition, reflection, wrapping and constants, and its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, LAYOUTS, check, contiguous, offset, strided, transposed

MODES = ("reflect", "replicate", "circular", "constant")
# from the last dimension on
PADDINGS = {
    1: [(0, 0), (2, 3), (6, 1), (-2, 3), (4, -5)],
    2: [(1, 2, 3, 0), (4, 4, 6, 6), (-1, 2, 0, -3), (0, 0, 5, 2)],
    3: [(1, 2, 3, 0, 2, 1), (-1, 4, 6, -2, 0, 1)],
}
SIZES = (3, 7, 7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_sizes(device, spatial, mode):
    for padding in PADDINGS[spatial]:
        if mode == "circular" and min(padding) < 0:
            continue
        for outer in ((2, 3), (3,), (0, 3), (1, 1)):
            x = torch.randn(*outer, *SIZES[-spatial:])
            if mode == "circular" and len(outer) == 1:
                continue
            check(lambda x: F.pad(x, padding, mode), [x], device)  # noqa: B023


@pytest.mark.parametrize("padding", [(70, 1), (1, 70), (-60, 129), (129, -129)])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_long_rows(device, mode, padding):
    check(lambda x: F.pad(x, padding, mode), [torch.randn(2, 3, 130)], device)


@pytest.mark.parametrize("layout", [contiguous, transposed, strided, offset])
@pytest.mark.parametrize("dtype", FLOATS)
def test_replication_1d_layouts_and_dtypes(device, layout, dtype):
    x = layout(torch.randn(2, 5, 65))
    check(lambda x: F.pad(x, (3, 2), "replicate"), [x], device, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_layouts(device, mode, layout):
    x = layout(torch.randn(2, 67, 5, 6))
    check(lambda x: F.pad(x, (3, 2, 1, 4), mode), [x], device)
    x = layout(torch.randn(2, 3, 4, 5, 6))
    check(lambda x: F.pad(x, (3, 2, 1, 4, 3, 0), mode), [x], device)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_keeps_channels_last(device, mode):
    x = torch.randn(2, 5, 6, 7).to(memory_format=torch.channels_last)
    expected = F.pad(x, (1, 2, 3, 4), mode)
    result = F.pad(x.to(device), (1, 2, 3, 4), mode)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [*FLOATS, torch.uint8, torch.int64])
@pytest.mark.parametrize("mode", MODES)
def test_dtypes(device, mode, dtype):
    x = (torch.randn(2, 3, 5, 6) * 9).abs().to(dtype)
    if dtype.is_floating_point:
        check(lambda x: F.pad(x, (3, 2, 1, 4), mode), [x.float()], device, dtype)
    else:
        result = F.pad(x.to(device), (3, 2, 1, 4), mode).cpu()
        assert torch.equal(result, F.pad(x, (3, 2, 1, 4), mode))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch._C._nn.replication_pad1d(x[0, 0, 0], (1, 1)),
        lambda x: torch._C._nn.replication_pad1d(x[0, :, :0], (1, 1)),
        lambda x: torch._C._nn.reflection_pad2d(x, (4, 0, 0, 0)),
        lambda x: torch._C._nn.reflection_pad2d(x, (0, 0, 0, 3)),
        lambda x: torch._C._nn.reflection_pad2d(x, (0, 0)),
        lambda x: torch._C._nn.reflection_pad2d(x[0, 0], (0, 0, 0, 0)),
        lambda x: torch._C._nn.reflection_pad2d(x, (-4, 0, -3, 0)),
        lambda x: torch._C._nn.reflection_pad2d(x.bool(), (1, 1, 1, 1)),
        lambda x: torch._C._nn.replication_pad3d(x[0], (1, 1, 1, 1, 1, 1)),
        lambda x: torch.ops.aten.reflection_pad2d_backward(x, x, (1, 1, 0, 0)),
        lambda x: torch.ops.aten.replication_pad2d_backward(x, x, (0, 0, 1, 0)),
        lambda x: torch.ops.aten.replication_pad2d_backward(x, x, (0, 0)),
    ],
)
def test_refuses_what_the_cpu_refuses(device, call):
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(Exception) as expected:
        call(x)
    with pytest.raises(type(expected.value)) as raised:
        call(x.to(device))
    assert str(raised.value) == str(expected.value)
