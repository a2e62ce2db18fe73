"""``mode="reduce-overhead"``: a compiled graph's commands are captured once and then
replayed, by ``torch.accelerator.Graph``.

Inductor offers its own CUDA graphs to CUDA alone, and tells a policy of every graph
that it has compiled.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.cudagraph_utils import (
    CUDAGraphPolicy,
    check_multiple_devices_or_any_cpu_nodes,
)
from torch._inductor.output_code import CompiledFxGraph

log = logging.getLogger(__name__)


class ReplayPolicy(CUDAGraphPolicy):
    """Replays what was compiled for one device in inference; other graphs run as they
    do without it, and are counted as ``counters["inductor"]["cudagraph_skips"]``."""

    def wrap_output(self, output_code):
        if not config.triton.cudagraphs or not isinstance(output_code, CompiledFxGraph):
            return output_code
        if output_code.device_types != {"opencl"}:
            return output_code
        static = frozenset(output_code.fx_kwargs["static_input_idxs"] or ())
        reason = _why_not(output_code, static)
        if reason:
            log.debug("no replay of a graph: %s", reason)
            counters["inductor"]["cudagraph_skips"] += 1
        elif not isinstance(output_code.current_callable, Replayed):
            output_code.current_callable = Replayed(
                output_code.current_callable,
                static,
                next(iter(output_code.device_idxs)),
            )
        return output_code


def _why_not(graph: CompiledFxGraph, static: frozenset[int]) -> str:
    """Why a graph cannot be replayed; empty where it can."""
    if len(graph.device_idxs) != 1:
        return "it uses several devices"
    if not graph.fx_kwargs["is_inference"]:
        return "what it saves for gradients would be overwritten by its next replay"
    if set(graph.mutated_input_idxs) - static:
        return "it writes to inputs that are no parameters or buffers"
    # Inductor's reasons hold here, but that the device is not CUDA's.
    device = torch.device("opencl", next(iter(graph.device_idxs)))
    not_cuda = check_multiple_devices_or_any_cpu_nodes({device: None})
    reason = graph.disabled_cudagraphs_reason
    return "" if reason in (None, "", not_cuda) else reason


class Replayed:
    """A compiled callable that is captured at its second call, once for each set of
    sizes that it is given, and then replayed.

    Args:
        compiled: takes a list of inputs, which it empties, and returns a tuple.
        static: the places of inputs that stay where they are: parameters, buffers.
        device_index: of the device that all tensors are on.
    """

    def __init__(
        self, compiled: Callable, static: frozenset[int], device_index: int
    ) -> None:
        self._compiled, self._static = compiled, static
        self._device_index = device_index
        self._captures: dict[tuple, _Capture | None] = {}
        self._lock = threading.Lock()
        self._refused = False

    def __call__(self, inputs: list) -> Sequence:
        if self._refused or torch.is_grad_enabled():
            return self._compiled(inputs)
        with self._lock, torch.opencl.device(self._device_index):
            key = tuple(value for value in inputs if isinstance(value, int))
            capture = self._captures.get(key)
            if capture is not None and capture.fits(inputs):
                return capture.replay(inputs)
            if key not in self._captures:  # builds programs, and packs weights
                self._captures[key] = None
                return self._compiled(inputs)
            self._captures[key] = None  # what does not fit frees its memory first
            try:
                capture = _Capture(self._compiled, self._static, inputs)
            except (RuntimeError, NotImplementedError) as error:
                log.debug("no replay of a graph: %s", error)
                counters["inductor"]["cudagraph_skips"] += 1
                self._refused = True
                return self._compiled(inputs)
            self._captures[key] = capture
            return capture.replay(inputs)


class _Capture:
    """A captured call: its inputs' places, its outputs' and the commands between.

    Raises:
        RuntimeError, NotImplementedError: a command cannot be captured.
    """

    def __init__(
        self, compiled: Callable, static: frozenset[int], inputs: list
    ) -> None:
        self._static = static
        self._inputs = [
            value if not torch.is_tensor(value) or place in static else _like(value)
            for place, value in enumerate(inputs)
        ]
        self._addresses = {
            place: value.data_ptr()
            for place, value in enumerate(self._inputs)
            if place in static and torch.is_tensor(value)
        }
        self._graph = torch.accelerator.Graph()
        with self._graph:
            outputs = compiled(list(self._inputs))
        kept = {
            value.untyped_storage().data_ptr()
            for value in self._inputs
            if torch.is_tensor(value)
        }
        self._outputs = [
            (
                output,
                torch.is_tensor(output)
                and output.untyped_storage().data_ptr() not in kept,
            )
            for output in outputs
        ]

    def fits(self, inputs: list) -> bool:
        """Whether what was captured is where it was."""
        return all(
            inputs[place].data_ptr() == address
            for place, address in self._addresses.items()
        )

    def replay(self, inputs: list) -> tuple:
        places, values = [], []
        for place, value in enumerate(inputs):
            if torch.is_tensor(value) and place not in self._static:
                places.append(self._inputs[place])
                values.append(value)
        if places:
            torch._foreach_copy_(places, values)
        inputs.clear()
        self._graph.replay()
        # Of its own memory: the next replay overwrites the graph's.
        return tuple(
            output.clone() if is_own else output for output, is_own in self._outputs
        )


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
