"""Compiled code at edges: integers that wrap around, tails of vectors, empty rows, places
in tensors of other strides, and expanded inputs that are replayed."""

from __future__ import annotations

import re

import pytest
import torch
from torch._inductor.utils import run_and_get_code

pytestmark = [pytest.mark.gpu_class, pytest.mark.usefixtures("fresh_inductor")]

_WRAPPING = {
    "abs": lambda x: (x * x).abs(),
    "sign": lambda x: (x * x).sign(),
    "remainder": lambda x: (x * x) % 7,
    "quotient": lambda x: (x * x) // 3,
    "shift": lambda x: (x * x) >> 1,
    "comparison": lambda x: x * x < 0,
    "wider": lambda x: (x * x).to(torch.int64),
    "float": lambda x: (x * x).float(),
    "maximum": lambda x: torch.maximum(x * x, torch.zeros_like(x)),
    "sum": lambda x: (x + x).clamp(min=0),
    "difference": lambda x: (-x - x - 2).clamp(min=0),
    "power": lambda x: (x**3).abs(),
    "rows": lambda x: ((x * x).view(8, 5).abs() % 7).sum(1),
    "total": lambda x: (x * 2**40).sum().abs() if x.dtype == torch.int64 else x.sum(),
    "product": lambda x: x.prod().abs(),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", _WRAPPING)
def test_integers_wrap_around(device, name, dtype):
    most = torch.iinfo(dtype).max
    root = int(most**0.5)
    x = torch.cat(
        [torch.tensor([most, most // 2 + 1, root + 9]), root + torch.arange(37)]
    )
    x = x.to(dtype)
    compiled = torch.compile(_WRAPPING[name], fullgraph=True)
    assert torch.equal(compiled(x.to(device)).cpu(), _WRAPPING[name](x))


_BOOLS = {
    "bool": lambda x: (x % 3).bool(),
    "not": lambda x: torch.logical_not(x + 1),
    "any": lambda x: (x * 2).any(1),
    "all": lambda x: (x + 1).all(1),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.int64, torch.float16, torch.float64]
)
@pytest.mark.parametrize("name", _BOOLS)
def test_bools_of_numbers(device, name, dtype):
    x = (torch.arange(2 * 37) % 5 - 2).to(dtype).view(2, 37)
    compiled = torch.compile(_BOOLS[name], fullgraph=True)
    assert torch.equal(compiled(x.to(device)).cpu(), _BOOLS[name](x))


# Of products of half types, which differ from what is stored of them.
_OF_STORED = {
    "isinf": lambda x: torch.isinf(x * x),
    "bool": lambda x: (x * 1e-6).bool(),
    "not": lambda x: torch.logical_not(x * 1e-6),
    "any": lambda x: (x * 1e-6).any(1),
    "place": lambda x: (x * 1.7).argmax(1),
    "greatest": lambda x: (x * 1.7).max(1)[1],
    "integer": lambda x: (x * 1.7).int(),
    "floor": lambda x: (x * 1.7).floor(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", _OF_STORED)
def test_questions_see_what_is_stored(device, name, dtype):
    row = torch.cat([torch.linspace(1, 1.02, 64), torch.tensor([300.0, 0.01, 0])])
    x = torch.stack([row, row * 2**-12, row.flip(0)]).to(dtype)
    if dtype == torch.bfloat16 and name == "isinf":
        x *= 1e18
    compiled = torch.compile(_OF_STORED[name], fullgraph=True)
    assert torch.equal(compiled(x.to(device)).cpu(), _OF_STORED[name](x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bits_of_half_types(device, dtype):
    """A NaN keeps its payload."""
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)

    def unpack(x):
        return x.view(torch.int16) + 1

    def pack(x):
        return (x ^ 1).view(dtype)

    x = bits.view(dtype)
    assert torch.equal(torch.compile(unpack)(x.to(device)).cpu(), unpack(x))
    packed = torch.compile(pack)(bits.to(device)).cpu()
    assert torch.equal(packed.view(torch.int16), bits ^ 1)


def test_a_number_beside_its_complement(device):
    """Intel's driver 2026.22 gives another ~x beside max(x, y)."""

    def both(x, y):
        return torch.maximum(x, y), ~x, torch.minimum(x, y), -1 - y

    compiled = torch.compile(both, fullgraph=True)
    for dtype in (torch.int32, torch.int64):
        for shape in ((), (7,), (3, 50)):
            x, y = (torch.randint(-99, 99, shape).to(dtype) for _ in range(2))
            found = compiled(x.to(device), y.to(device))
            for mine, expected in zip(found, both(x, y), strict=True):
                assert torch.equal(mine.cpu(), expected)


def test_a_row_reads_what_it_then_writes(device):
    def scaled(x, scale):
        new = scale / 2 + x.abs().amax(1) / 2
        result = x / new[:, None]
        scale.copy_(new)
        return result

    x, scale = torch.randn(64, 1000), torch.rand(64)
    given = scale.to(device)
    found = torch.compile(scaled, fullgraph=True)(x.to(device), given)
    torch.testing.assert_close(found.cpu(), scaled(x, scale))
    torch.testing.assert_close(given.cpu(), scale)


def test_local_memory_of_many_sums(device):
    """A device may have no more than 32 KiB."""

    def spreads(x):
        return [(x + i).var(1) for i in range(30)]

    x = torch.randn(100, 1000)
    found, texts = run_and_get_code(torch.compile(spreads), x.to(device))
    for mine, expected in zip(found, spreads(x), strict=True):
        torch.testing.assert_close(mine.cpu(), expected)
    for kernel in "".join(texts).split("kernel __attribute__")[1:]:
        assert len(re.findall(r"^local \w+", kernel, re.M)) <= 64


def test_kernels_of_many_tensors(device):
    """A device may take no more than 1024 bytes of parameters."""

    def moved(xs):
        return [x.sin() + xs[0] for x in xs]

    xs = [torch.randn(50) for _ in range(70)]
    given = [x.to(device) for x in xs]
    found, texts = run_and_get_code(torch.compile(moved), given)
    for mine, expected in zip(found, moved(xs), strict=True):
        torch.testing.assert_close(mine.cpu(), expected)
    for head in re.findall(r"^void \w+\((.*)\) \{$", "".join(texts), re.M):
        assert head.count("TENSOR(") * 16 < 1024


def test_floats_that_only_uint64_holds(device):
    x = torch.tensor([1e19, 9.3e18, 2.0**63, 5.0, -3.7, 1e18]).repeat(9)

    def convert(x):
        return (x * 1).to(torch.uint64)

    assert torch.equal(torch.compile(convert)(x.to(device)).cpu(), convert(x))


_PLACES = {
    "transposed": lambda x: x.t().argmax(),
    "least": lambda x: x.t().argmin(),
    "kept": lambda x: x.t().argmax(keepdim=True),
    "computed": lambda x: (x.t() + 1).argmax(),
    "ties": lambda x: x.round().t().argmax(),
    "one dimension": lambda x: x.t().argmax(0),
    "contiguous": lambda x: x.argmax(),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", _PLACES)
def test_places_among_all_elements(device, name, dynamic):
    compiled = torch.compile(_PLACES[name], fullgraph=True, dynamic=dynamic)
    for shape in ((6, 7), (37, 61)):
        x = torch.randn(shape)
        result, expected = compiled(x.to(device)), _PLACES[name](x)
        assert torch.equal(result.cpu(), expected)
        assert result.shape == expected.shape


def test_places_in_channels_last(device):
    x = torch.randn(2, 8, 9, 10).contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(lambda x: (x.argmax(), (x * 2).argmin()), fullgraph=True)
    for mine, expected in zip(
        compiled(x.to(device)), (x.argmax(), x.argmin()), strict=True
    ):
        assert torch.equal(mine.cpu(), expected)


def test_computed_indices_end_within_a_vector(device):
    """Lanes beyond the end have indices beyond the tensor."""

    def read(x, first):
        return x[torch.arange(13, device=x.device) + first] + 1

    def write(x, values, first):
        return x.index_copy(0, torch.arange(9, device=x.device) + first, values)

    x, first = torch.randn(50), torch.tensor(37)
    result = torch.compile(read)(x.to(device), first.to(device))
    assert torch.equal(result.cpu(), read(x, first))
    x, values, first = torch.randn(20, 3), torch.randn(9, 3), torch.tensor(11)
    moved = [value.to(device) for value in (x, values, first)]
    assert torch.equal(torch.compile(write)(*moved).cpu(), write(x, values, first))
    torch.opencl.synchronize(device)
    result = torch.compile(read)(moved[0][:, 0].repeat(2), torch.tensor(28).to(device))
    with pytest.raises(IndexError, match="index 40 is out of bounds"):
        result.cpu()


def test_a_sum_of_as_many_as_the_data_has(device):
    def total(x):
        return x[x > 0].sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(total, fullgraph=True)
        for x in (torch.ones(5), -torch.ones(5), torch.arange(-3.0, 40)):
            assert compiled(x.to(device)).item() == total(x).item()


def test_replayed_inputs_that_are_expanded(device):
    compiled = torch.compile(lambda x, y: x + y, mode="reduce-overhead")
    for _ in range(4):
        x, y = torch.randn(6, 1), torch.randn(5)
        given = x.to(device).expand(6, 5), y.to(device)[None].expand(6, 5)
        assert torch.equal(compiled(*given).cpu(), x + y)
