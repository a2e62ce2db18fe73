"""What tests of graphs share."""

from __future__ import annotations

import pytest
import torch

CAPTURING = "operation not permitted when stream is capturing"


@pytest.fixture(autouse=True)
def on_device(device):
    with torch.opencl.device(device):
        yield


def captured(function):
    """A graph of ``function``, and what it returned."""
    function()  # builds the programs
    graph = torch.accelerator.Graph()
    with graph:
        result = function()
    return graph, result
