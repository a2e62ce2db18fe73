"""The networks that are validated, and what one training step of each needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch_opencl.vision

# Beside a CPU build of torch, torchvision does not import without this.
torch_opencl.vision.install()

import torchvision  # noqa: E402

# The networks of `make validate`, with the smallest image each accepts.
NETWORKS = {"alexnet": 64, "resnet18": 32, "squeezenet1_0": 32, "googlenet": 32}
AUXILIARY_WEIGHT = 0.3
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, weight_decay=1e-4
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
}


@dataclass(frozen=True)
class Pretrained:
    """What goes with a network's weights: class names and preprocessing."""

    categories: list[str]
    transform: torch.nn.Module
    top1: float


def pretrained(name: str) -> Pretrained:
    weights = torchvision.models.get_model_weights(name).DEFAULT
    metrics = weights.meta.get("_metrics", {}).get("ImageNet-1K", {})
    return Pretrained(
        weights.meta["categories"], weights.transforms(), metrics.get("acc@1", 0.0)
    )


def build(name: str, weights: str = "none", seed: int = 0) -> torch.nn.Module:
    """A network on the CPU.

    Args:
        name: as torchvision names it.
        weights: "none" for seeded random weights, "DEFAULT" for torchvision's
            (downloaded at first use), or a file that holds a state_dict.
        seed: of the random weights.
    """
    torch.manual_seed(seed)
    if weights == "DEFAULT":
        return torchvision.models.get_model(name, weights="DEFAULT")
    extra = {}
    if name in ("googlenet", "inception_v3"):
        # Their trained weights expect inputs that the network rescales itself.
        extra = {"init_weights": True, "transform_input": weights != "none"}
    model = torchvision.models.get_model(name, weights=None, **extra)
    if weights != "none":
        load_weights(model, weights)
    return model


def load_weights(model: torch.nn.Module, path: str) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    state = state.get("state_dict", state)
    missing, unexpected = model.load_state_dict(state, strict=False)
    # Files of trained weights often come without the auxiliary heads, which
    # only training uses.
    missing = [key for key in missing if not key.startswith(("aux", "AuxLogits"))]
    if missing or unexpected:
        raise ValueError(
            f"{path} does not fit the network: missing {missing[:3]}, "
            f"unexpected {unexpected[:3]}"
        )


def disable_dropout(model: torch.nn.Module) -> int:
    """Sets the probability of dropout and of stochastic depth to 0 everywhere;
    returns how many there were."""
    kinds = (torch.nn.modules.dropout._DropoutNd, torchvision.ops.StochasticDepth)
    count = 0
    for module in model.modules():
        if isinstance(module, kinds) and module.p > 0:
            module.p = 0.0
            count += 1
        # Attention keeps its own number.
        if isinstance(module, torch.nn.MultiheadAttention) and module.dropout > 0:
            module.dropout = 0.0
            count += 1
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float) and getattr(module, name):
                setattr(module, name, 0.0)
                count += 1
    return count


def named_outputs(output) -> dict[str, torch.Tensor]:
    """Networks with auxiliary heads give a named tuple when training."""
    if isinstance(output, torch.Tensor):
        return {"logits": output}
    return {
        name: value for name, value in output._asdict().items() if value is not None
    }


def loss_of(outputs: dict[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    total = 0.0
    for name, output in outputs.items():
        weight = 1.0 if name == "logits" else AUXILIARY_WEIGHT
        total = total + weight * torch.nn.functional.cross_entropy(output, target)
    return total


def smallest_image(name: str) -> int:
    return NETWORKS.get(name, 32)
