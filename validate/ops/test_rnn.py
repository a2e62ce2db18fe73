"""Recurrent layers: cells with and without biases, layers in every form."""

from __future__ import annotations

import pytest
import torch
from against_cpu import check
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_LAYERS = {
    "lstm": lambda: nn.LSTM(5, 7),
    "lstm without bias": lambda: nn.LSTM(5, 7, bias=False),
    "lstm, two layers, both directions": lambda: nn.LSTM(5, 7, 2, bidirectional=True),
    "lstm with projection": lambda: nn.LSTM(5, 7, proj_size=3),
    "gru": lambda: nn.GRU(5, 7),
    "gru without bias": lambda: nn.GRU(5, 7, bias=False),
    "gru, two layers, batch first": lambda: nn.GRU(5, 7, 2, batch_first=True),
    "tanh": lambda: nn.RNN(5, 7),
    "relu": lambda: nn.RNN(5, 7, nonlinearity="relu"),
}


def _functional(layer: nn.Module, x: torch.Tensor, parameters: list[torch.Tensor]):
    names = [name for name, _ in layer.named_parameters()]
    given = dict(zip(names, parameters, strict=True))
    return torch.func.functional_call(layer, given, (x,))[0]


@pytest.mark.parametrize("name", _LAYERS)
def test_layers(device, name):
    torch.manual_seed(3)
    layer = _LAYERS[name]()
    parameters = [p.detach() for p in layer.parameters()]
    check(
        lambda x, *p: _functional(layer, x, p),
        [torch.randn(4, 3, 5), *parameters],
        device,
    )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(device, kind):
    layer, x = kind(5, 7), torch.randn(6, 3, 5)
    lengths = torch.tensor([6, 4, 1])
    outputs = []
    for place in ("cpu", device):
        packed = pack_padded_sequence(x.to(place), lengths)
        outputs.append(pad_packed_sequence(layer.to(place)(packed)[0])[0].cpu())
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(device, dtype):
    layer, x = nn.LSTM(5, 7), torch.randn(4, 3, 5)
    expected = layer(x)[0]
    result = layer.to(device, dtype)(x.to(device, dtype))[0]
    torch.testing.assert_close(result.cpu().float(), expected, rtol=0.05, atol=0.02)


def test_empty_batch_and_wrong_gates(device):
    cell = nn.LSTMCell(5, 7).to(device)
    h, c = cell(torch.empty(0, 5, device=device))
    assert h.shape == c.shape == (0, 7)
    with pytest.raises(RuntimeError, match="expected gates of shape"):
        torch.ops.aten._thnn_fused_gru_cell(
            *(torch.zeros(2, 9, device=device),) * 2, torch.zeros(2, 4, device=device)
        )
