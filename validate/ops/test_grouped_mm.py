"""_grouped_mm: groups of any sizes along rows, columns and depth, and gradients."""

from __future__ import annotations

import pytest
import torch
from against_cpu import check
from tolerance import assert_matches

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Ends of four groups of 40: empty ones, short ones, one that is everything.
ENDS = ([3, 3, 29, 40], [0, 0, 0, 40], [40, 40, 40, 40], [1, 2, 3, 40], [9, 20, 31, 40])


def _ends(values, like):
    return torch.tensor(values, dtype=torch.int32, device=like.device)


def _grouped(a, b, ends=None):
    """The product; torch has none in float64, the reference's dtype."""
    if a.dtype != torch.float64:
        return torch._grouped_mm(a, b, offs=None if ends is None else _ends(ends, a))
    if ends is None:
        return a @ b
    rows = a.tensor_split(ends[:-1], -1 if b.dim() == 2 else 0) if a.dim() == 2 else a
    columns = b.tensor_split(ends[:-1], 0 if a.dim() == 2 else 1) if b.dim() == 2 else b
    parts = [x @ y for x, y in zip(rows, columns, strict=True)]
    if a.dim() == b.dim():
        return torch.stack(parts)
    return torch.cat(parts, 0 if a.dim() == 2 else 1)


def _transposed(x):
    return x.mT.contiguous().mT


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("right", [torch.Tensor.contiguous, _transposed])
def test_rows(device, ends, right, dtype):
    def product(a, b):
        return _grouped(a, b, ends)

    check(product, [torch.randn(40, 24), right(torch.randn(4, 24, 72))], device, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("left", [torch.Tensor.contiguous, _transposed])
def test_columns(device, ends, left, dtype):
    def product(a, b):
        return _grouped(a, b, ends)

    a, b = left(torch.randn(4, 16, 24)), torch.randn(24, 40)
    check(product, [a, b], device, dtype, backward=False)
    check(product, [a, _transposed(b)], device, dtype, backward=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("left", [torch.Tensor.contiguous, _transposed])
@pytest.mark.parametrize("right", [torch.Tensor.contiguous, _transposed])
def test_depth(device, ends, left, right, dtype):
    def product(a, b):
        return _grouped(a, b, ends)

    inputs = [left(torch.randn(16, 40)), right(torch.randn(40, 48))]
    check(product, inputs, device, dtype, backward=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(device, dtype):
    inputs = [torch.randn(3, 8, 16), torch.randn(3, 16, 24)]
    check(_grouped, inputs, device, dtype)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "ends"),
    [
        (1, 8, 8, [1]),
        (7, 4128, 4, [2, 7]),
        (133, 64, 132, [37, 101, 133]),
        (5, 20, 36, [5]),
    ],
)
@pytest.mark.parametrize("right", [torch.Tensor.contiguous, _transposed])
def test_sizes(device, rows, depth, columns, ends, right):
    def product(a, b):
        return _grouped(a, b, ends)

    b = right(torch.randn(len(ends), depth, columns))
    check(product, [torch.randn(rows, depth), b], device)


def test_layouts(device):
    a = torch.randn(40, 48)[:, 4:28]
    b = torch.randn(4, 24, 96)[:, :, 8:48]
    ends = torch.tensor(ENDS[0], dtype=torch.int32)
    expected = torch._grouped_mm(a, b, offs=ends)
    reference = torch.cat(
        [
            x.double() @ y.double()
            for x, y in zip(a.tensor_split(ends[:-1].long()), b, strict=True)
        ]
    )
    on_device = torch.zeros(40, 48, device=device)[:, 4:28].copy_(a)
    weights = torch.zeros(4, 24, 96, device=device)[:, :, 8:48].copy_(b)
    result = torch._grouped_mm(on_device, weights, offs=ends.to(device))
    assert_matches(result, reference, expected)
    assert result.stride() == expected.stride()


def test_rows_behind_the_last_group_are_zero(device):
    a, b = torch.randn(16, 8, device=device), torch.randn(2, 8, 4, device=device)
    result = torch._grouped_mm(a, b, offs=_ends([3, 9], a))
    assert torch.equal(result[9:].cpu(), torch.zeros(7, 4))


def test_of_nothing(device):
    a, b = torch.randn(0, 8, device=device), torch.randn(2, 8, 4, device=device)
    assert torch._grouped_mm(a, b, offs=_ends([0, 0], a)).shape == (0, 4)
    left, right = torch.randn(4, 8, device=device), torch.randn(8, 4, device=device)
    depth = torch._grouped_mm(left, right, offs=_ends([0, 0], a))
    assert torch.equal(depth.cpu(), torch.zeros(2, 4, 4))


_BAD = {
    "no offsets": lambda a, b, ends: torch._grouped_mm(a, b),
    "int64 offsets": lambda a, b, ends: torch._grouped_mm(a, b, offs=ends.long()),
    "offsets of two dimensions": lambda a, b, ends: torch._grouped_mm(
        a, b, offs=ends[None]
    ),
    "number of groups": lambda a, b, ends: torch._grouped_mm(a, b, offs=ends[:1]),
    "depth": lambda a, b, ends: torch._grouped_mm(a[:, :4], b, offs=ends),
    "bias": lambda a, b, ends: torch._grouped_mm(a, b, offs=ends, bias=b[0, 0]),
    "dtype": lambda a, b, ends: torch._grouped_mm(a.double(), b.double(), offs=ends),
    "dtypes": lambda a, b, ends: torch._grouped_mm(a, b.half(), offs=ends),
    "out_dtype": lambda a, b, ends: torch._grouped_mm(
        a, b, offs=ends, out_dtype=torch.bfloat16
    ),
    "strides": lambda a, b, ends: torch._grouped_mm(
        a.repeat(1, 2)[:, ::2], b, offs=ends
    ),
    "vector": lambda a, b, ends: torch._grouped_mm(a[0], b, offs=ends),
}


@pytest.mark.parametrize("name", _BAD)
def test_errors(device, name):
    a, b = torch.randn(16, 8), torch.randn(2, 8, 8)
    ends = torch.tensor([3, 16], dtype=torch.int32)
    with pytest.raises(Exception) as expected:
        _BAD[name](a, b, ends)
    with pytest.raises(expected.type) as raised:
        _BAD[name](a.to(device), b.to(device), ends.to(device))
    assert str(raised.value).split("\n")[0] == str(expected.value).split("\n")[0]


class _Experts(torch.nn.Module):
    """A mixture of experts: each token goes to one of them."""

    def __init__(self, width, hidden, experts):
        super().__init__()
        self.router = torch.nn.Linear(width, experts)
        self.up = torch.nn.Parameter(torch.randn(experts, width, hidden) * 0.2)
        self.down = torch.nn.Parameter(torch.randn(experts, hidden, width) * 0.2)

    def forward(self, x):
        weight, expert = self.router(x).softmax(1).max(1)
        order = expert.argsort(stable=True)
        counts = torch.zeros(len(self.up), dtype=torch.int32, device=x.device)
        counts.index_add_(0, expert, torch.ones_like(expert, dtype=torch.int32))
        ends = counts.cumsum(0, dtype=torch.int32)
        hidden = torch._grouped_mm(x[order], self.up, offs=ends).relu()
        out = torch._grouped_mm(hidden, self.down, offs=ends)
        return torch.empty_like(out).index_copy(0, order, out) * weight[:, None]


def test_a_mixture_of_experts_trains(device):
    torch.manual_seed(0)
    x, target = torch.randn(64, 16), torch.randn(64, 16)
    losses = []
    for where in ("cpu", device):
        torch.manual_seed(1)
        model = _Experts(16, 32, 4).to(where)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        torch.opencl.reset_fallback_stats()
        for _ in range(10):
            optimizer.zero_grad()
            loss = (model(x.to(where)) - target.to(where)).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert not torch.opencl.fallback_stats()
    assert abs(losses[1] - losses[0]) < 1e-3 * losses[0]
