import pytest
import torch


@pytest.fixture(autouse=True)
def on_device(device):
    with torch.opencl.device(device):
        yield


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
    first = torch.rand(1000, device=device, generator=generator)
    assert not torch.equal(generator.get_state(), state)
    second = torch.rand(1000, device=device, generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(1000, device=device, generator=generator), first)
    assert torch.equal(torch.rand(1000, device=device, generator=generator), second)
    assert not torch.equal(first, second)


def test_clone_continues_alone(device):
    generator = torch.Generator(device).manual_seed(5)
    clone = generator.clone_state()
    first = torch.rand(100, device=device, generator=generator)
    assert torch.equal(torch.rand(100, device=device, generator=clone), first)


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
    first = torch.rand(100, device=device)
    torch.opencl.manual_seed_all(11)
    assert torch.equal(torch.rand(100, device=device), first)
    torch.opencl.seed_all()
    assert torch.opencl.initial_seed() != 11


def test_rng_state_of_the_module(device):
    states = torch.opencl.get_rng_state_all()
    assert len(states) == torch.opencl.device_count()
    state = torch.opencl.get_rng_state(device)
    first = torch.rand(10, device=device)
    torch.opencl.set_rng_state(state, device)
    assert torch.equal(torch.rand(10, device=device), first)
    torch.opencl.set_rng_state_all(states)
    assert torch.equal(torch.rand(10, device=device), first)


def test_fork_rng(device):
    before = torch.opencl.get_rng_state(device)
    with torch.random.fork_rng([device.index], device_type="opencl"):
        torch.rand(10, device=device)
        assert not torch.equal(torch.opencl.get_rng_state(device), before)
    assert torch.equal(torch.opencl.get_rng_state(device), before)
