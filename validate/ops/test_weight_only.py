"""torch_opencl.nn's layers of eight and four bits."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_opencl.nn import Int4Linear, Int8Linear, quantize_linears

DTYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(1,), (2, 7)])
@pytest.mark.parametrize("make", [Int8Linear, lambda x: Int4Linear(x, 32)])
def test_layers_are_near_what_they_round(device, make, rows, dtype):
    torch.manual_seed(0)
    linear = nn.Linear(256, 48).to(device, dtype)
    x = torch.randn(*rows, 256).to(device, dtype)
    with torch.no_grad():
        expected, found = linear(x).double().cpu(), make(linear)(x).double().cpu()
    assert found.shape == (*rows, 48)
    # Rounding to steps of 1/127 of the largest weight, or 1/15 of the range.
    distance = (found - expected).norm() / expected.norm()
    assert distance < (0.02 if make is Int8Linear else 0.12)


@pytest.mark.parametrize("group", [32, 64])
def test_four_bits_are_the_cpus(device, group):
    torch.manual_seed(0)
    linear, x = nn.Linear(128, 32), torch.randn(3, 128)
    expected = Int4Linear(linear, group)(x)
    found = Int4Linear(linear.to(device), group)(x.to(device))
    torch.testing.assert_close(found.cpu(), expected)


def test_models(device):
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 5)).to(device)
    quantize_linears(model, 4, group_size=32)
    assert isinstance(model[0], Int4Linear)
    assert isinstance(model[2], Int8Linear)  # of five lines
    assert model(torch.randn(2, 3, 64, device=device)).shape == (2, 3, 5)
    again = nn.Sequential(nn.Linear(64, 32)).to(device)
    quantize_linears(again, 8)
    copied = nn.Sequential(nn.Linear(64, 32)).to(device)
    quantize_linears(copied, 8).load_state_dict(again.state_dict())
    x = torch.randn(2, 64, device=device)
    assert torch.equal(copied(x).cpu(), again(x).cpu())


def test_errors():
    with pytest.raises(ValueError, match="multiple of group_size"):
        Int4Linear(nn.Linear(100, 32))
    with pytest.raises(ValueError, match="bits to be 4 or 8"):
        quantize_linears(nn.Linear(4, 4), 3)
