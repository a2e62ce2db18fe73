"""torch.compile(mode="reduce-overhead"): what is replayed is what is computed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

replay = pytest.importorskip("torch_opencl.inductor.replay")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def replays(monkeypatch):
    """The number of replays so far."""
    count = [0]
    of = replay._Capture.replay

    def counted(self, inputs):
        count[0] += 1
        return of(self, inputs)

    monkeypatch.setattr(replay._Capture, "replay", counted)
    return lambda: count[0]


def compiled(function, **options):
    return torch.compile(function, mode="reduce-overhead", fullgraph=True, **options)


class Block(nn.Module):
    """Attention to a cache of keys and values, and a perceptron."""

    def __init__(self, channels=32, heads=4, length=9) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(channels), heads
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, 4)
        cache = torch.zeros(2, 1, heads, length, channels // heads)
        self.register_buffer("cache", cache)

    def forward(self, x, place):
        qkv = self.qkv(self.norm(x)).view(1, 1, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        self.cache[0].index_copy_(2, place, k)
        self.cache[1].index_copy_(2, place, v)
        mask = (torch.arange(9, device=x.device) <= place)[None]
        y = F.scaled_dot_product_attention(q, *self.cache, mask)
        return F.gelu(self.out(y.transpose(1, 2).flatten(2)))


@torch.no_grad()
def test_decoding_with_a_cache(device, replays):
    torch.manual_seed(0)
    reference = Block()
    mine = Block()
    mine.load_state_dict(reference.state_dict())
    step = compiled(mine.to(device))
    kept = []
    for place in range(9):
        x, at = torch.randn(1, 1, 32), torch.tensor([place])
        kept.append((step(x.to(device), at.to(device)), reference(x, at)))
    for found, expected in kept:  # no replay overwrites what was returned
        torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(mine.cache.cpu(), reference.cache)
    assert replays() >= 7


@torch.no_grad()
def test_weights_may_change(device, replays):
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    mine = network.to(device)
    function = compiled(mine)
    x = torch.randn(2, 3, 12, 12, device=device)
    for _ in range(3):
        function(x)
    mine[0].weight.mul_(0.5)
    torch.testing.assert_close(function(x), mine(x))
    mine[2].weight.data = torch.randn(4, 8, 3, 3, device=device)  # elsewhere
    for _ in range(3):
        torch.testing.assert_close(function(x), mine(x))
    assert replays() >= 4


@torch.no_grad()
def test_shapes_and_numbers(device, replays):
    @compiled
    def function(x, n):
        return torch.cat([x.softmax(-1) * n, x[: n % 2 + 1]]).sum(0), n + 1

    for n in (3, 4, 3, 4, 3, 4):
        for size in (5, 8):
            x = torch.randn(6, size, device=device)
            expected = torch.cat([x.softmax(-1) * n, x[: n % 2 + 1]]).sum(0)
            found, number = function(x, n)
            torch.testing.assert_close(found, expected)
            assert number == n + 1
    assert replays() > 0


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.linear = nn.Linear(8 * 25, 5)

    def forward(self, x):
        return self.linear(F.relu(self.norm(self.conv(x))).flatten(1))


def _two(device, network):
    """The network on the CPU in float64, on the device, and optimizers of both."""
    torch.manual_seed(0)
    reference = network()
    mine = network()
    mine.load_state_dict(reference.state_dict())
    reference, mine = reference.double(), mine.to(device)
    optimizers = [
        torch.optim.SGD(model.parameters(), 0.05, 0.9) for model in (reference, mine)
    ]
    return reference, mine, optimizers


def _assert_same_parameters(mine, reference):
    for (name, found), expected in zip(
        mine.state_dict().items(), reference.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            found.cpu().to(expected.dtype), expected, atol=2e-5, rtol=2e-4, msg=name
        )


def test_training(device, replays):
    reference, mine, (exact, optimizer) = _two(device, Classifier)
    step = compiled(mine)
    kept = []
    for _ in range(8):
        x, target = torch.randn(4, 3, 7, 7), torch.randint(5, (4,))
        expected = reference(x.double())
        found = step(x.to(device))
        losses = [F.cross_entropy(y, target.to(y.device)) for y in (expected, found)]
        for each, loss in zip((exact, optimizer), losses, strict=True):
            each.zero_grad()
            loss.backward()
            each.step()
        kept += [(found, expected), tuple(reversed(losses))]
    for found, expected in kept:  # no replay overwrites what was returned
        torch.testing.assert_close(found.cpu().double(), expected, atol=1e-4, rtol=1e-3)
    _assert_same_parameters(mine, reference)
    assert replays() >= 7 + 5


def test_gradients_accumulate(device, replays):
    """Also those of two forward calls whose backward ones follow."""
    reference, mine, (exact, optimizer) = _two(device, Classifier)
    step = compiled(mine)
    for turn in range(6):
        xs = [torch.randn(4, 3, 7, 7) for _ in range(3)]
        for model, each in ((reference, exact), (step, optimizer)):
            each.zero_grad()
            where = each.param_groups[0]["params"][0]
            first, second, third = (model(x.to(where)) for x in xs)
            third.square().mean().backward()
            first.square().mean().backward()
            (second * turn).square().mean().backward()
            each.step()
    _assert_same_parameters(mine, reference)
    assert replays() >= 12


def test_gradients_of_inputs(device, replays):
    weight = torch.randn(6, 4, device=device, requires_grad=True)
    function = compiled(lambda x: (x.sin() @ weight).tanh() * x.sum())
    kept = []
    for _ in range(6):
        x = torch.randn(3, 6, device=device, requires_grad=True)
        function(x).sum().backward()
        expected = torch.autograd.grad(
            ((x.sin() @ weight).tanh() * x.sum()).sum(), [x, weight]
        )
        kept.append((x.grad, expected[0]))
        torch.testing.assert_close(weight.grad, expected[1])
        weight.grad = None
    for found, expected in kept:
        torch.testing.assert_close(found, expected)
    assert replays() >= 4 + 3


def test_dropout_in_training(device, replays):
    """Each replay has numbers of its own, the same as without replays."""
    layers = [nn.Linear(16, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 16)]
    network = nn.Sequential(*layers, nn.Dropout(0.5)).to(device)
    x = torch.randn(8, 16, device=device)

    def run(function):
        torch.manual_seed(7)
        values = []
        for _ in range(6):
            network.zero_grad()
            y = function(x)
            y.square().sum().backward()
            values += [y.detach().clone(), network[0].weight.grad.clone()]
        return values

    expected = run(torch.compile(network, fullgraph=True))
    torch._dynamo.reset()
    found = run(compiled(network))
    assert replays() >= 5 + 3
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other)
    assert not torch.equal(found[-2] == 0, found[-4] == 0)


def test_training_keeps_no_memory(device, replays):
    _, mine, (_, optimizer) = _two(device, Classifier)
    step = compiled(mine)
    x = torch.randn(4, 3, 7, 7, device=device)
    used = []
    for _ in range(10):
        optimizer.zero_grad()
        step(x).square().mean().backward()
        optimizer.step()
        used.append(torch.opencl.memory_allocated(device))
    assert len(set(used[5:])) == 1
    assert replays() >= 16


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_results_are_used_in_other_modes(device, replays, mode):
    layer = nn.Linear(6, 6).to(device).requires_grad_(False)
    function = compiled(layer)
    x = torch.randn(5, 6, device=device)
    for _ in range(4):
        with mode():
            y = function(x)
        function(x)
    if mode is torch.no_grad:
        weight = torch.ones(6, 6, device=device, requires_grad=True)
        (y @ weight).sum().backward()  # saves y
        torch.testing.assert_close(weight.grad, y.sum(0)[:, None].expand(6, 6))
    torch.testing.assert_close(y, layer(x))
    assert replays() > 0


@torch.no_grad()
def test_results_on_another_stream(device, replays):
    """What record_stream was told of is read before it is written again."""
    function = compiled(lambda x: x + 1, dynamic=False)
    stream = torch.Stream(device)
    inputs = [torch.full((1 << 20,), float(i), device=device) for i in range(12)]
    sums = []
    for x in inputs:
        y = function(x)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            for _ in range(3):
                torch.arange(float(1 << 20), device=device).sort()
            sums.append(y.sum())
            y.record_stream(stream)
        del y
    stream.synchronize()
    expected = [(i + 1.0) * 2**20 for i in range(12)]
    torch.testing.assert_close(torch.stack(sums).cpu(), torch.tensor(expected))
    assert replays() >= 10


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.randperm(5, device=x.device) * 1e-30,
        lambda x: torch.fft.rfft(x).abs(),
        lambda x: (x + 1).cpu() * 2,
    ],
)
@torch.no_grad()
def test_what_cannot_be_captured_runs(device, function, replays):
    made = compiled(function)
    for _ in range(4):
        x = torch.randn(3, 5, device=device)
        torch.testing.assert_close(made(x), function(x))
    assert replays() == 0


@torch.no_grad()
def test_inputs_that_are_written_to(device, replays):
    @compiled
    def function(x, y):
        x.mul_(2)
        return x + y

    x, y = torch.randn(4, device=device), torch.randn(4, device=device)
    before = x.clone()
    for step in range(1, 5):
        torch.testing.assert_close(function(x, y), before * 2**step + y)
    torch.testing.assert_close(x, before * 16)
    assert replays() == 0


@torch.no_grad()
def test_views_and_streams(device, replays):
    weight = torch.randn(8, 8, device=device)
    function = compiled(lambda x: (x @ weight).t(), dynamic=False)
    stream = torch.Stream(device)
    wide = torch.randn(6, 4, 16, device=device)
    for i in range(6):
        x = wide[i].t()[::2].t()
        expected = (x @ weight).t()
        if i < 4:
            found = function(x)
        else:
            stream.wait_stream(torch.accelerator.current_stream())
            with stream:
                found = function(x)
            stream.synchronize()
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert replays() >= 4
