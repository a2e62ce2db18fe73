"""Random number generators: one Philox generator a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _C
from ._lazy import _lazy_call, _lazy_init, is_initialized
from .devices import Device, _device_index


def _generator(device: Device) -> torch.Generator:
    return _C._default_generator(_device_index(device))


def _get_generator(device: torch.device) -> torch.Generator:
    """The generator that an op on ``device`` draws from (torch asks by this
    name)."""
    _lazy_init()
    return _generator(device)


def default_generators() -> tuple[torch.Generator, ...]:
    """``torch.opencl.default_generators``: of every device, in order; empty
    before the first use of a device, as in ``torch.cuda``."""
    if not is_initialized():
        return ()
    return tuple(_generator(index) for index in range(_C._device_count()))


def get_rng_state(device: Device = "opencl") -> torch.Tensor:
    """The state of a device's generator: a CPU tensor of 16 bytes (seed,
    offset)."""
    _lazy_init()
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators, in device order."""
    return [get_rng_state(index) for index in range(_C._device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "opencl") -> None:
    """Restores what :func:`get_rng_state` returned."""
    state = new_state.clone(memory_format=torch.contiguous_format)
    _lazy_call(lambda: _generator(device).set_state(state))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restores what :func:`get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device. Before the first use of a
    device this is remembered, and costs nothing without a driver."""
    value = int(seed)
    _lazy_call(lambda: _generator(None).manual_seed(value), seed=True)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices."""
    value = int(seed)

    def seed_every_device() -> None:
        for index in range(_C._device_count()):
            _generator(index).manual_seed(value)

    _lazy_call(seed_every_device, seed_all=True)


def seed() -> None:
    """Seeds the generator of the current device with a random number."""
    _lazy_call(lambda: _generator(None).seed())


def seed_all() -> None:
    """Seeds the generators of all devices with one random number."""

    def seed_every_device() -> None:
        value = None
        for index in range(_C._device_count()):
            if value is None:
                value = _generator(index).seed()
            else:
                _generator(index).manual_seed(value)

    _lazy_call(seed_every_device)


def initial_seed() -> int:
    """The seed of the current device's generator."""
    _lazy_init()
    return _generator(None).initial_seed()
