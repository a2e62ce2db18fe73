"""Ops that are a few others: weight norm, segments, pairs of rows, outer products, parts
of batch normalisation."""

from __future__ import annotations

import itertools

import pytest
import torch
from against_cpu import FLOATS, check

pytestmark = pytest.mark.usefixtures("without_fallbacks")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(device, dim, dtype):
    v = torch.randn(4, 3, 5)
    g = torch.randn([4, 1, 1] if dim == 0 else [1, 1, 5])
    check(lambda v, g: torch._weight_norm(v, g, dim), [v, g], device, dtype)


def test_weight_norm_of_a_layer(device):
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 3))
    x = torch.randn(2, 3, 9)
    expected = layer(x)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    moved = layer.to(device)
    result = moved(x.to(device))
    result.sum().backward()
    torch.testing.assert_close(result.cpu(), expected)
    for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segment_reduce(device, reduction, initial):
    def by_lengths(x):
        lengths = torch.tensor([2, 3, 1, 1], device=x.device)
        return torch.segment_reduce(x, reduction, lengths=lengths, initial=initial)

    def by_offsets(x):
        offsets = torch.tensor([0, 2, 5, 7], device=x.device)
        return torch.segment_reduce(x, reduction, offsets=offsets, initial=initial)

    def of_rows(x):
        lengths = torch.tensor([[2, 5], [3, 4]], device=x.device)
        return torch.segment_reduce(x, reduction, lengths=lengths, axis=1)

    check(by_lengths, [torch.randn(7, 3)], device)
    check(by_offsets, [torch.randn(7)], device)
    check(of_rows, [torch.randn(2, 7, 2)], device)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min", "prod"])
def test_gradient_outside_of_segments(device, reduction):
    # The last segment is empty, and rows lie behind it.
    offsets, x = torch.tensor([0, 1, 3, 3]), torch.randn(5, 2)
    gradients = []
    for place in ("cpu", device):
        given = x.clone().to(place).requires_grad_()
        result = torch.segment_reduce(
            given, reduction, offsets=offsets.to(place), unsafe=True, initial=1
        )
        result.backward(torch.full_like(result, 2))
        gradients.append(given.grad.cpu())
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "prod"])
def test_empty_segments(device, reduction):
    x = torch.randn(3, 2)
    lengths = torch.tensor([0, 3, 0])
    expected = torch.segment_reduce(x, reduction, lengths=lengths, unsafe=True)
    result = torch.segment_reduce(
        x.to(device), reduction, lengths=lengths.to(device), unsafe=True
    )
    torch.testing.assert_close(result.cpu(), expected, equal_nan=True)


def test_segment_product_with_zeros(device):
    x = torch.tensor([2.0, 0.0, 3.0, 0.0, 0.0, 4.0])
    results = []
    for on in ("cpu", device):
        leaf = x.to(on, copy=True).requires_grad_()
        lengths = torch.tensor([3, 3], device=on)
        torch.segment_reduce(leaf, "prod", lengths=lengths).sum().backward()
        results.append(leaf.grad.cpu())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_pdist(device, p, rows):
    check(lambda x: torch.pdist(x, p), [torch.randn(rows, 5)], device)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
@pytest.mark.parametrize("size", [0, 3, 40])
def test_nonzero_static(device, size, dtype):
    x = torch.randint(0, 2, (3, 5, 2)).to(dtype)
    for tensor in (x, x.transpose(0, 2), x[:0], x[0, 0, :1]):
        expected = torch.nonzero_static(tensor, size=size, fill_value=-7)
        moved = tensor.to(device)
        result = torch.nonzero_static(moved, size=size, fill_value=-7)
        assert torch.equal(result.cpu(), expected)
        out = torch.empty(0, dtype=torch.int64, device=device)
        torch.nonzero_static(moved, size=size, fill_value=-7, out=out)
        assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_parts_of_batch_norm(device, dtype):
    """Two parts, put together, are batch normalisation of the whole."""
    torch.manual_seed(1)
    whole = torch.randn(6, 3, 4)
    weight, bias = torch.rand(3) + 0.5, torch.randn(3)
    mean, var = torch.randn(3), torch.rand(3)
    grad = torch.randn(6, 3, 4)

    x = whole.double().requires_grad_()
    w, b = weight.double().requires_grad_(), bias.double().requires_grad_()
    means, variances = mean.double(), var.double()
    y = torch.nn.functional.batch_norm(x, means, variances, w, b, True, 0.1, 1e-5)
    y.backward(grad.double())

    def on(tensor):
        return tensor.to(device, dtype)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    parts = [on(whole[:2]), on(whole[2:])]
    found = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    running = mean.to(device, wide), var.to(device, wide)
    counts = torch.tensor([8.0, 16.0], device=device, dtype=wide)
    average, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0],
        torch.stack([m for m, _ in found]),
        torch.stack([s for _, s in found]),
        *running,
        0.1,
        1e-5,
        counts,
    )
    results = [
        torch.batch_norm_elemt(part, on(weight), on(bias), average, invstd, 1e-5)
        for part in parts
    ]
    grads = [on(grad[:2]), on(grad[2:])]
    sums = [
        torch.batch_norm_backward_reduce(
            g, part, average, invstd, on(weight), True, True, True
        )
        for g, part in zip(grads, parts, strict=True)
    ]
    sum_dy, sum_dy_xmu = (sum(s[i] for s in sums) for i in (0, 1))
    of_inputs = [
        torch.batch_norm_backward_elemt(
            g, part, average, invstd, on(weight), sum_dy, sum_dy_xmu, counts.int()
        )
        for g, part in zip(grads, parts, strict=True)
    ]
    precision = {
        torch.float64: 1e-10,
        torch.float32: 1e-5,
        torch.float16: 1e-2,
        torch.bfloat16: 1e-1,
    }[dtype]
    for result, expected in (
        (torch.cat(results), y),
        (torch.cat(of_inputs), x.grad),
        (sum(s[2] for s in sums), w.grad),
        (sum(s[3] for s in sums), b.grad),
        (running[0], means),
        (running[1], variances),
    ):
        torch.testing.assert_close(
            result.cpu().double(), expected.detach(), rtol=precision, atol=precision
        )


def test_mvlgamma_out(device):
    x = torch.rand(3, 5) + 2
    expected = torch.mvlgamma(x, 3)
    for out in (torch.zeros(3, 5), torch.zeros(5, 3).t(), torch.empty(0)):
        given = out.to(device)
        assert torch.mvlgamma(x.to(device), 3, out=given) is given
        torch.testing.assert_close(given.cpu(), expected)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.mvlgamma(x.to(device), 3, out=torch.zeros(3, 5).long().to(device))


NUMBERS = [torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32]


@pytest.mark.parametrize("beta", [0, 2])
def test_addr_keeps_the_order_of_what_is_added(device, beta):
    for x in (torch.randn(5, 7), torch.randn(7, 5).t(), torch.randn(7)):
        given = (x, torch.randn(5), torch.randn(7))
        expected = torch.addr(*given, beta=beta)
        result = torch.addr(*(value.to(device) for value in given), beta=beta)
        assert result.stride() == expected.stride()
        torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize("dtypes", list(itertools.product(NUMBERS, repeat=3)))
@pytest.mark.parametrize("beta, alpha", [(3, 2), (0, 2), (1, 1), (1.5, True)])
def test_addr_of_several_dtypes(device, dtypes, beta, alpha):
    """All is computed in the common dtype, or refused with the CPU's words."""
    shapes = (5, 3), (5,), (3,)
    operands = [
        torch.randint(200, shape).to(dtype)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    results = []
    for place in ("cpu", device):
        moved = [operand.to(place) for operand in operands]
        try:
            results.append(torch.addr(*moved, beta=beta, alpha=alpha).cpu())
        except RuntimeError as error:
            results.append(str(error).splitlines()[0])
    expected, result = results
    if isinstance(expected, str):
        assert result == expected
    else:
        tolerance = 2e-3 if expected.dtype == torch.float16 else 1e-5
        torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "alias",
    [
        lambda x: x,
        lambda x: x.data,
        lambda x: x.view_as(x),
        lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)),
    ],
)
def test_cross_into_an_operand(device, alias):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    expected = torch.linalg.cross(x, y)
    for i in range(2):
        operands = [x.to(device), y.to(device)]
        torch.linalg.cross(*operands, out=alias(operands[i]))
        torch.testing.assert_close(operands[i].cpu(), expected)


@pytest.mark.parametrize("beta", [0, 2])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
def test_addbmm(device, dtype, batch, beta):
    shapes = ((5, 7), (batch, 5, 11), (batch, 11, 7))
    given = [torch.randint(-9, 9, shape).to(dtype) for shape in shapes]
    check(lambda *x: torch.addbmm(*x, beta=beta, alpha=3), given, device)
    given[0] = given[0][0]  # broadcast
    check(lambda *x: torch.addbmm(*x, beta=beta), given, device)


def test_addbmm_of_halves_scales_before_it_rounds(device):
    left = torch.full((2, 1, 64), 100.0, dtype=torch.float16, device=device)
    bias = torch.zeros(1, 1, dtype=torch.float16, device=device)
    result = torch.addbmm(bias, left, left.mT, alpha=0.01)
    assert result.item() == torch.tensor(12800.0).half().item()
