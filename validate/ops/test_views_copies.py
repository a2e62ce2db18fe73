"""Copies between host and device, layouts, and views of one storage."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)
EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    # integers below 2^7, which every dtype holds exactly
    return torch.randint(0, 100, shape).to(dtype)


@st.composite
def layouts(draw, dimensions: int = 4, size: int = 7):
    """Shape, strides and offset of a view without overlap."""
    rank = draw(st.integers(0, dimensions))
    shape = draw(st.lists(st.integers(0, size), min_size=rank, max_size=rank))
    steps = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = [0] * rank
    extent = 1
    for dimension in draw(st.permutations(range(rank))):
        strides[dimension] = extent * steps[dimension]
        extent = strides[dimension] * max(shape[dimension], 1)
    return shape, strides, draw(st.integers(0, 5))


def view_of(layout, device: torch.device, base: torch.Tensor | None = None):
    """The view and the storage-wide tensor under it."""
    shape, strides, offset = layout
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 0)
    if base is None:
        base = values(offset + last + 1)
    base = base.to(device)
    return base.as_strided(shape, strides, offset), base


@EXAMPLES
@given(layout=layouts())
def test_strided_tensor_to_host(device, layout):
    host, base = view_of(layout, torch.device("cpu"))
    on_device, _ = view_of(layout, device, base)
    assert torch.equal(on_device.cpu(), host)
    assert torch.equal(on_device.contiguous().cpu(), host)


@EXAMPLES
@given(layout=layouts())
def test_host_into_strided_tensor_leaves_the_gaps(device, layout):
    host, base = view_of(layout, torch.device("cpu"))
    on_device, device_base = view_of(layout, device, base)
    source = values(*host.shape)
    host.copy_(source)
    on_device.copy_(source)
    assert torch.equal(device_base.cpu(), base)


@EXAMPLES
@given(layout=layouts(), other=st.permutations(range(4)))
def test_strided_to_strided_on_the_device(device, layout, other):
    host, base = view_of(layout, torch.device("cpu"))
    on_device, device_base = view_of(layout, device, base)
    order = [dimension for dimension in other if dimension < host.dim()]
    back = [order.index(dimension) for dimension in range(host.dim())]
    source = values(*(host.shape[dimension] for dimension in order))
    host.copy_(source.permute(back))
    on_device.copy_(source.to(device).permute(back))
    assert torch.equal(device_base.cpu(), base)


@EXAMPLES
@given(layout=layouts(), source=st.sampled_from(DTYPES), target=st.sampled_from(DTYPES))
def test_conversion_of_strided_tensors(device, layout, source, target):
    _, base = view_of(layout, torch.device("cpu"))
    host, base = view_of(layout, torch.device("cpu"), base.to(source))
    on_device, _ = view_of(layout, device, base)
    expected = host.to(target)
    assert torch.equal(on_device.to(target).cpu(), expected)
    filled = torch.empty(host.shape, dtype=target, device=device)
    filled.copy_(on_device)
    assert torch.equal(filled.cpu(), expected)
    # between devices of different dtypes
    assert torch.equal(host.to(device, target).cpu(), expected)
    into_host = torch.empty(host.shape, dtype=target)
    into_host.copy_(on_device)
    assert torch.equal(into_host, expected)


PLAIN_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


@pytest.mark.parametrize("target", PLAIN_DTYPES)
@pytest.mark.parametrize("source", PLAIN_DTYPES)
def test_conversion_of_neighbouring_elements(device, source, target):
    """Of any start and number, nothing around them is written."""
    lowest = (
        -120 if source.is_signed and (target.is_signed or target == torch.uint8) else 0
    )
    host = (torch.rand(70_001, dtype=torch.float64) * (120 - lowest) + lowest).to(
        source
    )
    there = host.to(device)
    for start, count in ((0, 70_001), (1, 16), (3, 1), (5, 0), (7, 37), (2, 69_990)):
        result = torch.full((count + 40,), 77, dtype=target).to(device)
        result[20:-20].copy_(there[start : start + count])
        expected = torch.full((count + 40,), 77, dtype=target)
        expected[20:-20] = host[start : start + count].to(target)
        assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("source", [torch.float32, torch.float64])
def test_conversion_of_large_floats_to_integers(device, source):
    host = torch.tensor([3e9, 5.0, 2.0**31, 2.0**32 - 256, 0.0], dtype=source)
    whole = host.repeat(29)
    for target in (torch.uint32, torch.int64, torch.uint64):
        assert torch.equal(whole.to(device).to(target).cpu(), whole.to(target))
    whole = torch.cat([whole, -whole, torch.tensor([2.0**60, -(2.0**63)]).repeat(16)])
    assert torch.equal(whole.to(device).long().cpu(), whole.long())
    beyond = torch.tensor([1e19, 2.0**63, 1.8e19, -3.7], dtype=source).repeat(40, 3)
    for view in (beyond, beyond[:, 1::2], beyond.bfloat16()):
        assert torch.equal(
            view.to(device).to(torch.uint64).cpu(), view.to(torch.uint64)
        )


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.float32])
def test_conversion_of_large_integers_to_floats(device, target):
    """Rounded once, inside the range of int32 and outside of it."""
    host = torch.cat(
        [
            torch.randint(-(2**31), 2**31, (99,)),
            torch.randint(-(2**62), 2**62, (99,)),
            2 ** torch.arange(63) + 2 ** torch.arange(63).sub(25).clamp(min=0),
        ]
    ).repeat(3)
    assert torch.equal(host.to(device).to(target).cpu(), host.to(target))


# Results of 32 MiB and more are stored non-temporally.
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.float64),
        (torch.int64, torch.int64),
        (torch.int16, torch.float32),
        (torch.float32, torch.int32),
        (torch.bool, torch.uint8),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.bfloat16),
        (torch.float64, torch.float16),
        (torch.bfloat16, torch.int64),
    ],
)
def test_conversions_larger_than_caches(device, source, target):
    count = 2**25 // target.itemsize + 7
    host = torch.randint(0, 2 if source == torch.bool else 100, (count + 3,)).to(source)
    there = host.to(device)
    for start in (0, 3):
        result = torch.empty(count, dtype=target, device=device)
        result.copy_(there[start : start + count])
        assert torch.equal(result.cpu(), host[start : start + count].to(target))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_large_copies_keep_every_bit(device, dtype):
    """Those of NaNs, too."""
    bits = torch.randint(-(2**62), 2**62, (2**22 + 3,))
    bits[::7] = 0x7FF0_0000_7C01_7F80
    there = bits.to(device).view(dtype)
    assert torch.equal(there.clone().view(torch.int64).cpu(), bits)


@pytest.mark.parametrize("target", [torch.int32, torch.uint8, torch.int64, torch.bool])
def test_conversion_from_float_truncates(device, target):
    host = torch.tensor([0.0, 0.4, 0.9, 1.5, 2.999, 100.1])
    assert torch.equal(host.to(device).to(target).cpu(), host.to(target))


def test_conversion_to_bool_of_nan_and_small_values(device):
    host = torch.tensor([0.0, -0.0, float("nan"), float("inf"), 1e-40, -3.0])
    assert torch.equal(host.to(device).bool().cpu(), host.bool())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_conversion_to_half_rounds_to_nearest_even(device, dtype):
    host = torch.cat(
        [
            torch.linspace(-70000, 70000, 4001),
            torch.randn(4000) * 1e-6,
            torch.tensor([0.0, -0.0, 65504.0, 65519.9, 65520.0, float("inf")]),
            torch.tensor([float("-inf"), float("nan"), 2.0**-24, 2.0**-25, 1e-45]),
            1 + torch.arange(64) / 2048,
        ]
    )
    result = host.to(device).to(dtype).cpu()
    torch.testing.assert_close(result, host.to(dtype), rtol=0, atol=0, equal_nan=True)
    back = result.to(device).float().cpu()
    torch.testing.assert_close(back, result.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (1, 1, 1)])
def test_small_shapes(device, shape):
    host = values(*shape)
    assert torch.equal(host.to(device).cpu(), host)
    assert torch.equal(host.to(device).clone().cpu(), host)
    assert torch.equal(host.to(device).double().float().cpu(), host)


def test_layouts_survive_transfer(device):
    host = values(2, 5, 4, 3).contiguous(memory_format=torch.channels_last)
    on_device = host.to(device)
    assert on_device.stride() == host.stride()
    assert on_device.is_contiguous(memory_format=torch.channels_last)
    assert on_device.cpu().stride() == host.stride()
    assert torch.equal(on_device.cpu(), host)
    assert on_device.contiguous().stride() == host.contiguous().stride()
    assert torch.equal(on_device.contiguous().cpu(), host)
    again = on_device.contiguous().contiguous(memory_format=torch.channels_last)
    assert again.stride() == host.stride()
    assert torch.equal(again.cpu(), host)
    transposed = values(4, 6).t()
    assert transposed.to(device).stride() == transposed.stride()
    assert torch.empty_like(on_device).stride() == host.stride()


def test_expanded_source(device):
    row = values(5)
    host = row.expand(4, 5)
    on_device = row.to(device).expand(4, 5)
    assert on_device.stride() == (0, 1)
    assert torch.equal(on_device.cpu(), host)
    assert torch.equal(on_device.clone().cpu(), host)
    target = torch.zeros(4, 5, device=device)
    target.copy_(row)
    assert torch.equal(target.cpu(), host)


def test_views_share_their_storage(device):
    base = torch.zeros(6, 4, device=device)
    base[1::2, ::3] = 1
    base.t()[2] = 2
    base.view(-1)[-1:] = 3
    base.unfold(0, 2, 4)[0, 1, 1] = 4
    base.diagonal().add_(10)
    expected = torch.zeros(6, 4)
    expected[1::2, ::3] = 1
    expected.t()[2] = 2
    expected.view(-1)[-1:] = 3
    expected.unfold(0, 2, 4)[0, 1, 1] = 4
    expected.diagonal().add_(10)
    assert torch.equal(base.cpu(), expected)
    assert base[2:].data_ptr() == base.data_ptr() + 8 * 4


def test_reinterpreted_storage(device):
    host = torch.randn(8)
    on_device = host.to(device)
    assert torch.equal(on_device.view(torch.int32).cpu(), host.view(torch.int32))
    assert torch.equal(on_device.view(torch.uint8).cpu(), host.view(torch.uint8))


def test_copy_onto_itself_and_within_one_storage(device):
    on_device = values(10).to(device)
    expected = on_device.cpu()
    on_device.copy_(on_device)
    assert torch.equal(on_device.cpu(), expected)
    on_device[:5].copy_(on_device[5:])
    expected[:5].copy_(expected[5:].clone())
    assert torch.equal(on_device.cpu(), expected)
    square = values(5, 5).to(device)
    expected = square.cpu()
    square[:, :2].copy_(square[:, 3:])
    expected[:, :2].copy_(expected[:, 3:].clone())
    assert torch.equal(square.cpu(), expected)


def test_writing_to_an_expanded_tensor_is_refused(device):
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.zeros(1, device=device).expand(3).add_(1)
    x = torch.ones(1, device=device).expand(3)
    x.copy_(x.detach())  # the same view: nothing is written
    with pytest.raises(RuntimeError, match="more than one element"):
        x.copy_(x.clone())


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(device, dtype):
    host, base = view_of(([3, 4], [9, 2], 1), torch.device("cpu"), values(40).to(dtype))
    on_device, device_base = view_of(([3, 4], [9, 2], 1), device, base)
    for value in (1, 0, True):
        assert torch.equal(on_device.fill_(value).cpu(), host.fill_(value))
        assert torch.equal(device_base.cpu(), base)
    assert torch.equal(
        torch.full((7,), 5, dtype=dtype, device=device).cpu(),
        torch.full((7,), 5, dtype=dtype),
    )
    assert on_device.zero_().sum().item() == 0


COMPLEX = (torch.complex32, torch.complex64, torch.complex128)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("number", [0, 2 - 3j, 1e6 + 1j, complex(-torch.inf, 0)])
def test_fill_of_complex(device, dtype, number):
    """Overlapping elements get one number."""

    def same(mine, expected):
        parts = (torch.view_as_real(x.cpu()) for x in (mine, expected))
        torch.testing.assert_close(*parts, rtol=0, atol=0)

    for count in (1, 5):
        expected = torch.ones(3, 1, dtype=dtype).expand(3, count)
        mine = torch.ones(3, 1, dtype=dtype, device=device).expand(3, count)
        same(mine.fill_(number), expected.fill_(number))
        gaps = torch.ones(4, 6, dtype=dtype)
        mine = gaps.to(device)
        mine.t()[::2].conj().fill_(number)
        gaps.t()[::2].conj().fill_(number)
        same(mine, gaps)


def test_set_data_of_a_view_changed_in_place(device):
    """Its gradient function is made anew behind `view.data = other`, as on the CPU."""
    leaf = torch.ones(6, 3, device=device, requires_grad=True)
    base = leaf.flip(0)
    view = base[6:, ::2]
    base.add_(0.5)
    view.data = base
    torch.autograd.backward([base, view], [torch.ones(6, 3, device=device)] * 2)
    assert leaf.grad.cpu().eq(2).all()


def test_fill_with_a_tensor(device):
    on_device = torch.zeros(3, device=device)
    assert on_device.fill_(torch.tensor(2.5)).tolist() == [2.5] * 3
    assert on_device.fill_(torch.tensor(1.5, device=device)).tolist() == [1.5] * 3
    x = torch.arange(4.0, device=device)
    assert x.fill_(x[2]).tolist() == [2] * 4


def test_item_of_every_dtype(device):
    for dtype in DTYPES:
        assert torch.ones(3, dtype=dtype, device=device)[1].item() == 1
    assert torch.tensor([1, 2**40 + 1], device=device)[1].item() == 2**40 + 1


def test_non_blocking_round_trip(device):
    host = torch.randn(1 << 16)
    pinned = host if device.type == "cpu" else host.pin_memory()
    on_device = pinned.to(device, non_blocking=True)
    doubled = on_device * 2
    back = torch.empty_like(pinned)
    back = back if device.type == "cpu" else back.pin_memory()
    back.copy_(doubled, non_blocking=True)
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    assert torch.equal(back, host * 2)


def test_pageable_source_may_change_after_a_non_blocking_copy(device):
    host = torch.randn(1 << 20)
    expected = host.clone()
    on_device = host.to(device, non_blocking=True)
    if device.type == "cpu":
        pytest.skip("the CPU's own copy is a view")
    host.zero_()
    assert torch.equal(on_device.cpu(), expected)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 5)])
def test_copy_with_broadcast(device, shape):
    source = values(shape[-1])
    target = torch.zeros(shape, dtype=torch.int32)
    on_device = target.to(device)
    assert torch.equal(on_device.copy_(source.to(device)).cpu(), target.copy_(source))


def test_copy_of_a_wrong_shape_is_refused(device):
    with pytest.raises(RuntimeError, match="must match"):
        torch.zeros(3, device=device).copy_(torch.zeros(4, device=device))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_than_2_31_elements(device):
    count = 2**31 + 5
    if device.type == "opencl":
        largest = torch.opencl.get_device_properties(device).max_allocation
        if largest < count:
            pytest.skip(f"one allocation of this device holds {largest} bytes")
    large = torch.empty(count, dtype=torch.uint8, device=device)
    large.fill_(1)
    large[2**31 - 1 : 2**31 + 1] = 3
    large[-1] = 7
    assert large[-1].item() == 7
    assert large[2**31 - 2 :].tolist() == [1, 3, 3, 1, 1, 1, 7]
    assert large.sum(dtype=torch.uint8).item() == (count + 4 + 6) % 256
    assert large.add_(1)[2**31 - 2 :].tolist() == [2, 4, 4, 2, 2, 2, 8]


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "float16")])
@pytest.mark.parametrize("size", [(16, 16), (70, 300), (130, 33), (3, 17, 20, 31)])
def test_transposing_copies(device, size, dtypes):
    source = torch.randn(size).to(getattr(torch, dtypes[0]))
    moved = source.to(device)
    for tensor, expected in (
        (moved.transpose(-1, -2), source.transpose(-1, -2)),
        (moved.transpose(0, 1), source.transpose(0, 1)),
        (moved.movedim(0, -1), source.movedim(0, -1)),
    ):
        wanted = getattr(torch, dtypes[1])
        copy = torch.empty(expected.shape, dtype=wanted, device=device).copy_(tensor)
        assert torch.equal(copy.cpu(), expected.to(wanted).contiguous())


@pytest.mark.parametrize("size", [(2304, 4096), (2311, 4096), (2, 64, 300, 256)])
def test_large_transposing_copies(device, size):
    """Past the caches, and lines a multiple of 1 KiB apart."""
    source = torch.randn(size)
    moved = source.to(device)
    for a, b in ((0, 1), (-1, -2), (1, -1)):
        result = moved.transpose(a, b).contiguous()
        assert torch.equal(result.cpu(), source.transpose(a, b))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_widens_exactly(device, dtype):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    halves = bits.view(dtype)
    found = halves.to(device).float().cpu()
    assert torch.equal(found.nan_to_num(7.0), halves.float().nan_to_num(7.0))
    assert torch.equal(found.isnan(), halves.isnan())
    # NVIDIA's vload_half makes one NaN of all.
    is_number = ~halves.isnan()
    assert torch.equal(found.signbit() & is_number, halves.signbit() & is_number)


def test_narrow_copy(device):
    x = torch.randn(5, 3)
    for arguments in ((0, 1, 2), (1, -2, 2), (-1, 0, 0)):
        expected = x.t().narrow_copy(*arguments)
        result = x.to(device).t().narrow_copy(*arguments)
        assert torch.equal(result.cpu(), expected)
        assert result.stride() == expected.stride()
        out = torch.empty(0, device=device)
        torch.narrow_copy(x.to(device).t(), *arguments, out=out)
        assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize(
    "arguments",
    [(0, 3, 5), (4, 0, 1), (-4, 0, 1), (0, -9, 1), (0, 0, -1), (0, 6, 0)],
)
def test_narrow_copy_errors_are_the_cpus(device, arguments):
    x = torch.randn(5, 3)
    for sample in (x, x[0, 0]):
        with pytest.raises(Exception) as expected:
            sample.narrow_copy(*arguments)
        with pytest.raises(type(expected.value)) as raised:
            sample.to(device).narrow_copy(*arguments)
        # Behind the text some errors have where they were raised.
        text = str(expected.value).splitlines()[0]
        assert str(raised.value).splitlines()[0] == text
