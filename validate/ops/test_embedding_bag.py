"""Bags of embeddings, their gradients, and renormalising rows."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, check, contiguous, offset, strided, transposed

MODES = ("sum", "mean", "max")
# bags of 2, 0, 3, 1 and 0 indices, some of them twice in one bag
INDICES = torch.tensor([1, 4, 4, 2, 4, 2])
OFFSETS = torch.tensor([0, 2, 2, 5, 6])


@pytest.mark.parametrize("layout", [contiguous, transposed, strided, offset])
@pytest.mark.parametrize("columns", [1, 3, 16, 67])
@pytest.mark.parametrize("mode", MODES)
def test_layouts(device, mode, columns, layout):
    check(
        lambda i, o, w: F.embedding_bag(i, w, o, mode=mode),
        [INDICES, OFFSETS, layout(torch.randn(6, columns))],
        device,
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_dtypes(device, mode, dtype):
    check(
        lambda i, o, w: F.embedding_bag(i, w, o, mode=mode),
        [INDICES, OFFSETS, torch.randn(6, 5)],
        device,
        dtype,
    )


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
@pytest.mark.parametrize("padding_idx", [None, 4, -2])
@pytest.mark.parametrize("include_last_offset", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_options(device, mode, include_last_offset, padding_idx, integers):
    check(
        lambda i, o, w: F.embedding_bag(
            i,
            w,
            o,
            mode=mode,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        ),
        [INDICES.to(integers), OFFSETS.to(integers), torch.randn(6, 5)],
        device,
    )


@pytest.mark.parametrize("padding_idx", [None, 4])
@pytest.mark.parametrize("dtype", FLOATS)
def test_per_sample_weights(device, dtype, padding_idx):
    check(
        lambda i, o, w, s: F.embedding_bag(
            i, w, o, mode="sum", per_sample_weights=s, padding_idx=padding_idx
        ),
        [INDICES, OFFSETS, torch.randn(6, 37), torch.randn(6)],
        device,
        dtype,
    )


@pytest.mark.parametrize("mode", MODES)
def test_many_indices(device, mode):
    indices = torch.randint(0, 7, (40, 50))
    check(
        lambda i, w: F.embedding_bag(i, w, mode=mode),
        [indices, torch.randn(7, 33)],
        device,
    )


@pytest.mark.parametrize("mode", MODES)
def test_nothing(device, mode):
    for indices, offsets, rows in (([], [0, 0], 3), ([], [], 3), ([1], [0, 1], 3)):
        check(
            lambda i, o, w: F.embedding_bag(i, w, o, mode=mode),
            [
                torch.tensor(indices, dtype=torch.int64),
                torch.tensor(offsets, dtype=torch.int64),
                torch.randn(rows, 2),
            ],
            device,
        )


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_scales_gradients_by_frequency(device, mode):
    # The CPU divides some rows by the frequency of another one.
    gradients = []
    for target, is_scaled in ((torch.device("cpu"), False), (device, True)):
        weight = torch.ones(6, 5, device=target, requires_grad=True)
        bags = F.embedding_bag(
            INDICES.to(target),
            weight,
            OFFSETS.to(target),
            mode=mode,
            scale_grad_by_freq=is_scaled,
        )
        (bags * torch.arange(25.0, device=target).view(5, 5)).sum().backward()
        gradients.append(weight.grad.cpu())
    frequency = INDICES.bincount(minlength=6).clamp(min=1)
    torch.testing.assert_close(gradients[1], gradients[0] / frequency[:, None])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradient(device, mode):
    table = torch.randn(6, 5)
    gradients = []
    for target in (device, torch.device("cpu")):
        weight = table.to(target).requires_grad_()
        bags = F.embedding_bag(
            INDICES.to(target), weight, OFFSETS.to(target), mode=mode, sparse=True
        )
        bags.square().sum().backward()
        assert weight.grad.is_sparse
        gradients.append(weight.grad.to_dense().cpu())
    torch.testing.assert_close(*gradients)


def test_nan_and_infinity_as_maximum(device):
    nan, inf = float("nan"), float("inf")
    weight = torch.tensor([[nan, -inf], [1, nan], [-inf, inf], [2, -inf]])
    for indices in ([[0, 1], [1, 0]], [[2, 3], [3, 2]], [[2, 2], [1, 1]]):
        index = torch.tensor(indices)
        expected = F.embedding_bag(index, weight, mode="max")
        result = F.embedding_bag(index.to(device), weight.to(device), mode="max")
        torch.testing.assert_close(result.cpu(), expected, equal_nan=True)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_renorm(device, dtype, norm_type):
    weight = torch.randn(6, 5).to(dtype)
    index = torch.tensor([[1, 4], [4, 0]], dtype=torch.int32)
    result = weight.to(device)
    torch.embedding_renorm_(result, index.to(device), 1.5, norm_type)
    expected = weight.float()
    torch.embedding_renorm_(expected, index, 1.5, norm_type)
    torch.testing.assert_close(result.cpu(), expected.to(dtype))


def _message(raised) -> str:
    # A tensor's type is named after its device.
    text = str(raised.value).splitlines()[0]
    return re.sub(r"(torch\.|opencl)(\w+?)(Tensor|Type)\b", r"\2", text)


@pytest.mark.parametrize(
    "call",
    [
        lambda i, o, w: torch.embedding_bag(w, i[None, None], o),
        lambda i, o, w: torch.embedding_bag(w, i, o[None]),
        lambda i, o, w: torch.embedding_bag(w, i.float(), o),
        lambda i, o, w: torch.embedding_bag(w, i, o.float()),
        lambda i, o, w: torch.embedding_bag(w.long(), i, o),
        lambda i, o, w: torch.embedding_bag(w, i, o[:0], include_last_offset=True),
        lambda i, o, w: torch.embedding_bag(
            w, i, o, mode=1, per_sample_weights=w[:, 0]
        ),
        lambda i, o, w: torch.embedding_bag(
            w, i, o, per_sample_weights=w[:, 0].double()
        ),
        lambda i, o, w: torch.embedding_renorm_(w[0], i, 1.0, 2.0),
        lambda i, o, w: torch.embedding_renorm_(w, i.float(), 1.0, 2.0),
    ],
)
def test_refuses_what_the_cpu_refuses(device, call):
    tensors = (INDICES, OFFSETS, torch.randn(6, 5))
    with pytest.raises(Exception) as expected:
        call(*tensors)
    with pytest.raises(type(expected.value)) as raised:
        call(*(x.to(device) for x in tensors))
    assert _message(raised) == _message(expected)


def test_offsets_of_no_indices(device):
    tensors = torch.zeros(0, dtype=torch.int64), torch.tensor([3]), torch.rand(4, 2)
    for place in ("cpu", device):
        indices, offsets, weight = (x.to(place) for x in tensors)
        with pytest.raises(RuntimeError, match=r"offsets\[0\] has to be 0"):
            F.embedding_bag(indices, weight, offsets).cpu()


def test_renorm_is_rounded_once(device):
    row = torch.tensor([[0.25, 1.25, 2.25]])
    index = torch.zeros(1, dtype=torch.int64, device=device)
    exact = torch.embedding_renorm_(row.clone(), index.cpu(), 1.0, 2.0)
    row = row.to(device, torch.bfloat16)
    torch.embedding_renorm_(row, index, 1.0, 2.0)
    assert torch.equal(row.cpu(), exact.bfloat16())
