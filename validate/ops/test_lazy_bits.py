"""Copies from and to tensors that are conjugated or negated lazily."""

from __future__ import annotations

import pytest
import torch

_VIEWS = {
    "plain": lambda x: x,
    "conj": torch.conj,
    "imag of conj": lambda x: x.conj().imag,
    "real of conj": lambda x: x.conj().real,
    "strided conj": lambda x: x.t().conj()[::2],
    "negated conj": lambda x: x.conj()._neg_view(),
}
_DTYPES = (torch.complex64, torch.float32, torch.float16, torch.complex128)


def _source() -> torch.Tensor:
    return torch.randn(5, 3, dtype=torch.complex64)


@pytest.mark.parametrize("view", _VIEWS)
def test_to_the_host(device, view):
    x = _source()
    on_device = _VIEWS[view](x.to(device))
    assert torch.equal(on_device.cpu(), _VIEWS[view](x))


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("view", _VIEWS)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_on_the_device(device, view, dtype):
    x = _source()
    expected = _VIEWS[view](x)
    result = torch.full(expected.shape, 7, dtype=dtype, device=device)
    result.copy_(_VIEWS[view](x.to(device)))
    assert torch.equal(result.cpu(), torch.empty_like(result.cpu()).copy_(expected))


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("view", _VIEWS)
def test_into_a_lazy_tensor(device, view, where):
    source = _source()[: _VIEWS[view](_source()).size(0), :1].real
    expected = _source()
    result = expected.to(device)
    _VIEWS[view](expected).copy_(source)
    _VIEWS[view](result).copy_(source.to(device) if where == "device" else source)
    assert torch.equal(result.cpu(), expected)


def test_no_negated_view_becomes_bool(device):
    for dtype in (torch.float32, torch.complex64):
        x = torch._neg_view(torch.randn(2, 3, dtype=dtype).to(device))
        with pytest.raises(NotImplementedError, match='"neg" not implemented for'):
            torch.zeros(2, 3, dtype=torch.bool, device=device).copy_(x)
