"""A slice of validate_models.py: another small network of each run's seed."""

from __future__ import annotations

import random

import pytest
from conftest import run_seed
from networks import families
from networks.report import failures
from networks.step import check

_SMALL = (
    "efficientnet_b0",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
    "lraspp_mobilenet_v3_large",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "quantized_resnet18",
    "r3d_18",
    "raft_small",
    "regnet_y_400mf",
    "shufflenet_v2_x0_5",
    "swin_t",
    "vit_b_32",
)
_SLICE = 2
_CHOSEN = random.Random(run_seed()).sample(_SMALL, _SLICE)


@pytest.mark.parametrize("network", _CHOSEN)
def test_network(device, network):
    result = check(families.make(network), str(device))
    assert result.passed, "\n".join(failures(result))


def test_every_network_has_a_family():
    names = families.networks()
    assert len(names) == 121
    assert {families.family_of(name) for name in names} == set(families.FAMILIES)
