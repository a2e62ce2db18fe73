"""torchvision's C++ ops in terms of torch's own, for the CPU.

What the device's kernels are tested against where torchvision's extension does not
load (torch_opencl/vision.py). Signatures are those of the schemas; regions are rows
of (image, left, top, right, bottom).

Pooling a region is linear in the image and separable: a matrix from each side
says what a bin sees of rows and of columns.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _samples(start: Tensor, bin_size: Tensor, bins: int, ratio: int, size: int):
    """(regions, bins, size): what a bin's samples see, on average."""
    count = torch.ceil(bin_size).long()
    if ratio > 0:
        count = torch.full_like(count, ratio)
    most = max(int(count.max()), 1)
    step = torch.arange(most, dtype=start.dtype)
    bin_index = torch.arange(bins, dtype=start.dtype)
    start, bin_size = start[:, None, None], bin_size[:, None, None]
    divisor = count[:, None, None]
    at = start + bin_index[:, None] * bin_size
    at = at + (step + 0.5) * bin_size / divisor.clamp(min=1)
    counts = (step < divisor) & (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.floor().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    weight = torch.where(low == size - 1, 0, at - low)
    share = counts / divisor.clamp(min=1).to(start.dtype)
    matrix = start.new_zeros(*at.shape[:2], size)
    matrix.scatter_add_(2, low.long(), share * (1 - weight))
    return matrix.scatter_add_(2, high.long(), share * weight)


def _sampled(rois, scale, height, width, ratio, aligned, sensitive, image_size):
    """The matrices of both sides, of roi_align or ps_roi_align."""
    shift = 0.5 if aligned or sensitive else 0.0
    left, top, right, bottom = (rois[:, 1:] * scale - shift).unbind(1)
    wide, high = right - left, bottom - top
    if not aligned and not sensitive:
        wide, high = wide.clamp(min=1), high.clamp(min=1)
    return (
        _samples(top, high / height, height, ratio, image_size[-2]),
        _samples(left, wide / width, width, ratio, image_size[-1]),
    )


def _round(x: Tensor) -> Tensor:
    return torch.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor())


def _bounds(start, stop, bins, inclusive, limit):
    """First and last (exclusive) elements of each bin: (regions, bins)."""
    bin_size = (stop - start + inclusive).clamp(min=1) / bins
    index = torch.arange(bins, dtype=start.dtype)
    begin = (index * bin_size[:, None]).floor() + start[:, None]
    end = ((index + 1) * bin_size[:, None]).ceil() + start[:, None]
    return begin.clamp(0, limit).long(), end.clamp(0, limit).long()


def _cells(rois, scale, height, width, inclusive, limits):
    left, top, right, bottom = _round(rois[:, 1:] * scale).unbind(1)
    rows = _bounds(top, bottom, height, inclusive, limits[0])
    columns = _bounds(left, right, width, inclusive, limits[1])
    return rows, columns


def _averages(begin: Tensor, end: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    at = torch.arange(size)
    inside = (at >= begin[..., None]) & (at < end[..., None])
    return inside.to(dtype) / (end - begin).clamp(min=1)[..., None]


def _apply(image: Tensor, rois: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    result = [rows[k] @ image[int(rois[k, 0])] @ columns[k].T for k in range(len(rois))]
    empty = image.new_empty(0, image.size(1), rows.size(1), columns.size(1))
    return torch.stack(result) if result else empty


def _apply_backward(grad: Tensor, rois: Tensor, rows, columns, image_size) -> Tensor:
    result = grad.new_zeros(image_size)
    for k in range(len(rois)):
        result[int(rois[k, 0])] += rows[k].T @ grad[k] @ columns[k]
    return result


def roi_align(
    input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
) -> Tensor:
    if len(rois) == 0:
        return input.new_empty(0, input.size(1), pooled_height, pooled_width)
    rows, columns = _sampled(
        rois,
        spatial_scale,
        pooled_height,
        pooled_width,
        sampling_ratio,
        aligned,
        False,
        input.shape,
    )
    return _apply(input, rois, rows, columns)


def _roi_align_backward(
    grad, rois, scale, pooled_height, pooled_width, *size_and_sampling
) -> Tensor:
    *size, ratio, aligned = size_and_sampling
    if len(rois) == 0:
        return grad.new_zeros(size)
    rows, columns = _sampled(
        rois, scale, pooled_height, pooled_width, ratio, aligned, False, size
    )
    return _apply_backward(grad, rois, rows, columns, size)


def _channel_mapping(regions: int, channels: int, height: int, width: int) -> Tensor:
    mapping = torch.arange(channels * height * width, dtype=torch.int32)
    shape = (regions, channels, height, width)
    return mapping.view(shape[1:]).expand(shape).contiguous()


def _sensitive(image: Tensor, rois, rows, columns, height: int, width: int):
    """Bin (ph, pw) of output channel c sees image channel (c, ph, pw)."""
    channels = image.size(1) // (height * width)
    mapping = _channel_mapping(len(rois), channels, height, width)
    if len(rois) == 0:
        return image.new_empty(0, channels, height, width), mapping
    every = _apply(image, rois, rows, columns)
    every = every.view(len(rois), channels, height, width, height, width)
    return torch.einsum("kcpqpq->kcpq", every).contiguous(), mapping


def _sensitive_backward(grad, rois, rows, columns, size) -> Tensor:
    if len(rois) == 0:
        return grad.new_zeros(size)
    height, width = grad.shape[-2:]
    every = grad.new_zeros(*grad.shape, height, width)
    torch.einsum("kcpqpq->kcpq", every).copy_(grad)
    every = every.view(len(rois), size[1], height, width)
    return _apply_backward(every, rois, rows, columns, size)


def _sensitive_samples(rois, scale, height, width, ratio, image_size):
    if len(rois) == 0:
        return None, None
    return _sampled(rois, scale, height, width, ratio, False, True, image_size)


def ps_roi_align(
    input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio
) -> tuple[Tensor, Tensor]:
    rows, columns = _sensitive_samples(
        rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, input.shape
    )
    return _sensitive(input, rois, rows, columns, pooled_height, pooled_width)


def _ps_roi_align_backward(
    grad, rois, channel_mapping, scale, pooled_height, pooled_width, ratio, *size
) -> Tensor:
    rows, columns = _sensitive_samples(
        rois, scale, pooled_height, pooled_width, ratio, size
    )
    return _sensitive_backward(grad, rois, rows, columns, size)


def _cell_averages(rois, scale, pooled_height, pooled_width, size, dtype):
    height, width = size[-2:]
    rows, columns = _cells(
        rois, scale, pooled_height, pooled_width, 0, (height - 1, width - 1)
    )
    return _averages(*rows, height, dtype), _averages(*columns, width, dtype)


def ps_roi_pool(
    input, rois, spatial_scale, pooled_height, pooled_width
) -> tuple[Tensor, Tensor]:
    rows, columns = _cell_averages(
        rois, spatial_scale, pooled_height, pooled_width, input.shape, input.dtype
    )
    return _sensitive(input, rois, rows, columns, pooled_height, pooled_width)


def _ps_roi_pool_backward(
    grad, rois, channel_mapping, scale, pooled_height, pooled_width, *size
) -> Tensor:
    rows, columns = _cell_averages(
        rois, scale, pooled_height, pooled_width, size, grad.dtype
    )
    return _sensitive_backward(grad, rois, rows, columns, size)


def roi_pool(
    input, rois, spatial_scale, pooled_height, pooled_width
) -> tuple[Tensor, Tensor]:
    height, width = input.shape[-2:]
    (top, bottom), (left, right) = _cells(
        rois, spatial_scale, pooled_height, pooled_width, 1, (height, width)
    )
    shape = (len(rois), input.size(1), pooled_height, pooled_width)
    pooled = input.new_zeros(shape)
    argmax = torch.full(shape, -1, dtype=torch.int32)
    for k in range(len(rois)):
        image = input[int(rois[k, 0])]
        for ph in range(pooled_height):
            for pw in range(pooled_width):
                y, x = int(top[k, ph]), int(left[k, pw])
                cell = image[:, y : int(bottom[k, ph]), x : int(right[k, pw])]
                if cell[0].numel() == 0:
                    continue
                lowest = -torch.finfo(torch.float32).max
                cell = torch.where(cell > lowest, cell, lowest)  # NaN, too
                value, index = cell.flatten(1).max(1)
                pooled[k, :, ph, pw] = value
                across = cell.size(2)
                at = (y + index // across) * width + (x + index % across)
                argmax[k, :, ph, pw] = torch.where(value > lowest, at, -1)
    return pooled, argmax


def _roi_pool_backward(
    grad, rois, argmax, spatial_scale, pooled_height, pooled_width, *size
) -> Tensor:
    batch_size, channels, height, width = size
    result = grad.new_zeros(batch_size, channels, height * width)
    for k in range(len(rois)):
        at = argmax[k].flatten(1).long()
        shares = torch.where(at < 0, 0, grad[k].flatten(1))
        result[int(rois[k, 0])].scatter_add_(1, at.clamp(min=0), shares)
    return result.view(batch_size, channels, height, width)


def _deformable_columns(input, weight, offset, mask, geometry, offset_groups):
    """(images, channels, taps, positions), differentiable."""
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w = geometry
    images, channels, height, width = input.shape
    taps_h, taps_w = weight.shape[-2:]
    taps = taps_h * taps_w
    out_h, out_w = offset.shape[-2:]
    rows = torch.arange(out_h) * stride_h - pad_h
    columns = torch.arange(out_w) * stride_w - pad_w
    tap_rows = torch.arange(taps_h).repeat_interleave(taps_w) * dilation_h
    tap_columns = torch.arange(taps_w).repeat(taps_h) * dilation_w
    offset = offset.reshape(images, offset_groups, taps, 2, out_h, out_w)
    y = offset[:, :, :, 0] + (rows[:, None] + tap_rows[:, None, None])
    x = offset[:, :, :, 1] + (columns + tap_columns[:, None, None])
    low_y, low_x = y.detach().floor(), x.detach().floor()
    image = input.reshape(images, offset_groups, -1, height * width)
    result = 0
    for down in (0, 1):
        for right in (0, 1):
            at_y, at_x = low_y + down, low_x + right
            seen = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
            share = (y - low_y if down else low_y + 1 - y) * (
                x - low_x if right else low_x + 1 - x
            )
            index = at_y.clamp(0, height - 1) * width + at_x.clamp(0, width - 1)
            index = (
                index.long().flatten(2)[:, :, None].expand(-1, -1, image.size(2), -1)
            )
            value = image.gather(3, index)
            result = result + value * (share * seen).flatten(2)[:, :, None]
    if mask is not None:
        result = result * mask.reshape(images, offset_groups, 1, -1)
    return result.reshape(images, channels, taps, out_h * out_w)


def deform_conv2d(input, weight, offset, mask, bias, *options) -> Tensor:
    """`options` as torchvision's schema names them, from `stride_h` to `use_mask`."""
    *geometry, groups, offset_groups, use_mask = options
    columns = _deformable_columns(
        input, weight, offset, mask if use_mask else None, geometry, offset_groups
    )
    images = input.size(0)
    columns = columns.reshape(images, groups, -1, columns.size(-1))
    matrices = weight.reshape(groups, weight.size(0) // groups, -1)
    result = (matrices @ columns).reshape(images, weight.size(0), *offset.shape[-2:])
    return result + bias.view(1, -1, 1, 1)


def _deform_conv2d_backward(grad, input, weight, offset, mask, bias, *options):
    # Below autograd: its keys are excluded while a kernel runs.
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU) | (
        torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    )
    tensors = [t.detach().requires_grad_() for t in (input, weight, offset, mask, bias)]
    with (
        torch._C._ForceDispatchKeyGuard(
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set() - keys,
        ),
        torch.enable_grad(),
    ):
        result = deform_conv2d(*tensors, *options)
        return torch.autograd.grad(
            result, tensors, grad, allow_unused=True, materialize_grads=True
        )


_OPS = (
    roi_align,
    _roi_align_backward,
    roi_pool,
    _roi_pool_backward,
    ps_roi_align,
    _ps_roi_align_backward,
    ps_roi_pool,
    _ps_roi_pool_backward,
    deform_conv2d,
    _deform_conv2d_backward,
)
# A Library's registrations live as long as it does.
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Gives the CPU these ops where it has none of torchvision's, and one that is
    wrong there: the gradient of ps_roi_pool where a region crosses an edge."""
    import torchvision  # noqa: F401

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    is_there = has_kernel("torchvision::roi_align", "CPU")
    library = torch.library.Library("torchvision", "IMPL")
    _libraries.append(library)
    for function in (_ps_roi_pool_backward,) if is_there else _OPS:
        library.impl(function.__name__, function, "CPU", allow_override=is_there)
