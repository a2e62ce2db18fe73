"""Random numbers in graphs: new ones at each replay."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from captures import CAPTURING, captured, on_device  # noqa: F401


def test_each_replay_draws_as_eager_code_would(device):
    """From the default generator and from one that is passed, in several orders."""
    mine = torch.Generator(device)
    rates = torch.full((500,), 3.0, device=device)

    def draw():
        x = torch.rand(1000, device=device)
        y = torch.randn(77, device=device, generator=mine)
        z = F.dropout(torch.ones(333, device=device), 0.3)
        i = torch.randint(5000, (90,), device=device)
        d = torch.randn(21, dtype=torch.float64, device=device)
        return x, y, z, i, d, torch.poisson(rates, generator=mine)

    def seed(number):
        torch.opencl.manual_seed(number)
        mine.manual_seed(number + 1)

    seed(1)
    graph, results = captured(draw)
    for number in (3, 4):
        seed(number)
        expected = [[x.cpu() for x in draw()] for _ in range(3)]
        after = torch.rand(9, device=device).cpu()
        seed(number)
        for values in expected:
            graph.replay()
            assert all(map(torch.equal, (x.cpu() for x in results), values))
        assert torch.equal(torch.rand(9, device=device).cpu(), after)


def test_a_capture_draws_nothing(device):
    torch.opencl.manual_seed(5)
    state = torch.opencl.get_rng_state(device)
    with torch.accelerator.Graph():
        torch.rand(10, device=device)
    assert torch.equal(torch.opencl.get_rng_state(device), state)


def test_a_generator_lives_as_long_as_its_graph(device):
    generator = torch.Generator(device).manual_seed(11)
    expected = torch.rand(10, generator=generator, device=device).cpu()
    generators = [generator.manual_seed(11)]
    graph, (result,) = captured(
        lambda: (torch.rand(10, generator=generators[0], device=device),)
    )
    generator.manual_seed(11)
    del generator
    generators.clear()
    graph.replay()
    assert torch.equal(result.cpu(), expected)


def test_training_with_dropout_replays(device):
    """Losses are those of eager steps with the same seeds."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(6, 32), torch.nn.Dropout(0.4), torch.nn.Linear(32, 1)
    ).to(device)
    start = copy.deepcopy(network.state_dict())
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    x = torch.randn(16, 6).to(device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = network(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    graph = torch.accelerator.Graph()
    with graph:
        loss = step()

    def losses(run):
        network.load_state_dict(start)
        torch.opencl.manual_seed(7)
        return [run().item() for _ in range(5)]

    def replay():
        graph.replay()
        return loss

    assert losses(replay) == pytest.approx(losses(step), rel=1e-6)


@pytest.mark.parametrize("name", ["randperm", "attention"])
def test_random_numbers_that_are_refused(device, name):
    x = torch.ones(1, 1, 4, 8, device=device)
    calls = {
        "randperm": lambda: torch.randperm(9, device=device),
        "attention": lambda: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    }
    messages = {"randperm": CAPTURING, "attention": "captures no dropout of"}
    with (
        pytest.raises((NotImplementedError, RuntimeError), match=messages[name]),
        torch.accelerator.Graph(),
    ):
        calls[name]()
    assert torch.rand(3, device=device).shape == (3,)
