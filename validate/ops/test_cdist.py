"""cdist: distances and gradients where coordinates or whole points are equal."""

from __future__ import annotations

import math

import pytest
import torch
from against_cpu import check


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, math.inf])
def test_equal_coordinates(device, p):
    x = torch.randn(2, 5, 3)
    y = torch.cat([x[:, :2], torch.randn(2, 4, 3)], dim=1)
    y[:, 3, 0] = x[:, 4, 0]
    check(lambda x, y: torch.cdist(x, y, p=p), [x, y], device)


def test_gradient_below_one_is_finite(device):
    x = torch.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    torch.cdist(x, torch.tensor([[1.0, 3.0]], device=device), p=0.5).sum().backward()
    assert x.grad.tolist() == [[0, -1]]


@pytest.mark.parametrize("p", [0.0, 2.0, math.inf])
def test_no_columns(device, p):
    x, y = torch.empty(2, 3, 0, device=device), torch.empty(4, 0, device=device)
    assert torch.equal(torch.cdist(x, y, p=p).cpu(), torch.zeros(2, 3, 4))
    assert torch.equal(torch.pdist(x[0], p=p).cpu(), torch.zeros(3))
