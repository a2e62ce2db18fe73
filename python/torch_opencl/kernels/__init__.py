"""Kernels of one's own, in CuPy's manner. docs/custom-kernels.md explains them."""

from .elementwise import ElementwiseKernel
from .raw import RawKernel
from .reduction import ReductionKernel

__all__ = ["ElementwiseKernel", "RawKernel", "ReductionKernel"]
