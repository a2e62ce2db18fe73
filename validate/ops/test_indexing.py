"""Indexing beyond torch's samples: order of sums, edges."""

import pytest
import torch
from against_cpu import check


def test_sums_of_equal_indices_are_reproducible(device):
    torch.manual_seed(0)
    index = torch.randint(0, 7, (5003,))
    values = torch.randn(5003, 3)
    expected = torch.zeros(7, 3, dtype=torch.float64)
    expected.index_add_(0, index, values.double())
    runs = []
    for _ in range(2):
        table = torch.zeros(7, 3, device=device)
        table.index_put_((index.to(device),), values.to(device), accumulate=True)
        runs.append(table.cpu())
    assert torch.equal(runs[0], runs[1])
    torch.testing.assert_close(runs[0].double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("channels_last", [False, True])
def test_cat_keeps_the_memory_format_and_promotes(device, channels_last):
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    parts = [torch.randn(2, c, 5, 3).to(memory_format=memory_format) for c in (3, 1, 4)]
    expected = torch.cat(parts, 1)
    result = torch.cat([part.to(device) for part in parts], 1)
    assert result.is_contiguous(memory_format=memory_format)
    assert torch.equal(result.cpu(), expected)
    mixed = [parts[0], parts[1].to(torch.float16), parts[2].long()]
    expected = torch.cat(mixed, 1)
    result = torch.cat([part.to(device) for part in mixed], 1)
    assert result.dtype == expected.dtype and torch.equal(result.cpu(), expected)


def test_cat_of_views_and_nothing(device):
    x = torch.randn(6, 10, device=device)
    pieces = [
        x[::2, 1:4],
        x[:3, 3:3],
        x.t()[:3, :3].t()[:, :2],
        torch.empty(0, device=device),
    ]
    expected = torch.cat([piece.cpu() for piece in pieces], 1)
    assert torch.equal(torch.cat(pieces, 1).cpu(), expected)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match except in"):
        torch.cat([x, x[:, :3]], 0)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 4096, 4099, 20001])
def test_nonzero_around_blocks(device, dtype, size):
    torch.manual_seed(size)
    x = torch.randint(0, 3, (size,)).to(dtype)
    assert torch.equal(x.to(device).nonzero().cpu(), x.nonzero())
    assert torch.equal(x.to(device)[x.to(device) != 0].cpu(), x[x != 0])


def test_nonzero_of_a_strided_tensor(device):
    x = torch.randint(0, 2, (7, 6, 5)).float()
    assert torch.equal(
        x.to(device).permute(2, 0, 1)[::2].nonzero().cpu(),
        x.permute(2, 0, 1)[::2].nonzero(),
    )


@pytest.mark.parametrize("scale_grad_by_freq", [False, True])
def test_embedding(device, scale_grad_by_freq):
    torch.manual_seed(1)
    weight = torch.randn(11, 5)
    index = torch.randint(0, 11, (4, 9))
    results = []
    for place in ("cpu", device):
        w = weight.to(place, copy=True).requires_grad_()
        y = torch.nn.functional.embedding(
            index.to(place), w, padding_idx=2, scale_grad_by_freq=scale_grad_by_freq
        )
        (y * torch.arange(5.0, device=place)).sum().backward()
        results.append((y.detach().cpu(), w.grad.cpu()))
    torch.testing.assert_close(results[0], results[1])


def test_masks_of_every_kind(device):
    x = torch.randn(5, 6)
    mask = x > 0
    y = x.to(device)
    assert torch.equal(torch.masked_select(y, mask.to(device)).cpu(), x[mask])
    row = mask[0]
    assert torch.equal(y[:, row.to(device)].cpu(), x[:, row])
    x[mask] = 3
    y[mask.to(device)] = 3
    assert torch.equal(y.cpu(), x)
    assert torch.equal(y, x.to(device)) and not torch.equal(y, (x + 1).to(device))


def test_half_sums_are_rounded_once(device):
    table = torch.zeros(3, 2, device=device, dtype=torch.bfloat16)
    index = torch.ones(1000, dtype=torch.int64, device=device)
    table.index_add_(0, index, torch.ones(1000, 2, device=device, dtype=torch.bfloat16))
    assert table[1].cpu().tolist() == [1000.0, 1000.0]


def test_embedding_gradient_at_padding_is_zero(device):
    weight = torch.randn(5, 2, device=device, requires_grad=True)
    index = torch.tensor([1, 2, 2], device=device)
    y = torch.nn.functional.embedding(index, weight, padding_idx=2)
    y.backward(torch.tensor([[1.0, 1], [float("inf"), 1], [1, 1]], device=device))
    assert weight.grad.cpu()[2].tolist() == [0, 0] and weight.grad.cpu()[
        1
    ].tolist() == [1, 1]


def test_flip_keeps_channels_last(device):
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    result = x.to(device).flip(1, 3)
    assert result.stride() == x.flip(1, 3).stride()
    assert torch.equal(result.cpu(), x.flip(1, 3))


def _same(x, y, call):
    result, expected = call(y), call(x)
    assert torch.equal(result.cpu(), expected)
    assert result.stride() == expected.stride()


_DTYPES = [
    torch.bool,
    torch.bfloat16,
    torch.float32,
    torch.int64,
    torch.complex64,
    torch.complex128,
]


# Rows around the lengths of vectors, and of pixels of three channels.
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 49, 8195])
def test_flips_and_rolls_of_rows(device, dtype, width):
    for channels in (1, 2, 3, 4):
        x = torch.randint(100, (2, 3, width, channels)).to(dtype)
        y = x.to(device)
        for dims in (
            (),
            (0,),
            (1,),
            (2,),
            (3,),
            (2, 3),
            (1, 3),
            (-1, -4),
            (0, 1, 2, 3),
        ):
            _same(x, y, lambda x, dims=dims: x.flip(dims))
        _same(x, y, lambda x: x.roll(3))
        for dims in ((0,), (2,), (2, 3), (3, 1), (-2, 0), (2, 2)):
            shifts = (5, -2)[: len(dims)]
            _same(x, y, lambda x, dims=dims, shifts=shifts: x.roll(shifts, dims))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_roll_by_nothing_is_laid_out_as_on_the_cpu(device, batch):
    x = torch.randn(batch, 5, 3, 4).contiguous(memory_format=torch.channels_last)
    for shifts, dims in ((0, 1), (6, 2), ((1, 4), (1, 3)), ((1, -1), (1, 1)), (2, 0)):
        expected = x.roll(shifts, dims)
        result = x.to(device).roll(shifts, dims)
        assert result.stride() == expected.stride()
        assert torch.equal(result.cpu(), expected)


def test_flips_and_rolls_of_layouts(device):
    x = torch.randn(3, 5, 6, 18)
    images = torch.randn(2, 3, 7, 19).to(memory_format=torch.channels_last)
    calls = (
        lambda x: x.flip(0),
        lambda x: x.flip(-1),
        lambda x: x.flip(0, 2),
        lambda x: x.flip(-1, -2),
        lambda x: x.roll(2, -1),
        lambda x: x.roll((-1, 4), (1, -1)),
        lambda x: x.roll(7),
    )
    for whole in (x, images):
        for view in (
            lambda x: x,
            lambda x: x.permute(2, 0, 3, 1),
            lambda x: x[1:, 1:, :, 3:],
            lambda x: x[:, :, ::2, ::3],
            lambda x: x[:, :1].expand(-1, 4, -1, -1),
            lambda x: x[:1, :1, :1, :1].expand(2, 3, 4, 5),
            lambda x: x[:, 0, :, :0],
            lambda x: x.transpose(1, 3)[:, ::2],
        ):
            for call in calls:
                expected = call(view(whole))
                result = call(view(whole.to(device)))
                assert torch.equal(result.cpu(), expected)
                assert result.stride() == expected.stride()
    number = torch.tensor(3.0)
    _same(number, number.to(device), lambda x: x.flip(0))
    _same(number, number.to(device), lambda x: x.flip(()))
    _same(number, number.to(device), lambda x: x.roll(1))


def test_rolls_that_move_nothing_are_contiguous(device):
    for size, shifts in (((1, 3, 5), 1), ((2, 3, 5), 2), ((0, 3, 5), 1)):
        x = torch.randn(size).transpose(1, 2)
        check(lambda x, n=shifts: x.roll(n, 0), [x], device, strides=True)


def test_flips_of_many_dimensions(device):
    x = torch.randn([2] * 12)
    _same(x, x.to(device), lambda x: x.flip(1, 3, 5, 7, 9))
    _same(x, x.to(device), lambda x: x.flip(list(range(0, 12, 2))))
    _same(x, x.to(device), lambda x: x.flip(list(range(12))))
    _same(x, x.to(device), lambda x: x.roll([1] * 6, list(range(0, 12, 2))))


def test_flips_of_conjugates_and_negatives(device):
    x = torch.randn(4, 20, dtype=torch.complex64)
    _same(x, x.to(device), lambda x: x.conj().flip(1))
    _same(x, x.to(device), lambda x: x.conj().imag.flip(0, 1))
    _same(x, x.to(device), lambda x: x.conj().imag.roll(3, 1))


def test_gradients_of_flip_and_roll(device):
    for x in (torch.randn(3, 4, 37), torch.randn(3, 37, 4).transpose(1, 2)):
        check(lambda x: x.flip(1, 2), [x], device)
        check(lambda x: x.roll((1, 5), (0, 2)), [x], device)


# Stored non-temporally on CPUs.
@pytest.mark.parametrize("width", [1024, 1023])
def test_large_flips_and_rolls(device, width):
    x = torch.randint(100, (9000, width), dtype=torch.int32)
    y = x.to(device)
    for call in (
        lambda x: x.flip(1),
        lambda x: x.flip(0),
        lambda x: x.roll((7, 5), (0, 1)),
    ):
        assert torch.equal(call(y).cpu(), call(x))


def test_long_cumulative_sums_stay_exact(device):
    torch.manual_seed(0)
    x = torch.rand(100_003)
    expected = x.double().cumsum(0)
    result = x.to(device).cumsum(0).cpu().double()
    assert ((result - expected).norm() / expected.norm()).item() < 1e-7
    edges = torch.tensor([1.0, float("inf"), 2.0, float("-inf"), 3.0])
    assert torch.equal(edges.to(device).cumsum(0).cpu()[:3], edges.cumsum(0)[:3])
    assert edges.to(device).cumsum(0).cpu()[3:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("limits", [(0, 5, 1), (5, -5, -2), (0, 3, 1.5), (2, 2, 1)])
def test_arange(device, dtype, limits):
    expected = torch.arange(*limits, dtype=dtype)
    result = torch.arange(*limits, dtype=dtype, device=device)
    assert torch.equal(result.cpu(), expected)
    with pytest.raises(RuntimeError, match="upper bound and lower bound inconsistent"):
        torch.arange(0.5, 0.2, 1, dtype=dtype, device=device)


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.int64],
)
@pytest.mark.parametrize("width", [15, 16, 37, 4096, 8195])
def test_runs_that_share_an_index(device, dtype, width):
    table = torch.randint(0, 100, (11, width + 2)).to(dtype)[:, 1:-1]
    index = torch.randint(0, 11, (3, 7))
    values = torch.randint(0, 8, (7, width)).to(dtype)
    places = torch.randperm(11)[:7]

    def moves(table, index, values, places):
        summed = table.clone().index_add_(0, places, values)
        return (
            table[index],
            table.index_select(0, index[0]),
            table.clone().index_copy_(0, places, values),
            table.clone().index_put_((places,), values),
            summed.index_add_(0, index[1], values, alpha=2),
        )

    inputs = (table, index, values, places)
    results = moves(*(x.to(device) for x in inputs))
    for result, expected in zip(results, moves(*inputs), strict=True):
        assert torch.equal(result.cpu(), expected)


# Stored non-temporally on CPUs, where rows begin at a vector's boundary.
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64]
)
@pytest.mark.parametrize("odd", [0, 1])
def test_results_larger_than_caches(device, dtype, odd):
    width = 7 * 2**20 // dtype.itemsize + odd
    table = torch.randint(0, 100, (3, width)).to(dtype)
    places = torch.tensor([2, 0, 1, 0, 2])
    result = table.to(device)[places.to(device)]
    assert torch.equal(result.cpu(), table[places])


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("size", [(1, 2, 1), (2, 1, 1), (1, 2, 2), (2, 1, 2)])
def test_gradients_of_indexed_dimensions_of_one_element(device, size, dim):
    """Moved to the front, they leave the tensor contiguous with other strides."""
    index = [slice(None)] * 3
    index[dim] = torch.tensor([0, 0])

    def taken(x):
        return x[tuple(i if isinstance(i, slice) else i.to(x.device) for i in index)]

    check(taken, [torch.randn(size)], device)
