"""Layers that ``torch.nn`` does not have. They run on any device."""

from . import functional
from .local_convolution import LocallyConnected2d

__all__ = ["LocallyConnected2d", "functional"]
