"""Sizes that ints do not hold: right, or an error, but no silent nonsense. Expanded
tensors have them without the memory."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

_SIZE = 2**31 + 8


@pytest.fixture(autouse=True)
def _no_cached_memory():
    yield
    torch.opencl.empty_cache()


def _is_gpu(device) -> bool:
    return torch.opencl.get_device_properties(device).device_class == "gpu"


def _expanded(device, *shape, dtype=torch.uint8):
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_products(device):
    if _is_gpu(device):  # CPUs would pack gigabytes, and take minutes for the others
        line = torch.ones(1, 1, device=device).expand(1, _SIZE)
        assert (line @ line.t()).item() == 2**31
        return
    one = torch.ones(1, 1, dtype=torch.float16, device=device)
    rows = one.expand(_SIZE, 1) @ one
    assert rows[:2].tolist() == rows[-2:].tolist() == [[1], [1]]
    columns = one @ one.expand(1, _SIZE)
    assert columns[0, :2].tolist() == columns[0, -2:].tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_elements_in_the_last_chunk(device):
    """The end of the last chunk of a run is beyond the largest int."""
    for size in (2**31 - 648, 2**31 - 1):
        ones = torch.zeros(size, dtype=torch.uint8, device=device)
        ones.add_(torch.tensor(1, dtype=torch.uint8, device=device))
        assert ones[-3:].tolist() == [1, 1, 1]
        assert ones.sum().item() == size
        del ones


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_columns_of_a_data_gradient(device):
    x, weight = torch.randn(1, 4, 1546, 1546), torch.randn(4, 4, 15, 15)
    elements = x[0, 0].numel() * weight[0].numel()
    assert elements >= 2**31
    largest = torch.opencl.get_device_properties(device).max_allocation
    if largest < 4 * elements:
        pytest.skip(f"one allocation of this device holds {largest} bytes")
    if _is_gpu(device):
        pytest.skip("implicit products have no columns in memory")
    options = {"stride": 2, "dilation": 2}
    result = F.conv_transpose2d(x.to(device), weight.to(device), **options).cpu()
    for corner in (slice(40), slice(-40, None)):
        part = x[..., corner, corner].double()
        expected = F.conv_transpose2d(part, weight.double(), **options)
        torch.testing.assert_close(
            result[..., corner, corner].double(),
            expected[..., corner, corner],
            rtol=1e-4,
            atol=1e-4,
        )


_REFUSED = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "reflection_pad1d": lambda x: F.pad(x, (1, 1), "reflect"),
    "replication_pad1d": lambda x: F.pad(x, (1, 1), "replicate"),
    "upsample": lambda x: F.interpolate(x, size=8),
    "pooling": lambda x: F.max_pool1d(x, 1024),
    "convolution": lambda x: F.conv1d(x[..., :1], x.transpose(0, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("op", _REFUSED)
def test_refused(device, op):
    x = _expanded(device, 1, 1, _SIZE, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match=f"{op}: opencl supports sizes up to"):
        _REFUSED[op](x)
