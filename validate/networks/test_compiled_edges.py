"""Compiled code at edges: integers that wrap around, tails of vectors, empty rows, places
in tensors of other strides, and expanded inputs that are replayed."""

from __future__ import annotations

import pytest
import torch

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
