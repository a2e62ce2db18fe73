"""``mode="reduce-overhead"``: a compiled graph's commands are captured once and then
replayed, by ``torch.accelerator.Graph``.

Inductor offers its own CUDA graphs to CUDA alone, and tells a policy of every graph
that it has compiled.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence

import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.cudagraph_utils import (
    CUDAGraphPolicy,
    check_multiple_devices_or_any_cpu_nodes,
)
from torch._inductor.output_code import CompiledFxGraph

from .. import _C
from . import seeds
from .results import Place, Results

log = logging.getLogger(__name__)


class ReplayPolicy(CUDAGraphPolicy):
    """Replays what was compiled for one device; other graphs run as they do without
    it, and are counted as ``counters["inductor"]["cudagraph_skips"]``."""

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
                output_code.fx_kwargs["is_backward"],
            )
        return output_code


def _why_not(graph: CompiledFxGraph, static: frozenset[int]) -> str:
    """Why a graph cannot be replayed; empty where it can."""
    if len(graph.device_idxs) != 1:
        return "it uses several devices"
    if set(graph.mutated_input_idxs) - static:
        return "it writes to inputs that are no parameters or buffers"
    # Inductor's reasons hold here, but that the device is not CUDA's.
    device = torch.device("opencl", next(iter(graph.device_idxs)))
    not_cuda = check_multiple_devices_or_any_cpu_nodes({device: None})
    reason = graph.disabled_cudagraphs_reason
    return "" if reason in (None, "", not_cuda) else reason


class Replayed:
    """A compiled callable that is captured once for each set of sizes that it is
    given, when its static inputs come twice to the same places, and then replayed.

    Args:
        compiled: takes a list of inputs, which it empties, and returns a tuple.
        static: the places of inputs that stay where they are: parameters, buffers,
            of a backward graph what the forward one saved.
        device_index: of the device that all tensors are on.
        is_backward: whether it computes gradients.
    """

    def __init__(
        self,
        compiled: Callable,
        static: frozenset[int],
        device_index: int,
        is_backward: bool,
    ) -> None:
        self._compiled, self._static = compiled, static
        self._device_index, self._is_backward = device_index, is_backward
        self._calls: dict[tuple, _Calls] = {}
        self._lock = threading.Lock()
        self._refused = False

    def __call__(self, inputs: list) -> Sequence:
        if self._refused or torch.is_grad_enabled():
            return self._compiled(inputs)
        # Results may be used in another mode than that of their call.
        with (
            self._lock,
            torch.opencl.device(self._device_index),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            key = tuple(value for value in inputs if isinstance(value, int))
            return self._call(self._calls.setdefault(key, _Calls()), inputs)

    def _call(self, calls: _Calls, inputs: list) -> Sequence:
        addresses = {
            place: inputs[place].data_ptr()
            for place in self._static
            if torch.is_tensor(inputs[place])
        }
        if calls.capture is not None and calls.capture.addresses == addresses:
            return calls.capture.replay(inputs)
        kept = self._kept(inputs)
        if calls.addresses != addresses or kept is None:
            calls.addresses = addresses
            with seeds.noted() as calls.sources:
                return self._compiled(inputs)
        calls.capture = None  # what does not fit frees its memory first
        try:
            calls.capture = _Capture(
                self._compiled, addresses, inputs, kept, calls.sources
            )
        except (RuntimeError, NotImplementedError) as error:
            log.debug("no replay of a graph: %s", error)
            counters["inductor"]["cudagraph_skips"] += 1
            self._refused = True
            return self._compiled(inputs)
        return calls.capture.replay(inputs)

    def _kept(self, inputs: list) -> list | None:
        """What has to live for the static inputs to stay where they are; None where
        they will not. Of a backward graph they are what captures of others have."""
        static = [inputs[place] for place in self._static]
        if not self._is_backward:
            return static
        owners = [_owner(value) for value in static if torch.is_tensor(value)]
        return None if None in owners else owners


class _Calls:
    """What is known of the calls with one set of sizes."""

    def __init__(self) -> None:
        self.addresses: dict[int, int] | None = None  # at the last that was computed
        self.sources: list[torch.Tensor] = []
        self.capture: _Capture | None = None


_captures: weakref.WeakKeyDictionary[_Capture, set[int]] = weakref.WeakKeyDictionary()
"""With the addresses of the storages that live as long as the capture."""


def _owner(tensor: torch.Tensor) -> _Capture | None:
    address = tensor.untyped_storage().data_ptr()
    return next((c for c, own in list(_captures.items()) if address in own), None)


def _each_once(tensor: torch.Tensor) -> torch.Tensor:
    """A view of what lies in memory: one element along an expanded dimension."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


class _Capture:
    """A captured call: its inputs' places, its outputs' and the commands between.

    Args:
        compiled: as for :class:`Replayed`.
        addresses: of the static inputs, by their places.
        inputs: of the call.
        kept: what has to live as long as the capture: static inputs, or the captures
            whose results they are.
        sources: of seeds, which are drawn before each replay.

    Raises:
        RuntimeError, NotImplementedError: a command cannot be captured.
    """

    def __init__(
        self,
        compiled: Callable,
        addresses: dict[int, int],
        inputs: list,
        kept: list,
        sources: list[torch.Tensor],
    ) -> None:
        self.addresses = addresses
        self._kept, self._sources = kept, sources
        self._stream = _C._follow_stream(-1)
        self._results = Results()
        self._inputs: dict[int, Place] = {}
        given, fixed = list(inputs), set()
        for place, value in enumerate(inputs):
            if place in addresses:
                fixed.add(value.untyped_storage().data_ptr())
            elif torch.is_tensor(value):
                given[place] = torch.empty_strided(
                    _each_once(value).shape,
                    value.stride(),
                    dtype=value.dtype,
                    device=value.device,
                ).expand(value.shape)
                self._inputs[place] = self._results.add(given[place])
        is_others = any(isinstance(value, _Capture) for value in kept)
        self._graph = torch.accelerator.Graph()
        with self._graph, seeds.taken(sources):
            self._outputs = []
            for output in compiled(given):
                if torch.is_tensor(output):
                    is_fixed = output.untyped_storage().data_ptr() in fixed
                    if is_fixed and is_others:  # it has to stay the other's alone
                        output, is_fixed = output.clone(), False
                    if not is_fixed:
                        output = self._results.add(output)
                self._outputs.append(output)
        _captures[self] = self._results.addresses() | fixed

    def replay(self, inputs: list) -> tuple:
        self._stream = _C._follow_stream(self._stream)
        self._results.reclaim()
        if self._inputs:
            torch._foreach_copy_(
                [_each_once(self._results[place]) for place in self._inputs.values()],
                [_each_once(inputs[number]) for number in self._inputs],
            )
        inputs.clear()
        for source in self._sources:
            seeds.draw(source)
        self._graph.replay()
        return tuple(
            self._results[output].detach() if isinstance(output, Place) else output
            for output in self._outputs
        )
