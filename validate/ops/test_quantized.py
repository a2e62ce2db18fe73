"""Products by int8 and int4 weights: any rows, layouts of what is packed, errors."""

from __future__ import annotations

import pytest
import torch
from against_cpu import move, offset, strided, transposed
from tolerance import assert_matches

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# What a decoder has, what registers hold, and more than they do.
ROWS = [1, 2, 3, 5, 8, 9, 40]


def _bytes(*size: int, dtype=torch.int8) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, size, dtype=dtype)


def _judge(result, x, weight):
    """Against products in float64, and in float32 rounded once as the CPU's are."""
    reference = x.double() @ weight.double().t()
    baseline = (x.float() @ weight.float().t()).to(x.dtype)
    assert_matches(result, reference, baseline)


# -- int8 weights


def _int8(rows, depth, lines, dtype=torch.float32):
    x = torch.randn(rows, depth).to(dtype)
    return x, _bytes(lines, depth), (torch.rand(lines) + 0.1).to(dtype)


def _check_int8(device, x, weight, scales):
    result = torch._weight_int8pack_mm(
        move(x, device), move(weight, device), move(scales, device)
    )
    assert result.dtype == x.dtype
    _judge(result, x, weight.double() * scales.double()[:, None])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
def test_int8_rows(device, rows, dtype):
    _check_int8(device, *_int8(rows, 277, 45, dtype))


@pytest.mark.parametrize(
    ("depth", "lines"), [(1, 1), (15, 3), (16, 7), (31, 8), (4133, 19), (64, 521)]
)
@pytest.mark.parametrize("rows", [1, 17])
def test_int8_sizes(device, rows, depth, lines):
    _check_int8(device, *_int8(rows, depth, lines))


@pytest.mark.parametrize("rows", [2, 12])
def test_int8_layouts(device, rows):
    x, weight, scales = _int8(rows, 100, 33)
    wide = torch.full((rows, 130), float("nan"))
    wide[:, 7:107] = x
    _check_int8(device, wide[:, 7:107], offset(weight), strided(scales))
    _check_int8(device, x[:1].expand(rows, -1), weight, scales[:1].expand(33))


@pytest.mark.parametrize("sizes", [(0, 5, 4), (3, 0, 4), (12, 0, 4), (3, 5, 0)])
def test_int8_of_nothing(device, sizes):
    rows, depth, lines = sizes
    x, weight, scales = _int8(rows, depth, lines)
    result = torch._weight_int8pack_mm(*(t.to(device) for t in (x, weight, scales)))
    assert torch.equal(result.cpu(), torch.zeros(rows, lines))


# -- int8 by int8


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("right", [transposed, torch.Tensor.contiguous, strided])
@pytest.mark.parametrize("rows", [1, 4, 8, 9, 33])
def test_int_mm(device, rows, right, dtype):
    a, b = _bytes(rows, 77, dtype=dtype), right(_bytes(77, 29))
    expected = a.long() @ b.long()
    result = torch._int_mm(move(a, device), move(b, device))
    assert result.dtype == torch.int32
    assert torch.equal(result.cpu().long(), expected)
    out = torch.empty(rows, 29, dtype=torch.int32, device=device)
    assert torch._int_mm(move(a, device), move(b, device), out=out) is out
    assert torch.equal(out.cpu().long(), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("depth", [511, 1024, 1025, 20011])
def test_int_mm_is_exact(device, depth, rows, dtype):
    # The largest sums there are, odd so that a rounding shows.
    a = torch.full((rows, depth), torch.iinfo(dtype).max, dtype=dtype)
    b = torch.full((depth, 19), 127, dtype=torch.int8)
    b[:, 1::2] = -128
    b[-1] = 1
    result = torch._int_mm(a.to(device), transposed(b).to(device))
    assert torch.equal(result.cpu().long(), a.long() @ b.long())


@pytest.mark.parametrize("sizes", [(0, 5, 4), (3, 0, 4), (12, 0, 4), (3, 5, 0)])
def test_int_mm_of_nothing(device, sizes):
    rows, depth, lines = sizes
    result = torch._int_mm(
        _bytes(rows, depth).to(device), _bytes(depth, lines).to(device)
    )
    assert torch.equal(result.cpu(), torch.zeros(rows, lines, dtype=torch.int32))


# -- int4 weights


def _packed(values: torch.Tensor, inner: int) -> torch.Tensor:
    """What CUDA's kernel packs, value by value."""
    lines, depth = values.shape
    padded = torch.zeros(-(-lines // 8) * 8, depth, dtype=torch.int64)
    padded[:lines] = values
    # [line tile][line][depth tile][word's i][tile half][eight][pair][odd]
    parts = padded.view(-1, 8, depth // (16 * inner), inner // 2, 2, 2, 4, 2)
    words = torch.zeros_like(parts[:, :, :, :, 0, 0, :, 0])
    for half in range(2):
        for eight in range(2):
            for odd in range(2):
                shift = 16 * odd + 8 * half + 4 * eight
                words |= parts[:, :, :, :, half, eight, :, odd] << shift
    # [line tile][line][depth tile][i][t] to [line tile][depth tile][line, t][i]
    words = words.permute(0, 2, 1, 4, 3).reshape(len(padded) // 8, -1, 32, inner // 2)
    return words.where(words < 2**31, words - 2**32).int()


def _bytes_of(values: torch.Tensor) -> torch.Tensor:
    return (values[:, ::2] << 4 | values[:, 1::2]).to(torch.uint8)


def _int4(rows, depth, lines, group, dtype=torch.bfloat16):
    x = torch.randn(rows, depth).to(dtype)
    values = torch.randint(0, 16, (lines, depth), dtype=torch.int32)
    pairs = torch.rand(depth // group, lines, 2) + 0.1
    pairs[..., 1] -= 0.6
    return x, values, pairs.to(dtype)


def _dequantized(values, group, pairs):
    scale, zero = pairs.double().repeat_interleave(group, 0).unbind(-1)
    return (values.double() - 8) * scale.t() + zero.t()


def _check_int4(device, x, values, group, pairs, inner):
    weight = torch._convert_weight_to_int4pack(_bytes_of(values).to(device), inner)
    result = torch._weight_int4pack_mm(move(x, device), weight, group, pairs.to(device))
    assert result.dtype == x.dtype
    _judge(result, x, _dequantized(values, group, pairs))


@pytest.mark.parametrize("inner", [2, 4, 8])
@pytest.mark.parametrize("lines", [1, 8, 19])
def test_int4_is_packed_as_cuda_packs(device, lines, inner):
    values = torch.randint(0, 16, (lines, 3 * 16 * inner), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack(_bytes_of(values).to(device), inner)
    assert torch.equal(packed.cpu(), _packed(values, inner))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
def test_int4_rows(device, rows, dtype):
    x, values, pairs = _int4(rows, 384, 40, 128, dtype)
    _check_int4(device, x, values, 128, pairs, 8)


@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize("inner", [2, 4, 8])
@pytest.mark.parametrize("rows", [1, 4, 11])
def test_int4_groups(device, rows, inner, group):
    x, values, pairs = _int4(rows, 768, 24, group)
    _check_int4(device, offset(x), values, group, pairs, inner)


def test_int4_as_the_cpu(device):
    x, values, pairs = _int4(3, 256, 64, 64, torch.float32)
    packed = torch._convert_weight_to_int4pack_for_cpu(values, 8)
    expected = torch._weight_int4pack_mm_for_cpu(x, packed, 64, pairs)
    weight = torch._convert_weight_to_int4pack(_bytes_of(values).to(device), 8)
    result = torch._weight_int4pack_mm(x.to(device), weight, 64, pairs.to(device))
    reference = x.double() @ _dequantized(values, 64, pairs).t()
    assert_matches(result, reference, expected)


@pytest.mark.parametrize("rows", [1, 10])
def test_int4_plain(device, rows):
    x, values, pairs = _int4(rows, 96, 13, 32)
    scales = pairs[..., 0].contiguous()
    zeros = torch.randint(0, 16, scales.shape, dtype=torch.int8)
    words = (values[:, 1::2] << 4 | values[:, ::2]).to(torch.uint8).view(torch.int32)
    result = torch.ops.aten._weight_int4pack_mm_with_scales_and_zeros(
        *(t.to(device) for t in (x, words)), 32, scales.to(device), zeros.to(device)
    )
    spread = [t.double().repeat_interleave(32, 0).t() for t in (scales, zeros)]
    _judge(result, x, (values.double() - spread[1]) * spread[0])


def test_int4_of_nothing(device):
    x, values, pairs = _int4(0, 128, 8, 32)
    weight = torch._convert_weight_to_int4pack(_bytes_of(values).to(device), 8)
    result = torch._weight_int4pack_mm(x.to(device), weight, 32, pairs.to(device))
    assert result.shape == (0, 8)


def test_weights_longer_than_a_block_of_lines(device):
    # multiply_dequantized takes several blocks.
    _check_int8(device, *_int8(9, 32768, 150))


# -- errors


def _messages(function, *tensors):
    for device in (torch.device("cpu"), None):
        with pytest.raises((RuntimeError, IndexError)) as caught:
            function(*(t.to(device) if device else t for t in tensors))
        yield type(caught.value), str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda x, w, s: (x.double(), w, s),
        lambda x, w, s: (x.t(), w, s),
        lambda x, w, s: (x[0], w, s),
        lambda x, w, s: (x, w.int(), s),
        lambda x, w, s: (x, w.t(), s),
        lambda x, w, s: (x, w[:, :5].contiguous(), s),
        lambda x, w, s: (x, w, s[:3]),
        lambda x, w, s: (x.half(), w, s),
    ],
)
def test_int8_errors(device, change):
    tensors = change(*(t.to(device) for t in _int8(4, 64, 8)))
    expected, found = _messages(torch._weight_int8pack_mm, *tensors)
    assert found == (expected[0], expected[1].replace("_cpu", ""))


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b: (a.float(), b),
        lambda a, b: (a, b.float()),
        lambda a, b: (a, b.to(torch.uint8)),
        lambda a, b: (a[0], b),
        lambda a, b: (a, b[0]),
        lambda a, b: (a, b[:5]),
    ],
)
def test_int_mm_errors(device, change):
    tensors = change(_bytes(4, 64).to(device), _bytes(64, 8).to(device))
    expected, found = _messages(torch._int_mm, *tensors)
    assert found == expected


def test_int4_errors(device):
    x, values, pairs = (t.to(device) for t in _int4(2, 128, 8, 32))
    weight = torch._convert_weight_to_int4pack(_bytes_of(values), 8)
    product = torch._weight_int4pack_mm
    for text, arguments in [
        ("expect A to be either 32-bit", (x.double(), weight, 32, pairs)),
        ("expect A to be contiguous", (x.expand(2, 2, -1)[:, 0], weight, 32, pairs)),
        ("expect B to be int32", (x, weight.long(), 32, pairs)),
        ("packed by _convert_weight", (x[:, :64].contiguous(), weight, 32, pairs)),
        ("expect qGroupSize to be 32, 64", (x, weight, 33, pairs)),
        ("expect qScaleAndZeros to be 3d", (x, weight, 64, pairs)),
        ("expected scalar type BFloat16", (x, weight, 32, pairs.float())),
    ]:
        with pytest.raises(RuntimeError, match=text):
            product(*arguments)
    with pytest.raises(RuntimeError, match="innerKTiles == 2"):
        torch._convert_weight_to_int4pack(_bytes_of(values), 3)
    with pytest.raises(RuntimeError, match=r"in\.dtype"):
        torch._convert_weight_to_int4pack(values, 8)
