"""torchvision's classification networks, with random weights."""

from __future__ import annotations

import torch
import torch_opencl.vision

# Beside a CPU build of torch, torchvision does not import without this.
torch_opencl.vision.install()

import torchvision  # noqa: E402

NETWORKS = ("alexnet", "resnet18", "resnet50", "vgg16", "mobilenet_v2")


def build(name: str) -> torch.nn.Module:
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **extra)


def build_shapes(name: str) -> torch.nn.Module:
    """The network without memory, which computes shapes only."""
    with torch.device("meta"):
        return build(name)
