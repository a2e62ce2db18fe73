"""setuptools' build backend, with requirements that depend on the machine.

The extension is built against the torch it will run with. Requiring torch
unconditionally would make an isolated build download it once more, and
perhaps another build of it; so it is required only where the environment has
none that fits.
"""

from __future__ import annotations

from build_requirements import TORCH, find_torch, missing_build_tools
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _requirements() -> list[str]:
    torch = [] if find_torch() else [TORCH]
    return torch + missing_build_tools()


def get_requires_for_build_wheel(config_settings=None) -> list[str]:
    return build_meta.get_requires_for_build_wheel(config_settings) + _requirements()


def get_requires_for_build_editable(config_settings=None) -> list[str]:
    return build_meta.get_requires_for_build_editable(config_settings) + _requirements()
