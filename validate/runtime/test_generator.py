import pytest
import torch
from script import run_script


@pytest.fixture(autouse=True)
def on_device(device):
    with torch.opencl.device(device):
        yield


def draw(count: int, source: torch.Generator | torch.device) -> torch.Tensor:
    """Numbers of a generator, or of a device's own one, on the CPU."""
    if isinstance(source, torch.device):
        return torch.rand(count, device=source).cpu()
    return torch.rand(count, device=source.device, generator=source).cpu()


def test_state_is_seed_and_offset(device):
    generator = torch.Generator(device)
    generator.manual_seed(1234)
    state = generator.get_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    assert state.numpy().view("uint64").tolist() == [1234, 0]
    assert generator.initial_seed() == 1234


def test_state_round_trip(device):
    generator = torch.Generator(device).manual_seed(5)
    state = generator.get_state()
    first = draw(1000, generator)
    assert not torch.equal(generator.get_state(), state)
    second = draw(1000, generator)
    generator.set_state(state)
    assert torch.equal(draw(1000, generator), first)
    assert torch.equal(draw(1000, generator), second)
    assert not torch.equal(first, second)


def test_clone_continues_alone(device):
    generator = torch.Generator(device).manual_seed(5)
    clone = generator.clone_state()
    first = draw(100, generator)
    assert torch.equal(draw(100, clone), first)


def test_wrong_states_are_refused(device):
    generator = torch.Generator(device)
    with pytest.raises(RuntimeError, match="wrong size"):
        generator.set_state(torch.zeros(8, dtype=torch.uint8))
    with pytest.raises(TypeError):
        generator.set_state(torch.zeros(16))


def test_a_generator_of_another_device_type_is_refused(device):
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.rand(3, device=device, generator=torch.Generator("cpu"))


def test_manual_seed_reaches_every_device(device):
    torch.manual_seed(11)
    assert torch.opencl.initial_seed() == 11
    first = draw(100, device)
    torch.opencl.manual_seed_all(11)
    assert torch.equal(draw(100, device), first)
    torch.opencl.seed_all()
    assert torch.opencl.initial_seed() != 11


@pytest.mark.parametrize(
    ("calls", "seed"),
    [
        ("seed_all(); manual_seed(7)", 7),
        ("set_rng_state(state(9)); manual_seed(7)", 7),
        ("manual_seed(7); set_rng_state(state(9))", 9),
        ("manual_seed(7); manual_seed_all(8)", 8),
        ("manual_seed_all(8); manual_seed(7)", 7),
    ],
)
def test_calls_before_the_first_use_keep_their_order(calls, seed):
    printed = run_script(
        f"""
        from torch.opencl import manual_seed, manual_seed_all, seed_all, set_rng_state

        def state(seed):
            return torch.tensor([seed, 0]).view(torch.uint8)

        {calls}
        assert not torch.opencl.is_initialized()
        print(torch.opencl.initial_seed())
        """
    )
    assert printed == f"{seed}\n"


def test_of_seeds_before_the_first_use_the_latest_is_kept():
    run_script(
        """
        from torch_opencl.opencl import _lazy

        for seed in range(5):
            torch.manual_seed(seed)
            torch.opencl.manual_seed(seed)
        assert len(_lazy._queued_calls) == 2
        """
    )


def test_rng_state_of_the_module(device):
    states = torch.opencl.get_rng_state_all()
    assert len(states) == torch.opencl.device_count()
    state = torch.opencl.get_rng_state(device)
    first = draw(10, device)
    torch.opencl.set_rng_state(state, device)
    assert torch.equal(draw(10, device), first)
    torch.opencl.set_rng_state_all(states)
    assert torch.equal(draw(10, device), first)


def test_fork_rng(device):
    before = torch.opencl.get_rng_state(device)
    with torch.random.fork_rng([device.index], device_type="opencl"):
        draw(10, device)
        assert not torch.equal(torch.opencl.get_rng_state(device), before)
    assert torch.equal(torch.opencl.get_rng_state(device), before)
