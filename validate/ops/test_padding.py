"""Padding by repetition, reflection, wrapping and constants, and its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import (
    FLOATS,
    LAYOUTS,
    check,
    check_error,
    contiguous,
    offset,
    strided,
    transposed,
)

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


# Around the 16 elements of a vector: of a row's inside, and of a pixel's channels.
@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_runs(device, mode, spatial):
    for width in (5, 15, 16, 17, 20, 21, 37):
        for padding in ((1, 1), (4, 2), (-1, 3), (3, -2), (-4, 4), (0, 0), (-1, -1)):
            sides = padding + (1, 2) * (spatial - 1)
            x = torch.randn(2, 3, *(4,) * (spatial - 1), width)
            check(lambda x: F.pad(x, sides, mode), [x], device)  # noqa: B023


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_runs_of_pixels(device, mode, dtype):
    for channels in (2, 3, 15, 16, 17, 40):
        for padding in ((1, 1, 2, 3), (-1, 4, 3, -2), (-4, 4, 0, 0)):
            x = torch.randn(2, channels, 5, 7).to(memory_format=torch.channels_last)
            check(lambda x: F.pad(x, padding, mode), [x], device, dtype)  # noqa: B023
    x = torch.randn(2, 17, 3, 4, 5).to(memory_format=torch.channels_last_3d)
    check(lambda x: F.pad(x, (1, 2, -1, 2, 2, 1), mode), [x], device, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_complex_numbers(device, mode, dtype, layout):
    line = torch.randn(2, 3, 5, dtype=dtype)
    check(lambda x: F.pad(x, (3, 2), mode), [line], device)
    x = layout(torch.randn(2, 3, 5, 6, dtype=dtype))
    check(lambda x: F.pad(x, (3, 2, 1, 4), mode), [x], device)
    x = layout(torch.randn(2, 3, 4, 5, 6, dtype=dtype))
    check(lambda x: F.pad(x, (1, 2, -1, 2, 2, 1), mode), [x], device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_memory_format_without_a_batch(device, mode, dtype):
    x = torch.randn(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    result, expected = (F.pad(t, (1,) * 6, mode) for t in (x.to(device), x))
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)


def gradient_of(name, grad, x, padding):
    return getattr(torch.ops.aten, f"{name}_backward")(grad, x, padding)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_gradients_in_other_layouts(device, kind, spatial):
    name = f"{kind}_pad{spatial}d"
    sizes = (6, 5, 18)[-spatial:]
    padding = (2, 1) * spatial
    x = torch.randn(2, 17, *sizes)
    grad = torch.randn(2, 17, *(size + 3 for size in sizes))
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(spatial)
    inputs = [x] if last is None else [x, x.to(memory_format=last)]
    grads = [
        grad,
        grad.movedim(1, -1).contiguous().movedim(-1, 1),
        grad.transpose(-1, 0).contiguous().transpose(-1, 0),
        torch.stack([grad, grad], -1)[..., 0],
        torch.cat([grad, grad], 1).movedim(1, -1).contiguous().movedim(-1, 1)[:, 3:20],
        torch.randn(()).expand(grad.shape),
    ]
    for x in inputs:
        for g in grads:
            check(
                lambda g, x: gradient_of(name, g, x, padding),
                [g, x],
                device,
                backward=False,
            )


def test_gradient_into_any_layout(device):
    x = torch.randn(2, 17, 5, 18)
    grad = torch.randn(2, 17, 8, 21)
    padding = (2, 1, 2, 1)
    expected = gradient_of("reflection_pad2d", grad, x, padding)
    for make in (
        lambda: torch.empty(2, 17, 5, 36, device=device)[..., ::2],
        lambda: torch.empty(2, 5, 18, 20, device=device)[..., 1:18].movedim(-1, 1),
        lambda: torch.empty(18, 5, 17, 2, device=device).permute(3, 2, 1, 0),
    ):
        out = make()
        torch.ops.aten.reflection_pad2d_backward.grad_input(
            grad.to(device), x.to(device), padding, grad_input=out
        )
        torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_keeps_channels_last(device, mode):
    x = torch.randn(2, 5, 6, 7).to(memory_format=torch.channels_last)
    expected = F.pad(x, (1, 2, 3, 4), mode)
    result = F.pad(x.to(device), (1, 2, 3, 4), mode)
    assert result.stride() == expected.stride()
    x = torch.randn(2, 5, 4, 6, 7).to(memory_format=torch.channels_last_3d)
    check(lambda x: F.pad(x, (1, 2) * 3, mode), [x], device, strides=True)


def test_gradient_of_nothing_is_contiguous(device):
    """And 0, where the CPU's memory is not written."""

    def crop(x):
        return F.pad(x, (0, 0, 0, 0, 0, -1), "reflect")

    x = torch.randn(1, 2, 1, 5, 4).to(memory_format=torch.channels_last_3d)
    check(crop, [x], device, backward=False, strides=True)
    leaves = [x.requires_grad_(), x.detach().to(device).requires_grad_()]
    expected, result = (torch.autograd.grad(crop(it).sum(), it)[0] for it in leaves)
    assert result.device.type == device.type
    assert result.dtype == expected.dtype
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), torch.zeros_like(expected))


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
        lambda x: torch.ops.aten.reflection_pad2d.out(x, (0, 0, 0, 0), out=x.half()),
        lambda x: torch.ops.aten.reflection_pad2d.out(x, (0, 0, 0, 0), out=x.double()),
        lambda x: torch.ops.aten.reflection_pad2d_backward(x.half(), x, (0, 0, 0, 0)),
        lambda x: torch.ops.aten.reflection_pad1d_backward(x[0].half(), x[0], (0, 0)),
        lambda x: torch.ops.aten.replication_pad2d_backward.grad_input(
            x, x, (0, 0, 0, 0), grad_input=x.half()
        ),
        lambda x: torch.ops.aten.replication_pad2d_backward(x, x.cfloat(), (0,) * 4),
    ],
)
def test_refuses_what_the_cpu_refuses(device, call):
    x = torch.randn(1, 2, 3, 4)
    check_error(call, device, x)
