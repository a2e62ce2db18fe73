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


def test_gradients_are_computed_without(device, replays):
    layer = nn.Linear(6, 3).to(device)
    function = compiled(layer)
    for _ in range(4):
        x = torch.randn(5, 6, device=device)
        layer.zero_grad()
        function(x).square().sum().backward()
        found = layer.weight.grad.clone()
        layer.zero_grad()
        layer(x).square().sum().backward()
        torch.testing.assert_close(found, layer.weight.grad)
    assert replays() == 0
    assert counters["inductor"]["cudagraph_skips"] > 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.rand_like(x) * 1e-30,
        lambda x: x + F.dropout(x, 0.5) * 1e-30,
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
