"""Autocast decides about an op, not about what the op's kernel calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

DTYPES = (torch.float16, torch.bfloat16)


def _int_mm(device):
    a, b = (torch.randint(-128, 128, s).to(torch.int8) for s in [(64, 512), (512, 32)])
    return torch._int_mm, [a, b]


def _int8_rows(device):
    weight = torch.randint(-128, 128, (24, 96)).to(torch.int8)
    return torch._weight_int8pack_mm, [
        torch.randn(64, 96).bfloat16(),
        weight,
        torch.rand(24).bfloat16(),
    ]


def _int4_rows(device):
    packed = torch._convert_weight_to_int4pack(
        torch.randint(256, (16, 64)).to(torch.uint8).to(device), 8
    )
    x, pairs = torch.randn(64, 128).bfloat16(), torch.rand(4, 16, 2).bfloat16()
    return torch._weight_int4pack_mm, [x, packed, 32, pairs]


def _complex_product(device):
    parts = [torch.randn(9, 9, dtype=torch.complex64) for _ in range(3)]
    return lambda a, b, c: a.clone().addmm_(b, c, beta=0.5, alpha=2), parts


def _batches(device):
    parts = [torch.randn(5, 7), torch.randn(3, 5, 6), torch.randn(3, 6, 7)]
    return lambda a, b, c: a.clone().addbmm_(b, c), parts


def _trace(device):
    return torch.trace, [torch.randn(5, 5).half()]


def _convolution_gradients(device):
    gradients = torch.ops.aten.convolution_backward
    parts = [torch.randn(2, 4, 5, 5), torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)]

    def of_half(*tensors):
        geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return gradients(*(t.half() for t in tensors), [4], *geometry, [True] * 3)

    return of_half, parts


def _deformed_gradients(device):
    pytest.importorskip("torchvision")
    gradients = torch.ops.torchvision._deform_conv2d_backward
    sizes = [
        (2, 4, 5, 5),
        (2, 3, 5, 5),
        (4, 3, 3, 3),
        (2, 18, 5, 5),
        (2, 9, 5, 5),
        (4,),
    ]
    numbers = (1, 1, 1, 1, 1, 1, 1, 1, True)
    return gradients, [*(torch.randn(s) for s in sizes), *numbers]


def _cell_gradients(device):
    gates = torch.rand(3, 20)
    states = [torch.rand(3, 5) for _ in range(3)]

    def backward(gates, cx, cy, grad):
        halves = [t.half() for t in (grad, grad, cx, cy, gates)]
        return torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*halves, True)

    return backward, [gates, *states]


def _distances(device):
    def function(a, b):
        distances = torch.ops.aten._cdist_forward(a, b, 3.0, None)
        parts = (torch.ones_like(distances), a, b, 3.0, distances)
        return distances, torch.ops.aten._cdist_backward(*parts)

    return function, [torch.randn(4, 6).half(), torch.randn(5, 6).half()]


def _cross_entropy(device):
    def function(x, y):
        out = torch.empty((), device=x.device)
        return torch.ops.aten.binary_cross_entropy.out(x, y, out=out)

    return function, [torch.rand(6), torch.rand(6)]


CASES = [
    _int_mm,
    _int8_rows,
    _int4_rows,
    _complex_product,
    _batches,
    _trace,
    _convolution_gradients,
    _deformed_gradients,
    _cell_gradients,
    _distances,
    _cross_entropy,
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_are_not_cast(device, case, dtype):
    torch.manual_seed(0)
    function, arguments = case(device)
    moved = [t.to(device) if torch.is_tensor(t) else t for t in arguments]
    expected = function(*moved)
    with torch.autocast("opencl", dtype):
        found = function(*moved)
    if torch.is_tensor(expected):
        expected, found = (expected,), (found,)
    for mine, reference in zip(found, expected, strict=True):
        assert mine.dtype == reference.dtype
        assert torch.equal(mine, reference)


def test_integers_are_exact(device):
    function, (a, b) = _int_mm(device)
    with torch.autocast("opencl", torch.bfloat16):
        found = function(a.to(device), b.to(device))
    assert torch.equal(found.cpu(), function(a, b))


def _check_gradients(device, kind, create_graph) -> None:
    torch.manual_seed(0)
    layer, x = kind(6, 8).to(device), torch.randn(5, 3, 6, device=device)
    hidden = torch.zeros(1, 3, 8, device=device, requires_grad=True)
    states = (hidden, torch.zeros_like(hidden)) if kind is nn.LSTM else hidden
    given = [hidden, layer.weight_hh_l0, layer.bias_hh_l0]
    loss = layer(x, states)[0].square().sum()

    def gradients():
        return torch.autograd.grad(
            loss, given, retain_graph=True, create_graph=create_graph
        )

    expected = gradients()
    with torch.autocast("opencl", torch.bfloat16):
        found = gradients()
    for mine, reference in zip(found, expected, strict=True):
        assert torch.equal(mine, reference)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_layers(device, kind, create_graph):
    """Of a forward pass in float32. In a thread of its own: in one that has used
    torch.func, layers go step by step, and autocast casts those steps' gradients."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_check_gradients, device, kind, create_graph).result()


def _slowly(function):
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return function()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [torch.float32, torch.float16])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_layers(device, dtype, given, norm_first, masked):
    """They are nearer the float32 ones than the slow path is, in its dtypes."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, batch_first=True, norm_first=norm_first, device=device
    ).eval()
    x = torch.randn(3, 7, 32).to(device, given)
    mask = torch.zeros(3, 7, dtype=torch.bool, device=device)
    mask[1, 5:] = masked
    options = {"src_key_padding_mask": mask} if masked else {}

    @torch.no_grad()
    def call():
        with torch.autocast("opencl", dtype):
            return layer(x, **options)

    found, slow = call(), _slowly(call)
    assert found.dtype == slow.dtype
    with torch.no_grad():
        expected = layer(x.float(), **options)

    def distance(y):
        return (y[~mask].float() - expected[~mask]).norm().item()

    assert distance(found) <= distance(slow)


@pytest.mark.parametrize("given", [torch.float32, torch.float16])
def test_encoder_of_sequences(device, given):
    """On nested tensors, of which the padded batch is made again."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(device).eval()
    x = torch.randn(3, 5, 32).to(device, given)
    hidden = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]) > 0
    hidden = hidden.to(device)

    @torch.no_grad()
    def call():
        with torch.autocast("opencl", torch.bfloat16):
            return model(x, src_key_padding_mask=hidden)

    found, slow = call(), _slowly(call)
    assert found.dtype == slow.dtype
    torch.testing.assert_close(found[~hidden], slow[~hidden], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("own", [torch.float32, torch.float16])
def test_attention(device, dtype, need_weights, own):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4, batch_first=True, device=device, dtype=own)
    module.eval()
    x = torch.randn(3, 7, 32).to(device, own)

    @torch.no_grad()
    def call():
        with torch.autocast("opencl", dtype):
            return module(x, x, x, need_weights=need_weights)

    for mine, reference in zip(call(), _slowly(call), strict=True):
        if reference is None:
            assert mine is None
        else:
            torch.testing.assert_close(mine, reference, rtol=0.02, atol=0.01)
