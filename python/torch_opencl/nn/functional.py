"""Functions behind the layers of :mod:`torch_opencl.nn`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import local_convolution_ops  # noqa: F401  (the gradients)

__all__ = ["local_conv2d"]


def _pair(value: int | Sequence[int], name: str) -> list[int]:
    values = [value, value] if isinstance(value, int) else list(value)
    if len(values) == 1:
        values *= 2
    if len(values) != 2:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of 2 values to "
            f"match the convolution dimensions, but got {name}={values}"
        )
    return values


def local_conv2d_size(
    size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Rows and columns of the output for an input of ``size``.

    Raises:
        RuntimeError: an option has no meaning, or the kernel exceeds the input.
    """
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(dilation) <= 0:
        raise RuntimeError("dilation should be greater than zero")
    padded = [n + 2 * p for n, p in zip(size, padding, strict=True)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel_size, strict=True)]
    if any(r > n for r, n in zip(reach, padded, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({padded[0]} x {padded[1]}). "
            f"Kernel size: ({reach[0]} x {reach[1]}). "
            "Kernel size can't be greater than actual input size"
        )
    return [(n - r) // s + 1 for n, r, s in zip(padded, reach, stride, strict=True)]


def local_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """A convolution with weights of their own at every position of the output.

    With a weight that is the same everywhere it is
    :func:`torch.nn.functional.conv2d`::

        local_conv2d(x, w[..., None, None].expand(*w.shape, rows, columns))

    On opencl no patches of the input are written; on other devices
    :func:`torch.nn.functional.unfold` makes them.

    Args:
        input: ``(N, in_channels, H, W)`` or ``(in_channels, H, W)``.
        weight: ``(out_channels, in_channels, kernel rows, kernel columns,
            output rows, output columns)``.
        bias: broadcast to ``(out_channels, output rows, output columns)``.
        stride: of the kernel, one number or (rows, columns).
        padding: zeros on both sides of the input.
        dilation: distance of the kernel's elements.

    Raises:
        RuntimeError: sizes or dtypes do not fit.
    """
    if input.dim() not in (3, 4):
        raise RuntimeError(
            "Expected 3D (unbatched) or 4D (batched) input to local_conv2d, but got "
            f"input of size: {list(input.shape)}"
        )
    if weight.dim() != 6:
        raise RuntimeError(
            "local_conv2d: expected a weight of 6 dimensions, (out_channels, "
            "in_channels, kernel rows, kernel columns, output rows, output columns), "
            f"but got weight of size {list(weight.shape)}"
        )
    if input.shape[-3] != weight.shape[1]:
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected input"
            f"{list(input.shape)} to have {weight.shape[1]} channels, but got "
            f"{input.shape[-3]} channels instead"
        )
    options = (
        _pair(stride, "stride"),
        _pair(padding, "padding"),
        _pair(dilation, "dilation"),
    )
    size = local_conv2d_size(input.shape[-2:], weight.shape[2:4], *options)
    if size != list(weight.shape[4:]):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected an output of "
            f"{list(weight.shape[4:])} positions, but input of size "
            f"{list(input.shape)} has {size}"
        )
    if bias is not None:
        wanted = [weight.shape[0], *size]
        try:
            fits = list(torch.broadcast_shapes(bias.shape, wanted)) == wanted
        except RuntimeError:
            fits = False
        if not fits:
            raise RuntimeError(
                f"Given weight of size {list(weight.shape)}, expected bias to be "
                f"broadcastable to {wanted}, but got bias of size {list(bias.shape)}"
            )
    kind = input.device.type
    is_known = torch.amp.is_autocast_available(kind)
    if is_known and torch.is_autocast_enabled(kind) and input.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
        input, weight = input.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype != input.dtype:
            raise RuntimeError(
                f"Input type ({input.dtype}) and {name} type ({other.dtype}) should "
                "be the same"
            )
    batch = input if input.dim() == 4 else input.unsqueeze(0)
    result = torch.ops.torch_opencl.local_conv2d(batch, weight, bias, *options)
    return result if input.dim() == 4 else result.squeeze(0)
