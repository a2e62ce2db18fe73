"""``torch.cuda.CUDAGraph`` and ``torch.cuda.graph`` by ``torch.accelerator.Graph``."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch.cuda import graphs

from .. import _C
from ._counts import counts, unsupported

_NO_DRIVER_GRAPH = "a graph is a list of OpenCL commands; debug_dump(path) writes it"


class CUDAGraph(torch.accelerator.Graph):
    """As in ``torch.cuda``, but for CUDA's own handles of the graph.

    Args:
        keep_graph: no difference here, nothing is instantiated.
    """

    def __new__(cls, keep_graph: bool = False) -> CUDAGraph:
        return super().__new__(cls, keep_graph)

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        counts["torch.cuda.CUDAGraph"] += 1

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begins to capture what the current stream is given.

        Args:
            pool: another graph's ``pool()``, or from ``graph_pool_handle()``.
            capture_error_mode: other streams and threads are never affected.
            check_input_liveness: has to be False.

        Raises:
            NotImplementedError: inputs should be watched.
        """
        if check_input_liveness:
            raise NotImplementedError(
                "torch.cuda.CUDAGraph: check_input_liveness=True is not supported on "
                "opencl"
            )
        self.graph_pool, self.capture_error_mode = pool, capture_error_mode
        super().capture_begin()

    def raw_cuda_graph(self) -> NoReturn:
        """Raises NotImplementedError: there is none."""
        unsupported("CUDAGraph.raw_cuda_graph", _NO_DRIVER_GRAPH)()

    raw_cuda_graph_exec = get_graph_data = raw_cuda_graph


class graph(graphs.graph):
    """As in ``torch.cuda``: captures on a stream of its own."""

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.accelerator.empty_host_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(
                *self.pool, capture_error_mode=self.capture_error_mode
            )
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise


def graph_pool_handle() -> tuple[int, int]:
    """A pool of memory that graphs of the current device may share."""
    return (_C._new_graph_pool(torch.opencl.current_device()), 0)
