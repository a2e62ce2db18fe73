"""Sizes that ints do not hold: right, or an error, but no silent nonsense. Expanded
tensors have them without the memory."""

from __future__ import annotations

import pytest
import torch

_SIZE = 2**31 + 8


@pytest.fixture(autouse=True)
def _no_cached_memory():
    yield
    torch.opencl.empty_cache()


def _rows(device, dtype=torch.uint8):
    """A row of zeros and one of ones."""
    return torch.tensor([[0], [1]], dtype=dtype, device=device).expand(2, _SIZE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reductions(device):
    assert _rows(device).sum().item() == _SIZE
    result = torch.full((_SIZE,), 7, dtype=torch.uint8, device=device)
    torch.amax(_rows(device), 0, out=result)
    assert result[:3].tolist() == result[-3:].tolist() == [1, 1, 1]
    assert _rows(device).argmax(1).tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reduction_of_a_size_whose_low_bits_are_zero(device):
    assert torch.ones(1, device=device).char().expand(2**32).sum().item() == 2**32
