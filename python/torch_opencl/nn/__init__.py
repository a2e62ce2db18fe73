"""Layers that ``torch.nn`` does not have. They run on any device."""

from . import functional
from .local_convolution import LocallyConnected2d
from .weight_only import Int4Linear, Int8Linear, quantize_linears

__all__ = [
    "Int4Linear",
    "Int8Linear",
    "LocallyConnected2d",
    "functional",
    "quantize_linears",
]
