"""Lets ``import torchvision`` work beside a torch its C++ ops do not fit.

The torchvision wheel on PyPI is built for CUDA, so beside a CPU build of torch
its ``_C`` library does not load, and torchvision's Python registrations for
``nms``, ``roi_align`` and the like then fail because no schema exists. When
that happens we define the schemas and give the CPU ``nms``, which programs run
on what they brought back from the device. When ``_C`` loads, nothing is touched.
Kernels for our device are part of the extension and serve both cases.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys

import torch
from torch import Tensor

_EXTENSION = "torchvision.extension"

_IMAGE_SIZE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_CONVOLUTION = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, "
    "SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask"
)

_SCHEMAS = (
    "_cuda_version() -> int",
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align(Tensor input, Tensor rois, float input_scale, "
    "int input_zero_point, float rois_scale, int rois_zero_point, "
    f"{_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_POOLED}, {_IMAGE_SIZE}, "
    "int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOLED}, "
    f"{_IMAGE_SIZE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, "
    f"{_POOLED}, int sampling_ratio, {_IMAGE_SIZE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, "
    f"{_POOLED}, {_IMAGE_SIZE}) -> Tensor",
    f"deform_conv2d({_CONVOLUTION}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_CONVOLUTION}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)

# A Library's registrations live as long as it does.
_libraries: list[torch.library.Library] = []


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that stay, by descending score."""
    order = scores.sort(stable=True, descending=True)[1]
    boxes = dets[order]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    removed = torch.zeros(len(order), dtype=torch.bool)
    kept = []
    for i in range(len(order)):
        if removed[i]:
            continue
        kept.append(i)
        rest = boxes[i + 1 :]
        corner = torch.minimum(boxes[i, 2:], rest[:, 2:])
        sides = (corner - torch.maximum(boxes[i, :2], rest[:, :2])).clamp(min=0)
        common = sides[:, 0] * sides[:, 1]
        overlap = common / (areas[i] + areas[i + 1 :] - common)
        removed[i + 1 :] |= overlap.double() > iou_threshold
    return order[kept]


def _missing(name: str):
    def kernel(*args, **kwargs):
        raise NotImplementedError(
            f"torchvision::{name} is not available: torchvision's C++ ops did "
            "not load, because the installed torchvision was built for another "
            "build of torch. Install the torchvision that matches torch "
            f"{torch.__version__}."
        )

    return kernel


def _define_ops() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    _libraries.append(library)
    for schema in _SCHEMAS:
        name = library.define(schema)
        if name == "_cuda_version":
            library.impl(name, lambda: -1, "CompositeImplicitAutograd")
        elif name == "nms":
            library.impl(name, _nms, "CPU")
        else:
            library.impl(name, _missing(name), "CompositeExplicitAutograd")


class _Loader(importlib.abc.Loader):
    """Runs torchvision.extension, then repairs what it could not load."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        self._loader.exec_module(module)
        if not module._has_ops():
            _define_ops()
            module._has_ops = lambda: True

    def __getattr__(self, name: str):
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != _EXTENSION:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install() -> None:
    """Prepares the import of torchvision; does nothing once it is imported."""
    if _EXTENSION in sys.modules:
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
