"""Which nodes share a kernel, and in which form the kernel is written."""

from __future__ import annotations

import contextlib
import logging
import re

import sympy
import torch
from torch._inductor import metrics
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from ..opencl.devices import get_device_properties
from .fallbacks import stay_extern
from .runtime import check_builds, kernel_source
from .text import OpenCLKernel
from .types import NotGenerated
from .work import GROUP, Form

log = logging.getLogger(__name__)
_LONGEST_NAME = 80


class Scheduling(SIMDScheduling):
    """Inductor's scheduling for the device."""

    kernel_type = OpenCLKernel
    is_splitting = False

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        """On a GPU, Inductor divides long reductions of few results in two."""
        if _is_gpu(device):
            return OrderedSet()
        return OrderedSet([BackendFeature.REDUCE_TO_SINGLE_ELEMENT])

    @classmethod
    def get_tiling_and_scores(
        cls, node_schedule, numel, reduction_numel=sympy.S.One, coalesce_analysis=None
    ):
        """Never of two reduced axes: the kernels have one loop over what is reduced."""
        tiling, scores = super().get_tiling_and_scores(
            node_schedule, numel, reduction_numel, coalesce_analysis
        )
        if sum(prefix.startswith("r") for prefix in tiling) > 1:
            return cls.create_tiling([numel], [reduction_numel]), None
        return tiling, scores

    def _codegen_nodes(self, nodes, *args, **kwargs):
        """A kernel of the nodes; where there is none, one of each, and where there is
        none either, no kernel of ours."""
        count = metrics.generated_kernel_count
        try:
            with _quiet():
                return super()._codegen_nodes(nodes, *args, **kwargs)
        except NotImplementedError as error:
            metrics.generated_kernel_count = count
            if len(nodes) == 1:
                stay_extern(nodes[0].node.get_origins(), error)
                raise
            log.debug("a kernel each of %d nodes: %s", len(nodes), error)
        # Inductor plans memory by fused nodes: nothing is free within one.
        self.is_splitting = True
        try:
            for node in nodes:
                self.codegen_node(node)
        finally:
            self.is_splitting = False
        self.free_buffers_in_scheduler()
        return None

    def free_buffers_in_scheduler(self) -> None:
        if not self.is_splitting:
            super().free_buffers_in_scheduler()

    def create_kernel_choices(self, kernel_features, kernel_args, kernel_kwargs):
        """Tries the forms that may fit, and takes the one of fewest scattered
        accesses."""
        is_gpu = _is_gpu(V.graph.get_current_device_or_throw())
        forms = list(_gpu_forms(kernel_features) if is_gpu else _CPU_FORMS)
        if not kernel_features.is_reduction() and not is_gpu:
            forms.remove(Form("r"))
        best, best_cost, refused = None, None, None
        count = metrics.generated_kernel_count
        if len(forms) == 1:
            return [self.kernel_type(*kernel_args, form=forms[0], **kernel_kwargs)]
        for form in forms:
            try:
                kernel = self.kernel_type(*kernel_args, form=form, **kernel_kwargs)
                self.codegen_node_schedule_with_kernel(
                    kernel_features.node_schedule, kernel
                )
                with V.set_kernel_handler(kernel):
                    kernel.codegen_kernel()
            except NotGenerated as error:
                log.debug("no kernel of form %s: %s", form, error)
                refused = error
                continue
            cost = _cost(form, kernel)
            if best_cost is None or cost < best_cost:
                best, best_cost = form, cost
        if best is None:
            raise refused
        metrics.generated_kernel_count = count  # of those that are launched
        return [self.kernel_type(*kernel_args, form=best, **kernel_kwargs)]

    def define_kernel(self, src_code, node_schedule, kernel) -> str:
        wrapper = V.graph.wrapper_code
        key = (src_code, kernel.call_kinds)
        if key in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[key]
        ops = re.sub(r"\W", "_", get_fused_kernel_name(node_schedule, "original_aten"))
        ops = ops[:_LONGEST_NAME]
        name = f"opencl_{ops}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        source = kernel_source(kernel, src_code.replace("KERNEL_NAME", name))
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        size = GROUP if kernel.form.is_gpu else 1
        check_builds(name, source, size, V.graph.get_current_device_or_throw(), ops)
        text = (
            f"compiled_kernel({name!r}, r'''\n{source}''', {kernel.call_kinds!r}, "
            f"{size}, {kernel.reports})"
        )
        wrapper.define_kernel(name, text, f"{origins}\n{details}", gpu=False)
        return name

    def codegen_sync(self) -> None:
        V.graph.wrapper_code.writeline("torch.opencl.synchronize()")


@contextlib.contextmanager
def _quiet():
    """A form that does not fit is no error, which torch's scheduler would log."""
    logger = logging.getLogger("torch._inductor.scheduler")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


_CPU_FORMS = (Form("r"), Form("x"), Form())
# Of GPUs: elements that a work-item reduces alone, rows that are too few for a
# work-item each, and that are enough for it.
_SHORT, _FEW_ROWS, _MANY_ROWS = 32, 4096, 16384


def _is_gpu(device: torch.device) -> bool:
    return get_device_properties(device).device_class == "gpu"


def _gpu_forms(features):
    """Those of a reduction that may fit, of equal ones the better first."""
    item, group = Form(is_gpu=True), Form(is_gpu=True, by_group=True)
    kept = _length_hint(features.numel)
    if not features.is_reduction() or _length_hint(features.reduction_numel) <= _SHORT:
        return (item,)
    if kept < _FEW_ROWS:
        return (group,)
    return (item, group) if kept >= _MANY_ROWS else (group, item)


def _length_hint(length: sympy.Expr) -> int:
    return V.graph.sizevars.optimization_hint(length)


def _cost(form: Form, kernel: OpenCLKernel) -> int:
    """Roughly what an element takes."""
    accesses = kernel.runs + kernel.gathers
    if not form.lanes and not form.is_gpu:
        return 8
    return (kernel.runs + 16 * kernel.gathers) // max(accesses, 1)
