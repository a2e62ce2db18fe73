"""Bad indices and targets raise at the next wait, and what was good is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

L = torch.tensor
TABLE = torch.arange(12.0).view(4, 3)
WIDE = torch.arange(96.0).view(4, 24)  # rows that CPUs take as runs
IMAGE = TABLE.view(1, 1, 4, 3)


def _to(device, *tensors):
    return tuple(tensor.to(device) for tensor in tensors)


def _bounds(op: str, index: int, dimension: int, size: int) -> str:
    return (
        rf"^{op}\(\): index {index} is out of bounds for dimension {dimension} "
        f"with size {size}"
    )


def _target(op: str, target: int) -> str:
    return rf"^{op}\(\): Target {target} is out of bounds\."


# A call on tensors, good ones (None: there are none), bad ones, and the text.
CASES: dict[str, tuple[Callable, tuple | None, tuple, str]] = {
    "index": (
        lambda x, i: x[i],
        (TABLE, L([0, -4])),
        (TABLE, L([0, 7])),
        _bounds("index", 7, 0, 4),
    ),
    "index_negative": (
        lambda x, i: x[i],
        None,
        (TABLE, L([0, -5])),
        _bounds("index", -5, 0, 4),
    ),
    "index_rows": (
        lambda x, i: x[i],
        (WIDE, L([0, -4])),
        (WIDE, L([0, 4])),
        _bounds("index", 4, 0, 4),
    ),
    "index_columns": (
        lambda x, i: x[:, i],
        (WIDE, torch.arange(-24, 24)),
        (WIDE, L([*range(23), 24])),
        _bounds("index", 24, 0, 24),
    ),
    "index_two": (
        lambda x, i, j: x[i, j],
        (TABLE, L([0, 3]), L([-1, 2])),
        (TABLE, L([0, 3]), L([-1, 3])),
        _bounds("index", 3, 1, 3),
    ),
    "index_select": (
        lambda x, i: x.index_select(1, i),
        (TABLE, L([2, 0])),
        (TABLE, L([2, -1])),
        _bounds("index_select", -1, 1, 3),
    ),
    "gather": (
        lambda x, i: x.gather(1, i),
        (WIDE, torch.arange(96).view(4, 24) % 24),
        (WIDE, torch.arange(96).view(4, 24) % 25),
        _bounds("gather", 24, 1, 24),
    ),
    "gather_negative": (
        lambda x, i: x.gather(0, i),
        (TABLE, L([[3, 0]])),
        (TABLE, L([[3, -1]])),
        _bounds("gather", -1, 0, 4),
    ),
    "scatter": (
        lambda x, i: x.scatter(1, i, x),
        (WIDE, torch.arange(24).flip(0).expand(4, 24)),
        (WIDE, (torch.arange(24) - 1).expand(4, 24)),
        _bounds("scatter", -1, 1, 24),
    ),
    "scatter_value": (
        lambda x, i: x.scatter(0, i, 5.0),
        (TABLE, L([[3, 0]])),
        (TABLE, L([[4, 0]])),
        _bounds("scatter", 4, 0, 4),
    ),
    "scatter_multiply": (
        lambda x, i: x.scatter(0, i, x, reduce="multiply"),
        (TABLE, L([[3, 0]])),
        (TABLE, L([[-1, 0]])),
        _bounds("scatter", -1, 0, 4),
    ),
    "scatter_add": (
        lambda x, i: x.scatter_add(0, i, x),
        (TABLE, L([[3, 0], [3, 1]])),
        (TABLE, L([[3, 0], [4, 1]])),
        _bounds("scatter_add", 4, 0, 4),
    ),
    "scatter_reduce": (
        lambda x, i: x.scatter_reduce(0, i, x, "mean"),
        (TABLE, L([[3, 0], [3, 1]])),
        (TABLE, L([[3, 0], [-1, 1]])),
        _bounds("scatter_reduce", -1, 0, 4),
    ),
    "scatter_reduce_long": (  # lines that GPUs sort
        lambda x, i: x.scatter_reduce(0, i, x[:1].expand(200, 3), "mean"),
        (TABLE, (torch.arange(600) % 4).view(200, 3)),
        (TABLE, (torch.arange(600) % 4 + (torch.arange(600) == 7)).view(200, 3)),
        _bounds("scatter_reduce", 4, 0, 4),
    ),
    "index_reduce": (
        lambda x, i: x.index_reduce(1, i, x[:, :2], "amax"),
        (TABLE, L([2, 0])),
        (TABLE, L([2, 3])),
        _bounds("index_reduce", 3, 1, 3),
    ),
    "index_add": (
        lambda x, i: x.index_add(0, i, x[:2]),
        (WIDE, L([1, 1])),
        (WIDE, L([1, -1])),
        _bounds("index_add", -1, 0, 4),
    ),
    "index_add_half": (
        lambda x, i: x.half().index_add(1, i, x[:, :2].half()),
        (TABLE, L([1, 1])),
        (TABLE, L([1, 3])),
        _bounds("index_add", 3, 1, 3),
    ),
    "index_copy": (
        lambda x, i: x.index_copy(0, i, x[:2]),
        (TABLE, L([3, 1])),
        (TABLE, L([3, -1])),
        _bounds("index_copy", -1, 0, 4),
    ),
    "index_fill": (
        lambda x, i: x.index_fill(0, i, 5.0),
        (TABLE, L([3, -4])),
        (TABLE, L([3, -5])),
        _bounds("index_fill_", -5, 0, 4),
    ),
    "index_put": (
        lambda x, i: x.index_put((i,), x[:2]),
        (TABLE, L([3, -4])),
        (TABLE, L([3, 4])),
        _bounds("index_put_", 4, 0, 4),
    ),
    "index_put_accumulate": (
        lambda x, i, j: x.index_put((i, j), x[:3, 0], accumulate=True),
        (TABLE, L([3, -1, 0]), L([-1, 2, 0])),
        (TABLE, L([3, -1, 0]), L([-1, 2, -4])),
        _bounds("index_put_", -4, 1, 3),
    ),
    "take": (
        lambda x, i: x.take(i),
        (TABLE, L([11, -12])),
        (TABLE, L([11, 12])),
        _bounds("take", 12, 0, 12),
    ),
    "put": (
        lambda x, i: x.put(i, x[0, :2]),
        (TABLE, L([11, -12])),
        (TABLE, L([11, -13])),
        _bounds("put_", -13, 0, 12),
    ),
    "put_accumulate": (
        lambda x, i: x.put(i, x[0, :2], accumulate=True),
        (TABLE, L([11, -1])),
        (TABLE, L([11, 12])),
        _bounds("put_", 12, 0, 12),
    ),
    "embedding": (
        lambda x, i: F.embedding(i, x),
        (WIDE, L([[3, 0]])),
        (WIDE, L([[3, 4]])),
        _bounds("embedding", 4, 0, 4),
    ),
    "embedding_max_norm": (
        lambda x, i: F.embedding(i, x.clone(), max_norm=1.0),
        (TABLE, L([3, 0])),
        (TABLE, L([3, -1])),
        _bounds("embedding_renorm_", -1, 0, 4),
    ),
    "embedding_dense_backward": (
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 5, 1, False),
        (TABLE, L([3, 1, 1, 4])),
        (TABLE, L([3, 1, 1, 5])),
        _bounds("embedding_dense_backward", 5, 0, 5),
    ),
    **{
        f"embedding_bag_{mode}": (
            lambda x, i, o, mode=mode: F.embedding_bag(i, x, o, mode=mode),
            (TABLE, L([3, 0, 1]), L([0, 2])),
            (TABLE, L([3, 4, 1]), L([0, 2])),
            _bounds("embedding_bag", 4, 0, 4),
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding_bag_negative": (
        lambda x, i: F.embedding_bag(i, x, mode="sum"),
        (TABLE, L([[3, 0]])),
        (TABLE, L([[3, -1]])),
        _bounds("embedding_bag", -1, 0, 4),
    ),
    "one_hot": (
        lambda i: F.one_hot(i, 4),
        (L([3, 0]),),
        (L([3, 5]),),
        _bounds("scatter", 5, 1, 4),
    ),
    "one_hot_negative": (
        lambda i: F.one_hot(i, 4),
        None,
        (L([3, -1]),),
        _bounds("scatter", -1, 1, 4),
    ),
    "max_unpool1d": (
        lambda x, i: F.max_unpool1d(x[0, 0], i[0, 0], 2),
        (IMAGE, torch.arange(12).view(1, 1, 4, 3) % 6),
        (IMAGE, torch.arange(12).view(1, 1, 4, 3) % 7),
        _bounds("max_unpool2d", 6, 1, 6),
    ),
    "max_unpool2d": (
        lambda x, i: F.max_unpool2d(x, i, 2),
        (IMAGE, torch.arange(12).view(1, 1, 4, 3) * 4),
        (IMAGE, torch.arange(12).view(1, 1, 4, 3) + 37),
        _bounds("max_unpool2d", 48, 2, 48),
    ),
    "max_unpool3d": (
        lambda x, i: F.max_unpool3d(x[None], i[None], (1, 2, 2)),
        (IMAGE, torch.arange(12).view(1, 1, 4, 3)),
        (IMAGE, torch.arange(12).view(1, 1, 4, 3) - 1),
        _bounds("max_unpool3d", -1, 2, 48),
    ),
    "nll_loss": (
        lambda x, t: F.nll_loss(x, t),
        (TABLE, L([0, -100, 2, 2])),
        (TABLE, L([0, -100, 2, 3])),
        _target("nll_loss", 3),
    ),
    "nll_loss_none": (
        lambda x, t: F.nll_loss(x, t, reduction="none", ignore_index=3),
        (TABLE, L([0, 3, 2, 2])),
        (TABLE, L([0, 3, -1, 2])),
        _target("nll_loss", -1),
    ),
    "nll_loss_of_one": (
        lambda x, t: F.nll_loss(x[0], t),
        (TABLE, L(2)),
        (TABLE, L(3)),
        _target("nll_loss", 3),
    ),
    "nll_loss2d": (
        lambda x, t: F.nll_loss(x.view(1, 4, 1, 3), t, reduction="sum"),
        (TABLE, L([[[3, 0, -100]]])),
        (TABLE, L([[[4, 0, -100]]])),
        _target("nll_loss2d", 4),
    ),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t, ignore_index=7),
        (TABLE, L([0, 7, 2, 2])),
        (TABLE, L([0, 7, 2, -100])),
        _target("nll_loss", -100),
    ),
    "multi_margin_loss": (
        F.multi_margin_loss,
        (TABLE, L([0, 1, 2, 2])),
        (TABLE, L([0, 1, 2, -1])),
        _target("multi_margin_loss", -1),
    ),
    "multilabel_margin_loss": (
        F.multilabel_margin_loss,
        (TABLE[:2], L([[2, -1, 0], [0, 1, -1]])),
        (TABLE[:2], L([[2, -1, 3], [0, 1, -1]])),
        _target("multilabel_margin_loss", 3),
    ),
    "ctc_loss": (
        lambda x, t: F.ctc_loss(x.view(4, 1, 3).log_softmax(2), t, [4], [2]),
        (TABLE, L([[2, 1]])),
        (TABLE, L([[2, 3]])),
        _target("ctc_loss", 3),
    ),
}


def _of_32_bits(tensors: tuple) -> tuple:
    return tuple(t.int() if t.dtype == torch.int64 else t for t in tensors)


for _name in ("index", "index_select", "index_add", "embedding", "embedding_bag_sum"):
    _call, *_tensors, _text = CASES[_name]
    CASES[f"{_name}_of_32_bits"] = (_call, *map(_of_32_bits, _tensors), _text)

DIVISIONS: dict[str, tuple[str, Callable]] = {
    "//": ("floor_divide", lambda x, y: x // y),
    "%": ("remainder", lambda x, y: x % y),
    "fmod": ("fmod", torch.fmod),
    "floor": ("floor_divide", lambda x, y: torch.div(x, y, rounding_mode="floor")),
    "trunc": ("div", lambda x, y: torch.div(x, y, rounding_mode="trunc")),
}
# Errors that are RuntimeError, as on the CPU.
RUNTIME_CASES = {
    **{
        f"division_{name}": (
            call,
            (L([[7, -7, 6], [5, 0, 1]]), L([[2, 3, -4], [-5, 6, 7]])),
            (L([[7, -7, 6], [5, 0, 1]]), L([[2, 3, -4], [-5, 0, 7]])),
            r"^(floor_divide|remainder|fmod|div)\(\): ZeroDivisionError$",
        )
        for name, (_, call) in DIVISIONS.items()
    },
    **{
        f"bernoulli_{dtype}": (
            lambda p, dtype=dtype: torch.bernoulli(p.to(dtype)),
            (L([[0.0, 1.0], [1.0, 0.0]]),),
            (L([[0.0, 1.0], [wrong, 0.0]]),),
            "all elements of input should be between 0 and 1",
        )
        for dtype, wrong in (
            (torch.float32, 1.5),
            (torch.float64, -0.5),
            (torch.float16, float("nan")),
        )
    },
    "repeat_interleave_negative": (
        lambda x, r: x.repeat_interleave(r, 0, output_size=4),
        (TABLE, L([1, 3, 0, 0])),
        (TABLE, L([1, 3, -1, 1])),
        "repeats can not be negative",
    ),
    "repeat_interleave_output_size": (
        lambda x, r: x.repeat_interleave(r, 0, output_size=4),
        (TABLE, L([1, 3, 0, 0])),
        (TABLE, L([1, 3, 1, 0])),
        "allocated size does not match required size",
    ),
    "embedding_bag_first_offset": (
        lambda x, i, o: F.embedding_bag(i, x, o),
        (TABLE, L([3, 0, 1]), L([0, 3])),
        (TABLE, L([3, 0, 1]), L([1, 2])),
        r"offsets\[0\] has to be 0.*However, got 1",
    ),
    "embedding_bag_last_offset": (
        lambda x, i, o: F.embedding_bag(i, x, o),
        (TABLE, L([3, 0, 1]), L([0, 3])),
        (TABLE, L([3, 0, 1]), L([0, 4])),
        r"offsets\[-1\] can not be greater than input's length 3 but got offsets\[-1\] of 4",
    ),
}


@pytest.mark.parametrize("name", [*CASES, *RUNTIME_CASES])
def test_bad_indices_raise_and_good_ones_do_not(device, name):
    call, good, bad, text = (CASES | RUNTIME_CASES)[name]
    kind = IndexError if name in CASES else RuntimeError
    expected = None if good is None else call(*good)
    moved = _to(device, *bad)
    for _ in range(2):
        result = call(*moved)
        with pytest.raises(kind, match=text):
            torch.opencl.synchronize(device)
        torch.opencl.synchronize(device)  # raised once
        if expected is not None:
            torch.testing.assert_close(call(*_to(device, *good)).cpu(), expected)
    call(*moved)
    with pytest.raises(kind, match=text):
        result.cpu()
    result.cpu()


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_divided_by_zero(device, name, dtype):
    op, call = DIVISIONS[name]
    dividend = torch.arange(1, 71, dtype=dtype).view(2, 5, 7)
    zeros = torch.zeros(7, dtype=dtype)
    for divisor in (zeros, torch.tensor([3] * 6 + [0], dtype=dtype)):
        call(dividend.to(device).transpose(0, 1), divisor.to(device))
        with pytest.raises(RuntimeError, match=rf"^{op}\(\): ZeroDivisionError$"):
            torch.opencl.synchronize(device)
    for divisor in (0, torch.tensor(0, dtype=dtype)):  # known at the call
        with pytest.raises(RuntimeError, match=r"^ZeroDivisionError$"):
            call(dividend.to(device), divisor)
    divisor = torch.tensor([1, 2, 3, 4, 5, 6, 7], dtype=dtype)
    result = call(dividend.to(device), divisor.to(device))
    assert torch.equal(result.cpu(), call(dividend, divisor))
    assert call(dividend[:0].to(device), zeros.to(device)).numel() == 0


@pytest.mark.parametrize("name", DIVISIONS)
def test_a_number_divided_by_zeros(device, name):
    op, call = DIVISIONS[name]
    zeros = torch.tensor([3, 0, 5], device=device)
    dividends = [torch.tensor(7), torch.tensor(7, device=device)]
    for dividend in dividends + ([7] if name in ("//", "%") else []):
        call(dividend, zeros)
        with pytest.raises(RuntimeError, match=rf"^{op}\(\): ZeroDivisionError$"):
            torch.opencl.synchronize(device)


@pytest.mark.parametrize("name", ["floor_divide_", "remainder_", "fmod_"])
def test_integers_divided_by_zero_in_place(device, name):
    x = torch.tensor([7, 8, 9], device=device)
    getattr(x, name)(torch.tensor([3, 0, 5], device=device))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x.cpu()


@pytest.mark.parametrize("name", DIVISIONS)
def test_floats_divided_by_zero(device, name):
    _, call = DIVISIONS[name]
    x = torch.tensor([1.0, -1.0, 0.0])
    torch.testing.assert_close(
        call(x.to(device), torch.zeros(3, device=device)).cpu(),
        call(x, torch.zeros(3)),
        equal_nan=True,
    )
    mixed = call(x.to(device), torch.zeros(3, dtype=torch.int32, device=device))
    torch.testing.assert_close(mixed.cpu(), call(x, torch.zeros(3)), equal_nan=True)


def test_the_first_of_many_bad_indices(device):
    """Of the first op that has any, one of its own, whichever comes first."""
    table = torch.randn(100, 24, device=device)
    bad = torch.arange(100, 5100)
    good = torch.arange(100)
    first = torch.cat([good, bad, -1 - bad])
    table[good.to(device)]
    table[first.to(device)]
    table.gather(0, torch.arange(6000, 6100, device=device).view(-1, 1))
    with pytest.raises(IndexError, match=r"^index\(\): index -?\d+ is out") as raised:
        torch.opencl.synchronize(device)
    text = str(raised.value)
    assert "of bounds for dimension 0 with size 100" in text
    assert int(text.split()[2]) in first[100:].tolist()
    torch.opencl.synchronize(device)


def test_index_reduce_of_nothing(device):
    x, index, source = _to(device, TABLE[:0], L([0]), TABLE[:1])
    with pytest.raises(IndexError, match="dimension 0 with size 0"):
        x.index_reduce(0, index, source, "mean")


def test_bad_indices_touch_nothing(device):
    table = TABLE.to(device)
    bad = torch.tensor([1, 99, -5, -1], device=device)
    rows = table[bad]
    with pytest.raises(IndexError, match=r"index (99|-5) is out of bounds"):
        torch.opencl.synchronize(device)
    expected = torch.tensor([[3.0, 4, 5], [0, 0, 0], [0, 0, 0], [9, 10, 11]])
    assert torch.equal(rows.cpu(), expected)
    table[bad[1:3]] = 7.0
    table.index_add_(0, bad[1:3], torch.ones(2, 3, device=device))
    with pytest.raises(IndexError, match=r"index_put_\(\): index"):
        torch.opencl.synchronize(device)
    assert torch.equal(table.cpu(), TABLE)


def test_indices_of_gradients(device):
    # The padding's row is no error, and gets no gradient.
    weight = WIDE.to(device).requires_grad_()
    index = torch.tensor([[3, 1], [1, 0]], device=device)
    F.embedding(index, weight, padding_idx=1, scale_grad_by_freq=True).sum().backward()
    expected = torch.ones(4, 24)
    expected[1:3] = 0
    assert torch.equal(weight.grad.cpu(), expected)


def test_a_bad_index_among_sorted_ones(device):
    """What lies beside it in the order of the indices is reduced as it should be."""
    index = torch.arange(200) % 4
    index[150] = 99
    x = TABLE.to(device)[:, 0].scatter_reduce(
        0, index.to(device), torch.ones(200, device=device), "sum"
    )
    with pytest.raises(IndexError, match="index 99 is out of bounds"):
        torch.opencl.synchronize(device)
    counts = torch.tensor([50.0, 50, 49, 50])  # 150 % 4 is 2
    assert torch.equal(x.cpu(), TABLE[:, 0] + counts)
