"""Files of what is known of a device: which algorithms are the fastest there.

``python -m torch_opencl.tune --export`` writes one, ``TORCH_OPENCL_TUNING`` names
one to use, and ``backend/tuning`` has those of the project. A file is an object,
or a list of them::

    {"level": "device", "name": "NVIDIA H200", "choices": {"product: ...": "tiles"}}

``level`` is all, class, vendor, architecture or device, and ``name`` whose it is.
"""

from __future__ import annotations

import json
import math
import os
import warnings

import torch

from . import _C

_VARIABLE = "TORCH_OPENCL_TUNING"
_KEYS = {"level", "name", "numbers", "choices", "measured"}


def _row(entry: object) -> tuple[str, str, dict, dict]:
    if not isinstance(entry, dict):
        raise ValueError(f"an entry is {entry!r}; expected an object")
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise ValueError(f"there is no {unknown[0]!r}; expected {sorted(_KEYS)}")
    level, name = entry.get("level"), entry.get("name", "")
    numbers, choices = entry.get("numbers", {}), entry.get("choices", {})
    if not isinstance(level, str) or not isinstance(name, str):
        raise ValueError("level and name of an entry are texts")
    if level != "all" and not name:
        raise ValueError(f"an entry of level {level!r} has no name")
    if not isinstance(numbers, dict) or not all(
        type(value) in (int, float) for value in numbers.values()
    ):
        raise ValueError("numbers are numbers by name")
    if not isinstance(choices, dict) or not all(
        isinstance(value, str) for value in choices.values()
    ):
        raise ValueError("choices are names of algorithms by problem")
    return level, name, numbers, choices


def add_file(path: str | os.PathLike[str]) -> None:
    """Adds what a file says, for devices that this process did not ask for yet.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON, or not of this form.
        TypeError: it has a number or a text that C++ has no room for.
        RuntimeError: it has a level or a number that there is not.
    """
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    entries = content if isinstance(content, list) else [content]
    _C._add_tuning([_row(entry) for entry in entries])


def add_file_of_environment() -> None:
    """Adds the file that ``TORCH_OPENCL_TUNING`` names; warns where it cannot."""
    path = os.environ.get(_VARIABLE)
    if not path:
        return
    try:
        add_file(path)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        # Only speed is lost.
        warnings.warn(f"{_VARIABLE}={path} is not used: {error}", stacklevel=2)


def with_finite_seconds(choice: dict) -> dict:
    """The choice without algorithms that could not run, which JSON has no number for;
    ``fastest`` is None where none could."""
    seconds = {k: v for k, v in choice["seconds"].items() if math.isfinite(v)}
    failed = choice["seconds"] and not seconds
    return {
        **choice,
        "seconds": seconds,
        "fastest": None if failed else choice["fastest"],
    }


def entry_of(device: torch.device, choices: list[dict]) -> dict[str, object]:
    """What a file says of ``device``, which ``choices`` were measured on.

    Args:
        device: with an index.
        choices: as of ``torch.backends.opencl.choices()``; those of other devices
            are left out, and those of which nothing could be measured.
    """
    properties = torch.opencl.get_device_properties(device)
    here = [
        choice
        for choice in map(with_finite_seconds, choices)
        if choice["device"] == device.index and choice["fastest"] is not None
    ]
    return {
        "level": "device",
        "name": properties.name,
        "choices": {choice["problem"]: choice["fastest"] for choice in here},
        "measured": {
            "vendor": properties.vendor,
            "architecture": properties.architecture,
            "platform": properties.platform,
            "driver": properties.driver_version,
            "seconds": {choice["problem"]: choice["seconds"] for choice in here},
        },
    }
