"""torch.accelerator.Graph: what is captured runs at each replay, and only then."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from captures import CAPTURING, captured, on_device  # noqa: F401
from torch import nn


def test_runs_at_replays_only(device):
    x = torch.zeros(5, device=device)
    x.add_(1)
    graph = torch.accelerator.Graph()
    with graph:
        assert torch.opencl.is_current_stream_capturing()
        x.add_(2).mul_(3)
    assert not torch.opencl.is_current_stream_capturing()
    assert x.tolist() == [1] * 5
    graph.replay()
    graph.replay()
    assert x.tolist() == [33] * 5


def test_reads_inputs_at_each_replay(device):
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 25, 7),
        nn.Softmax(1),
    ).eval()
    mine = torch.nn.modules.module.Module.to(network, device)
    x = torch.randn(2, 3, 5, 5, device=device)
    with torch.no_grad():
        graph, y = captured(lambda: mine(x))
        for _ in range(3):
            x.copy_(torch.randn(2, 3, 5, 5))
            graph.replay()
            torch.testing.assert_close(y, mine(x))


@pytest.mark.parametrize("shape", [(1, 64, 64), (33, 129, 65)])
def test_weights_that_change(device, shape):
    """Packed weights are packed again, at the replay that follows a write."""
    m, k, n = shape
    x, weight = torch.randn(m, k, device=device), torch.randn(n, k, device=device)
    images = torch.randn(2, 3, 9, 9, device=device)
    filters = torch.randn(4, 3, 3, 3, device=device)
    graph, (y, z) = captured(
        lambda: (F.linear(x, weight), F.conv2d(images, filters, padding=1))
    )
    for write in (
        lambda: None,
        lambda: weight.mul_(2),
        lambda: filters.data.copy_(torch.randn(4, 3, 3, 3)),
        lambda: weight[1:].zero_(),
    ):
        write()
        for _ in range(2):
            graph.replay()
            torch.testing.assert_close(y.cpu(), F.linear(x, weight).cpu())
            torch.testing.assert_close(
                z.cpu(), F.conv2d(images, filters, padding=1).cpu()
            )


def test_memory_after_packing_that_raised(device):
    """It is not that of packed weights, which replays leave alone."""
    x = torch.randn(1, 64, 6, 6, device=device)
    large = torch.randn(1024, 64, 3, 3, device=device)
    weight = torch.randn(64, 64, 3, 3, device=device)
    total = torch.opencl.get_device_properties(device).total_memory
    raised = False

    def run():
        nonlocal raised
        raised = False
        torch.empty(2**16, device=device)  # for the output
        reserved = torch.opencl.memory_reserved(device)
        torch.opencl.set_per_process_memory_fraction(reserved / total, device)
        try:
            F.conv2d(x, large)
        except torch.OutOfMemoryError:
            raised = True
        finally:
            torch.opencl.set_per_process_memory_fraction(1.0, device)
        ones = [torch.ones_like(weight) for _ in range(4)]
        total_of_ones = sum(tensor.sum() for tensor in ones)
        del ones
        return F.conv2d(x, weight), total_of_ones

    torch.opencl.empty_cache()
    graph, (y, _) = captured(run)
    if not raised:
        pytest.skip("kernels of GPUs pack nothing")
    expected = F.conv2d(x.cpu(), weight.cpu())
    for _ in range(3):
        graph.replay()
        torch.testing.assert_close(y.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_writes_of_a_replay_are_seen(device):
    """Values packed of a weight are stale once a replay has written to it."""
    x, weight = torch.randn(40, 64, device=device), torch.randn(32, 64, device=device)
    graph, _ = captured(lambda: weight.neg_())
    for _ in range(4):
        before = F.linear(x, weight).cpu()
        graph.replay()
        torch.testing.assert_close(F.linear(x, weight).cpu(), -before)


def test_training_step(device):
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))
    mine = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2)).to(device)
    mine.load_state_dict(reference.state_dict())
    steps = [
        torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in (reference, mine)
    ]

    def step(network, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(network(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batches = [(torch.randn(5, 6), torch.randn(5, 2)) for _ in range(6)]
    x, y = (tensor.to(device) for tensor in batches[0])
    losses = [step(reference, steps[0], *batch).item() for batch in batches]
    found = [step(mine, steps[1], x, y).item() for _ in range(1)]
    graph = torch.accelerator.Graph()
    with graph:
        loss = step(mine, steps[1], x, y)
    for batch in batches[1:]:
        x.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        found.append(loss.item())
    assert found == pytest.approx(losses, rel=1e-5)
    for a, b in zip(mine.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_scatters_copies_and_fills(device):
    x = torch.arange(12.0, device=device)
    index = torch.tensor([0, 2, 2], device=device)

    def function():
        y = torch.zeros(4, device=device)
        y.index_add_(0, index, x[:3])
        joined = torch.cat([y, x.clone(), torch.full((3,), 0.5, device=device)])
        return joined.sort().values, torch.tensor(7.0, device=device) + y

    graph, results = captured(function)
    x.neg_()
    graph.replay()
    for mine, expected in zip(results, function(), strict=True):
        assert torch.equal(mine, expected)


def test_memory_is_the_graphs(device):
    """Nobody else gets it, also where a tensor was freed during the capture."""
    x = torch.randn(1000, device=device)

    def function():
        for _ in range(4):
            y = x * 2
            y = y + 1
        return y

    graph, y = captured(function)
    others = [torch.full((1000,), 3.0, device=device) for _ in range(50)]
    expected = x * 2 + 1
    graph.replay()
    assert torch.equal(y, expected)
    assert all(torch.equal(o, torch.full_like(o, 3)) for o in others)


def test_memory_is_given_back(device):
    torch.opencl.empty_cache()
    before = torch.opencl.memory_reserved(device)
    x = torch.randn(1 << 20, device=device)
    graph, y = captured(lambda: (x * 2).exp())
    torch.opencl.empty_cache()
    y.fill_(0)
    graph.replay()  # of memory that the cache did not give back
    assert torch.equal(y, (x * 2).exp())
    graph = x = y = None
    gc.collect()
    torch.opencl.empty_cache()
    assert torch.opencl.memory_reserved(device) <= before


def test_graphs_that_share_a_pool(device):
    x = torch.ones(3, device=device)
    first = torch.accelerator.Graph()
    with first:
        y = x + 1
    second = torch.accelerator.Graph(pool=first.pool())
    with second:
        z = y * 10
    assert first.pool() == second.pool()
    first.replay()
    second.replay()
    assert z.tolist() == [20, 20, 20]


def test_streams_that_join(device):
    """A stream that waits for one that captures is captured, too."""
    x, w = (torch.randn(8, 8, device=device) for _ in range(2))
    side = torch.Stream(device)

    def function():
        y = x @ w
        main = torch.accelerator.current_stream()
        side.wait_stream(main)
        with side:
            z = torch.tanh(y) + 1
        early = y * 2
        main.wait_stream(side)
        z.record_stream(main)
        return early + z

    graph, result = captured(function)
    for _ in range(3):
        x.copy_(torch.randn(8, 8))
        graph.replay()
        torch.testing.assert_close(result, function())
    with side:  # captures no longer
        assert not torch.opencl.is_current_stream_capturing()
        torch.testing.assert_close(torch.ones(3, device=device).sum().item(), 3.0)


def test_new_memory_of_a_busy_stream(device):
    """A replay on another stream comes after the memory's first use."""
    x = torch.ones(5, device=device)
    large = torch.rand(1 << 21, device=device)
    x + 1, large.sort()
    side = torch.Stream(device)
    graph = torch.accelerator.Graph()
    torch.accelerator.synchronize()
    with side:
        large.sort()
        graph.capture_begin()
        y = x + 1
        graph.capture_end()
    graph.replay()
    side.synchronize()
    assert y.tolist() == [2] * 5


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_gradients_of_a_stream_that_joins(device):
    """Parameters whose gradients were first accumulated on another stream."""
    weight = torch.randn(6, 6, device=device, requires_grad=True)
    x = torch.randn(4, 6, device=device)
    side = torch.Stream(device)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        kept = (x @ weight).sum()  # with its node of the other stream
        kept.backward()
    torch.accelerator.current_stream().wait_stream(side)
    weight.grad = None
    graph = torch.accelerator.Graph()
    with graph:
        (x @ weight).tanh().sum().backward()
    for _ in range(2):
        x.copy_(torch.randn(4, 6))
        graph.replay()
        (expected,) = torch.autograd.grad((x @ weight).tanh().sum(), weight)
        torch.testing.assert_close(weight.grad, expected)


def test_events_of_a_capture_end_with_it(device):
    x = torch.ones(3, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        x.add_(1)
        event = torch.accelerator.current_stream().record_event()
        for use in (event.query, event.synchronize):
            with pytest.raises(RuntimeError, match="recorded in a capture never runs"):
                use()
    side = torch.Stream(device)
    with pytest.raises(RuntimeError, match="recorded in a capture ends with it"):
        side.wait_event(event)
    graph.reset()
    del graph
    with pytest.raises(RuntimeError, match="recorded in a capture ends with it"):
        side.wait_event(event)
    event.record(side)
    torch.accelerator.current_stream().wait_event(event)
    event.synchronize()
    assert event.query()


def test_a_wait_for_what_is_not_captured_is_refused(device):
    x = torch.ones(3, device=device)
    side = torch.Stream(device)
    event = side.record_event()
    graph = torch.accelerator.Graph()
    with graph:
        x.add_(1)
        with pytest.raises(RuntimeError, match=CAPTURING):
            torch.accelerator.current_stream().wait_event(event)
    graph.replay()
    assert x.tolist() == [2] * 3


def test_on_a_stream(device):
    x = torch.zeros(1 << 16, device=device)
    stream = torch.Stream(device)
    graph = torch.accelerator.Graph()
    stream.wait_stream(torch.accelerator.current_stream())
    with stream, graph:
        x += 1
    with stream:
        for _ in range(5):
            graph.replay()
    stream.synchronize()
    assert torch.equal(x, torch.full_like(x, 5))


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.zeros(100)),
        lambda x: torch.opencl.synchronize(),
        lambda x: torch.opencl.current_stream().query(),
        lambda x: x.nonzero(),
        lambda x: torch.fft.fft(x),
    ],
)
def test_nothing_waits(device, wait):
    x = torch.ones(100, device=device)
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match=CAPTURING), graph:
        wait(x)
    assert x.sum().item() == 100
    graph.reset()
    with graph:
        x += 1
    graph.replay()
    assert x[0].item() == 2


def test_bad_indices_are_reported(device):
    x, index = torch.randn(4, device=device), torch.tensor([1], device=device)
    graph, y = captured(lambda: x.index_select(0, index))
    graph.replay()
    assert torch.equal(y, x[1:2])
    index.fill_(9)
    graph.replay()
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        torch.opencl.synchronize()
    index.fill_(0)
    graph.replay()
    assert torch.equal(y, x[:1])


@pytest.mark.parametrize("captures_all", [True, False])
def test_bad_indices_are_reported_to_the_stream_of_the_replay(device, captures_all):
    x, index = torch.ones(4, device=device), torch.tensor([1], device=device)
    graph, main, side = (
        torch.accelerator.Graph(),
        torch.accelerator.current_stream(),
        torch.Stream(device),
    )
    torch.opencl.synchronize()
    if captures_all:
        with side, graph:
            y = x.index_select(0, index)
    else:  # the stream joins the one that captures
        with graph:
            x * 2
            side.wait_stream(main)
            with side:
                y = x.index_select(0, index)
            main.wait_stream(side)
    for wait in (y.item, y.item, torch.opencl.synchronize):
        index.fill_(9)
        graph.replay()
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            wait()
    index.fill_(0)
    graph.replay()
    assert y.item() == 1
    torch.opencl.synchronize()


def test_pinned_memory_is_freed_in_a_capture(device):
    pinned = torch.randn(4096).pin_memory()
    x = pinned.to(device, non_blocking=True)
    expected = pinned + 1
    graph = torch.accelerator.Graph()
    with graph:
        y = x + 1
        del pinned
    graph.replay()
    assert torch.equal(y.cpu(), expected)


def test_misuse(device):
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a capture_begin"):
        graph.capture_end()
    x = torch.zeros(3, device=device)
    with graph:
        x += 1
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        graph.capture_begin()
    graph.capture_begin = None
    other = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match=CAPTURING), other:
        graph.replay()
    other.reset()
    graph.replay()
    assert x.tolist() == [1, 1, 1]
    side = torch.Stream(device)
    graph.reset()
    del graph.capture_begin
    graph.capture_begin()
    with side, pytest.raises(RuntimeError, match="must end on the same stream"):
        graph.capture_end()
    assert (x + 1).tolist() == [2, 2, 2]


def test_dump(device, tmp_path):
    x = torch.zeros(3, device=device)
    graph = torch.accelerator.Graph()
    with graph:
        x += 1
        x.exp_()
    graph.debug_dump(str(tmp_path / "graph.txt"))
    lines = (tmp_path / "graph.txt").read_text().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("launch ") for line in lines)


def test_costs_less_than_launches(device):
    """By commands: a replay enqueues what was captured, and waits for nothing."""
    x = torch.randn(50, device=device)

    def function():
        y = x
        for _ in range(20):
            y = (y * 1.5).tanh()
        return y

    graph, y = captured(function)
    before = torch.opencl.wait_stats()
    graph.replay()
    assert torch.opencl.wait_stats() == before
    assert torch.equal(y, function())
