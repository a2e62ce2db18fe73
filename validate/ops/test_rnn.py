"""Recurrent layers: cells with and without biases, layers in every form."""

from __future__ import annotations

import copy

import pytest
import torch
from against_cpu import check, check_error
from tolerance import assert_matches
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


def _judged(device: torch.device) -> tuple:
    """Where and in which dtype `_assert_alike` wants results."""
    return ("cpu", torch.float64), ("cpu", torch.float32), (device, torch.float32)


def _assert_alike(exact: list, cpu: list, found: list) -> None:
    for reference, baseline, result in zip(exact, cpu, found, strict=True):
        assert_matches(result, reference, baseline)


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


_DTYPES_OF_CELLS = [
    ("lstm", torch.float16, torch.float16, torch.float32),
    ("lstm", torch.float32, torch.float32, torch.float16),
    ("lstm", torch.float32, torch.float32, torch.float64),
    ("gru", torch.float16, torch.float32, None),
    ("gru", torch.float64, torch.float32, None),
]


@pytest.mark.parametrize(("kind", "gates", "state", "cell"), _DTYPES_OF_CELLS)
def test_cells_of_two_dtypes(device, kind, gates, state, cell):
    rows = 4 if kind == "lstm" else 3
    x, h, c = torch.randn(2, 5), torch.randn(2, 7), torch.randn(2, 7)
    weights = torch.randn(rows * 7, 5).to(gates), torch.randn(rows * 7, 7).to(state)
    results = []
    for place in ("cpu", device):
        leaves = [x.to(gates), h.to(state), *weights]
        if cell is not None:
            leaves.append(c.to(cell))
        leaves = [leaf.detach().to(place).requires_grad_() for leaf in leaves]
        first, second, *rest = leaves
        states = (second, rest.pop()) if cell is not None else second
        found = getattr(torch, f"{kind}_cell")(first, states, *rest)
        found = found if cell is not None else (found,)
        grads = torch.autograd.grad(sum(y.float().sum() for y in found), leaves)
        results.append([y.detach().cpu() for y in (*found, *grads)])
    for mine, cpu in zip(*reversed(results), strict=True):
        torch.testing.assert_close(mine, cpu, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_biases_of_cells(device, kind):
    rows = 7 * (4 if kind == "lstm" else 3)
    x, h = torch.randn(2, 5), torch.randn(2, 7)
    weights = torch.randn(rows, 5), torch.randn(rows, 7)
    cell = getattr(torch, f"{kind}_cell")

    def run(x, h, *params):
        return cell(x, (h, h) if kind == "lstm" else h, *params)

    full, one = torch.randn(rows), torch.randn(1)
    check(run, [x, h, *weights, one, full], device)
    check(run, [x, h, *weights, full, one[0]], device)
    there = [t.to(device) for t in (x, h, *weights)]
    for bias, text in (
        (full[:8], "must match the existing size"),
        (full.half(), "must have the same dtype, but got Half and Float"),
        (torch.randn(2, rows), "number of dimensions"),
        (None, "both biases or none"),
    ):
        bias = bias if bias is None else bias.to(device)
        for pair in ((full.to(device), bias), (bias, full.to(device))):
            with pytest.raises(RuntimeError, match=text):
                run(*there, *pair)


def test_layers_without_states(device):
    x, weights = torch.randn(3, 2, 5), (torch.randn(28, 5), torch.randn(28, 7))

    def run(x, *weights):
        return torch._VF.lstm(x, [], weights, False, 1, 0.0, False, False, False)

    check_error(run, device, x, *weights)


# Sizes around those of vectors, rows at once, and weights for which steps are
# launches of their own. The last is of more panels than work-items.
_SEQUENCES = [
    ("LSTM", 1, 3, 16, {}),
    ("LSTM", 5, 4, 17, {"num_layers": 2, "bidirectional": True}),
    ("LSTM", 16, 2, 40, {"batch_first": True, "bidirectional": True}),
    ("LSTM", 33, 2, 270, {"bidirectional": True}),
    ("GRU", 1, 1, 15, {}),
    ("GRU", 7, 3, 33, {"num_layers": 2, "batch_first": True, "bidirectional": True}),
    ("GRU", 18, 2, 310, {"bias": False, "bidirectional": True}),
    ("RNN", 9, 3, 19, {"bidirectional": True, "batch_first": True}),
    ("RNN", 3, 2, 530, {"nonlinearity": "relu"}),
    ("RNN", 19, 2, 530, {}),
]


@pytest.mark.parametrize(
    ("kind", "batch", "steps", "units", "options"),
    _SEQUENCES,
    ids=[f"{c[0]}-{c[1]}x{c[2]}x{c[3]}" for c in _SEQUENCES],
)
def test_states_and_their_gradients(device, kind, batch, steps, units, options):
    torch.manual_seed(5)
    layer = getattr(nn, kind)(6, units, **options)
    names = [name for name, _ in layer.named_parameters()]
    states = layer.num_layers * (1 + layer.bidirectional), batch, units
    count = 2 if kind == "LSTM" else 1

    def results(x, *rest):
        given = dict(zip(names, rest[count:], strict=True))
        hx = rest[:2] if count == 2 else rest[0]
        out, last = torch.func.functional_call(layer, given, (x, hx))
        return (out, *last) if count == 2 else (out, last)

    shape = (batch, steps, 6) if layer.batch_first else (steps, batch, 6)
    hx = [torch.randn(states) for _ in range(count)]
    parameters = [p.detach() for p in layer.parameters()]
    check(results, [torch.randn(shape), *hx, *parameters], device)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gradients_without_some_results(device, kind):
    layer, x = kind(5, 7, bidirectional=True), torch.randn(4, 3, 5)
    for pick in (lambda o, s: s, lambda o, s: o[:1]):
        grads = []
        for place in _judged(device):
            out, last = layer.to(*place)(x.to(*place))
            last = last[-1] if isinstance(last, tuple) else last
            loss = pick(out, last).square().sum()
            found = torch.autograd.grad(loss, layer.parameters(), retain_graph=True)
            again = torch.autograd.grad(loss, layer.parameters())
            for first, second in zip(found, again, strict=True):
                assert torch.equal(first, second)
            grads.append([g.cpu() for g in found])
        _assert_alike(*grads)


def test_results_may_be_written_before_backward(device):
    layer, x = nn.GRU(5, 7), torch.randn(4, 3, 5)
    grads = []
    for place in _judged(device):
        out, last = layer.to(*place)(x.to(*place))
        (out.mul_(2).sum() + last.mul_(3).sum()).backward()
        grads.append([p.grad.cpu() for p in layer.parameters()])
        layer.zero_grad()
    _assert_alike(*grads)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gradients_of_gradients(device, kind):
    layer, x = kind(5, 7), torch.randn(4, 3, 5)
    state = torch.randn(1, 3, 7)
    found = []
    for place in _judged(device):
        inputs, h = x.to(*place).requires_grad_(), state.to(*place).requires_grad_()
        layer = layer.to(*place)
        # One tensor as both states.
        out, _ = layer(inputs, (h, h) if kind is nn.LSTM else h)
        (first,) = torch.autograd.grad(out.square().sum(), h, create_graph=True)
        wanted = (inputs, h, *layer.parameters())
        second = torch.autograd.grad(first.square().sum(), wanted, allow_unused=True)
        found.append([g.cpu() for g in (first.detach(), *second) if g is not None])
    _assert_alike(*found)


def test_changed_weights_are_seen(device):
    cpu, x = nn.LSTM(5, 20), torch.randn(4, 3, 5)
    layer = nn.LSTM(5, 20).to(device)
    with torch.inference_mode():
        for _ in range(2):
            for parameter in cpu.parameters():
                parameter.data.uniform_(-0.3, 0.3)
            for mine, other in zip(layer.parameters(), cpu.parameters(), strict=True):
                mine.data.copy_(other)
            for _ in range(3):
                result = layer(x.to(device))[0].cpu()
                torch.testing.assert_close(result, cpu(x)[0])


def test_transforms_go_step_by_step(device):
    layer, x = nn.RNN(5, 7).to(device), torch.randn(2, 4, 3, 5).to(device)
    expected = torch.stack([layer(part)[0] for part in x]).cpu()

    def loss(part):
        return layer(part)[0].square().sum()

    parts = x.clone().requires_grad_()
    (grads,) = torch.autograd.grad(sum(loss(part) for part in parts), parts)
    torch.testing.assert_close(torch.func.grad(loss)(x[0]).cpu(), grads[0].cpu())
    tangent = torch.ones_like(x[0])
    _, change = torch.func.jvp(loss, (x[0],), (tangent,))
    torch.testing.assert_close(change.cpu(), grads[0].sum().cpu())
    with torch.autocast("opencl", dtype=torch.bfloat16):
        cast = layer(x[0])[0]
    torch.testing.assert_close(
        cast.cpu().float(), expected[0].detach(), rtol=0.05, atol=0.03
    )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_views_and_refusals(device, kind):
    layer = kind(6, 9, 2, dropout=0.5, batch_first=True)
    x = torch.randn(7, 12, 4)[1:, ::2].transpose(1, 2)
    expected = layer.eval()(x)[0]
    layer = layer.to(device)
    wide = x.to(device).expand(x.shape)
    torch.testing.assert_close(layer(wide)[0].cpu(), expected)
    assert not torch.equal(layer.train()(wide)[0].cpu(), expected)
    with pytest.raises(RuntimeError, match=r"input\.size"):
        layer(torch.randn(2, 3, 5, device=device))


def test_gradients_of_gates_that_are_shut(device):
    """The sigmoid of -1e5 is 0, and so are what it hands on and its gradient."""
    layer = torch.nn.GRU(2, 64, bias=False)
    with torch.no_grad():
        layer.weight_ih_l0[64:128] = 1
    x, h = torch.full((1, 1, 2), 1e5), torch.randn(1, 1, 64)
    gradients = []
    for place in ("cpu", device):
        copied = copy.deepcopy(layer).to(place)
        copied(x.to(place), h.to(place))[0].sum().backward()
        gradients.append(copied.weight_ih_l0.grad.cpu())
    assert torch.equal(*gradients)
    assert gradients[0].count_nonzero() == 0
