"""float8: conversions bit by bit, copies, and the few ops that the CPU has for it."""

from __future__ import annotations

import pytest
import torch
from against_cpu import move, offset, strided, transposed
from conformance.dtypes import DTYPES

FORMATS = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
OTHERS = tuple(x for x in DTYPES if x not in (*FORMATS, *_UNSIGNED))
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _every(format) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8).view(format)


def _finite(format, *size) -> torch.Tensor:
    return (torch.rand(size) + 0.5).to(format)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """What a tensor's memory holds, as integers."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.cpu().contiguous().view(_BITS[tensor.element_size()])


def _assert_same_bits(result, expected):
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert torch.equal(_bits(result), _bits(expected))


def _floats() -> torch.Tensor:
    """Floats about every value and every tie of the formats, and beyond."""
    values = torch.cat([_every(format).float() for format in FORMATS])
    ties = torch.cat([values, (values[1:] + values[:-1]) / 2]).view(torch.int32)
    near = torch.cat([ties + step for step in (-1, 0, 1)])
    random = torch.randint(-(2**31), 2**31, (20011,)).to(torch.int32)
    return torch.cat([near, random]).view(torch.float32)


@pytest.mark.parametrize("format", FORMATS)
def test_every_value_becomes_a_float(device, format):
    _assert_same_bits(_every(format).to(device).float(), _every(format).float())


@pytest.mark.parametrize("format", FORMATS)
def test_floats_are_rounded(device, format):
    x = _floats()
    _assert_same_bits(x.to(device).to(format), x.to(format))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("format", FORMATS)
def test_every_half_is_rounded(device, format, dtype):
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    _assert_same_bits(x.to(device).to(format), x.to(format))


@pytest.mark.parametrize("dtype", OTHERS)
@pytest.mark.parametrize("format", FORMATS)
def test_conversions(device, format, dtype):
    x = _every(format)
    x = x[x.float().isfinite() & (x.float().abs() < 2**31)]
    if not dtype.is_complex:
        x = x[x.float().abs() < 2**7] if not dtype.is_floating_point else x
    else:
        x = x[x.float().abs() < 60000]
    _assert_same_bits(x.to(device).to(dtype), x.to(dtype))
    values = torch.randint(-100, 100, (1013,)).to(dtype)
    if dtype.is_floating_point:
        values = (torch.randn(1013) * 10).to(dtype)
    _assert_same_bits(values.to(device).to(format), values.to(format))


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("format", FORMATS)
def test_between_formats(device, format, to):
    _assert_same_bits(_every(format).to(device).to(to), _every(format).to(to))


@pytest.mark.parametrize("layout", [transposed, strided, offset])
@pytest.mark.parametrize("format", FORMATS)
def test_layouts(device, format, layout):
    x = layout((torch.rand(7, 37) + 0.5).to(torch.float32))
    _assert_same_bits(move(x, device).to(format), x.to(format))
    q = x.to(format)
    on_device = q.to(device)
    _assert_same_bits(on_device.t().contiguous(), q.t().contiguous())
    _assert_same_bits(on_device[::2, 1::3].double(), q[::2, 1::3].double())
    wide = torch.zeros(7, 80, dtype=format, device=device)
    wide[:, 3:77:2] = move(x, device)
    expected = torch.zeros(7, 80, dtype=format)
    expected[:, 3:77:2] = x
    _assert_same_bits(wide, expected)


@pytest.mark.parametrize("size", [(0,), (1,), (3, 0), (), (100003,)])
@pytest.mark.parametrize("format", FORMATS)
def test_sizes(device, format, size):
    x = torch.rand(size) + 0.5
    _assert_same_bits(x.to(device).to(format), x.to(format))
    q = x.to(format)
    _assert_same_bits(q.to(device).float(), q.float())
    _assert_same_bits(q.to(device).clone(), q)


@pytest.mark.parametrize("format", FORMATS)
def test_expanded_sources_and_broadcasts(device, format):
    x = torch.rand(5, 1) + 0.5
    result = torch.empty(3, 5, 4, dtype=format, device=device)
    result.copy_(x.to(device))
    expected = torch.empty(3, 5, 4, dtype=format).copy_(x)
    _assert_same_bits(result, expected)


_MAKERS = {
    "zeros": lambda d, f: torch.zeros(5, dtype=f, device=d),
    "ones": lambda d, f: torch.ones(5, dtype=f, device=d),
    "full": lambda d, f: torch.full((5,), 1.3, dtype=f, device=d),
    "fill_": lambda d, f: torch.empty(2, 3, dtype=f, device=d).fill_(3),
    "fill_ strided": lambda d, f: torch.zeros(5, 4, dtype=f, device=d).t().fill_(2.7),
    "fill_ a tensor": lambda d, f: torch.zeros(4, dtype=f, device=d).fill_(
        torch.tensor(2.2, device=d)
    ),
    "fill_ too much": lambda d, f: torch.zeros(4, dtype=f, device=d).fill_(1e30),
    "fill_ one": lambda d, f: torch.zeros(1, dtype=f, device=d).fill_(1e30),
    "fill_ nan": lambda d, f: torch.zeros(4, dtype=f, device=d).fill_(float("nan")),
    "tensor": lambda d, f: torch.tensor([1.0, 2.3], dtype=f, device=d),
    "eye": lambda d, f: torch.eye(3, device=d).to(f),
}


@pytest.mark.parametrize("name", _MAKERS)
@pytest.mark.parametrize("format", FORMATS)
def test_factories(device, format, name):
    try:
        expected = _MAKERS[name]("cpu", format)
    except RuntimeError as error:
        with pytest.raises(type(error)) as raised:
            _MAKERS[name](device, format)
        assert str(raised.value).split("\n")[0] == str(error).split("\n")[0]
    else:
        _assert_same_bits(_MAKERS[name](device, format), expected)


_INDEX = torch.tensor([2, 0, 1])
_MOVES = {
    "cat": lambda q: torch.cat([q, q[1:]]),
    "stack": lambda q: torch.stack([q, q], 1),
    "index": lambda q: q[_INDEX.to(q.device)],
    "index_select": lambda q: q.index_select(1, _INDEX.to(q.device)),
    "flip": lambda q: q.flip(0),
    "roll": lambda q: q.roll(2, 1),
    "where": lambda q: torch.where(q.float() > 0.9, q, q.flip(0)),
    "masked_select": lambda q: q.masked_select(q.float() > 0.9),
    "pad": lambda q: torch.nn.functional.pad(q, (1, 2), value=1),
    "embedding": lambda q: torch.nn.functional.embedding(_INDEX.to(q.device), q),
    "index_put": lambda q: q.clone().index_put_((_INDEX.to(q.device),), q[1].clone()),
    "view": lambda q: q.view(torch.uint8),
    "repeat": lambda q: q.repeat(2, 3),
    "eq": lambda q: q == q.flip(0),
    "ne": lambda q: q != q[0],
    "eq a number": lambda q: q == 0.7,
    "isnan": lambda q: q.isnan(),
    "isinf": lambda q: q.isinf(),
    "isfinite": lambda q: q.isfinite(),
    "abs": lambda q: q.abs(),
    "mul": lambda q: q * q.flip(0),
    "any": lambda q: q.any(),
    "all": lambda q: q.all(1),
    "mm": lambda q: q[:3, :4] @ q[:4, :5],
    "item": lambda q: torch.tensor(q[1, 1].item()),
    "lt": lambda q: q < q,
    "add": lambda q: q + q,
    "add a float": lambda q: q + q.float(),
    "neg": lambda q: -q,
    "sum": lambda q: q.sum(),
    "max": lambda q: q.max(),
    "sort": lambda q: q.sort(),
    "softmax": lambda q: q.softmax(1),
    "relu": lambda q: q.relu(),
    "nonzero": lambda q: q.nonzero(),
    "equal": lambda q: torch.tensor(torch.equal(q, q)),
    "bmm": lambda q: q[None] @ q.t()[None],
    "repr": lambda q: torch.tensor(list(repr(q).split("]]")[0].encode())),
}
# Moves of bytes that the CPU refuses for some formats.
_ALSO_TAKEN = ("equal", "index_put")


@pytest.mark.parametrize("name", _MOVES)
@pytest.mark.parametrize("format", FORMATS)
def test_ops(device, format, name):
    """What the CPU takes has its result, and the rest its type of error."""
    q = _finite(format, 7, 11)
    try:
        expected = _MOVES[name](q)
    except (RuntimeError, NotImplementedError) as error:
        if name in _ALSO_TAKEN:
            return
        with pytest.raises(type(error)):
            _MOVES[name](q.to(device))
        return
    _assert_same_bits(_MOVES[name](q.to(device)), expected)


def test_item_of_every_format(device):
    for format in FORMATS:
        x = torch.tensor([0.5, 2.0]).to(format).to(device)
        assert x[1].item() == 2.0, format
        assert x.tolist() == [0.5, 2.0], format


@pytest.mark.parametrize("format", FORMATS)
def test_special_values(device, format):
    every = _every(format)
    for name in ("where", "eq", "isnan", "isinf", "abs", "view"):
        q = every.view(16, 16)
        try:
            expected = _MOVES[name](q)
        except NotImplementedError:
            continue
        result = _MOVES[name](q.to(device))
        if name == "abs":  # the CPU's leaves signs to NaN and to zero
            result, expected = (
                x.float().nan_to_num() + 0.0 for x in (result, expected)
            )
        _assert_same_bits(result, expected)


def test_in_a_file(device, tmp_path):
    q = _finite(torch.float8_e4m3fn, 5, 3).to(device)
    torch.save(q, tmp_path / "q")
    _assert_same_bits(torch.load(tmp_path / "q"), q.cpu())


def test_overlapping_operands_are_refused(device):
    memory = torch.zeros(9, dtype=torch.uint8, device=device)
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        memory[1:].view(torch.float8_e5m2).copy_(memory[:8])


def test_nothing_falls_back(device):
    torch.opencl.reset_fallback_stats()
    q = torch.rand(5, device=device).to(torch.float8_e4m3fn)
    assert ((q * q).float() == q.float()).any().item() in (True, False)
    assert not torch.opencl.fallback_stats()
