"""Every network of torchvision, with inputs, a real loss and a size that a
machine without a GPU can check in seconds."""

from __future__ import annotations

from collections.abc import Callable

import torch
import vision_oracle
from networks.models import disable_dropout, torchvision
from networks.problem import Problem

vision_oracle.register()
_models = torchvision.models
_CLASSES = 10
AUXILIARY_WEIGHT = 0.4

# Images of one network, where the family's size does not do: fixed windows,
# positions or pooling.
_SIZES = {
    "inception_v3": 299,
    "quantized_inception_v3": 299,
    "maxvit_t": 224,
    "s3d": 224,
    "mvit_v1_b": 224,
    "mvit_v2_s": 224,
    "vit_h_14": 56,
}
_FRAMES = {"s3d": 14, "mvit_v1_b": 16, "mvit_v2_s": 16}
_LARGE = 150e6  # parameters: one image


def family_of(name: str) -> str:
    module = _models.get_model_builder(name).__module__
    for family in (
        "quantization",
        "detection",
        "segmentation",
        "video",
        "optical_flow",
    ):
        if f".{family}." in module:
            return family
    return "classification"


def networks(family: str | None = None) -> list[str]:
    return [
        name
        for name in _models.list_models()
        if family is None or family_of(name) == family
    ]


def make(name: str, seed: int = 0) -> Problem:
    """The network with seeded random weights, inputs and targets."""
    torch.manual_seed(seed)
    problem = FAMILIES[family_of(name)](name)
    problem.dropouts = disable_dropout(problem.model)
    return problem


def _cross_entropy(outputs, target) -> torch.Tensor:
    loss = 0.0
    for key, output in outputs.items():
        weight = 1.0 if key in ("logits", "out") else AUXILIARY_WEIGHT
        loss = loss + weight * torch.nn.functional.cross_entropy(output, target)
    return loss


def _named(output, name: str) -> dict[str, torch.Tensor]:
    """Networks with auxiliary heads give a (named) tuple or dict when training."""
    if isinstance(output, torch.Tensor):
        return {name: output}
    named = output if isinstance(output, dict) else output._asdict()
    return {key: value for key, value in named.items() if value is not None}


def _classify(model, inputs, target):
    outputs = _named(model(inputs), "logits")
    return outputs, _cross_entropy(outputs, target)


def _image_problem(name: str, model, size: int, frames: tuple = ()) -> Problem:
    parameters = sum(p.numel() for p in model.parameters())
    batch = 1 if parameters > _LARGE or size > 200 else 2
    # Batch normalisation of single values needs more than one.
    batch = 2 if size == 299 else batch
    inputs = torch.randn(batch, 3, *frames, size, size)
    target = torch.randint(_CLASSES, (batch,))
    return Problem(name, model, inputs, target, run=_classify)


def _classification(name: str) -> Problem:
    size = _SIZES.get(name, 64)
    options = {"num_classes": _CLASSES}
    if name.startswith("vit_"):
        options["image_size"] = size
    if "googlenet" in name or "inception" in name:
        options |= {"init_weights": True, "aux_logits": True}
    if name.startswith("quantized_"):
        options["quantize"] = False
    model = _models.get_model(name, weights=None, **options)
    return _image_problem(name, model, size)


def _video(name: str) -> Problem:
    model = _models.get_model(name, weights=None, num_classes=_CLASSES)
    size, frames = _SIZES.get(name, 64), _FRAMES.get(name, 8)
    return _image_problem(name, model, size, (frames,))


def _segment(model, inputs, target):
    outputs = model(inputs)
    return dict(outputs), _cross_entropy(outputs, target)


def _segmentation(name: str) -> Problem:
    options = {} if name.startswith("lraspp") else {"aux_loss": True}
    model = _models.get_model(
        name, weights=None, weights_backbone=None, num_classes=_CLASSES, **options
    )
    inputs = torch.randn(2, 3, 64, 64)
    target = torch.randint(_CLASSES, (2, 64, 64))
    return Problem(name, model, inputs, target, run=_segment)


def _flow(model, inputs, target):
    first, second = inputs.unbind(0)
    flows = model(first, second, num_flow_updates=3)
    outputs = {f"flow {index}": flow for index, flow in enumerate(flows)}
    # The sequence loss of RAFT (Teed, Deng, 2020).
    loss = sum(
        0.8 ** (len(flows) - 1 - index) * (flow - target).abs().mean()
        for index, flow in enumerate(flows)
    )
    return outputs, loss


def _optical_flow(name: str) -> Problem:
    model = _models.get_model(name, weights=None)
    inputs = torch.rand(2, 1, 3, 128, 128) * 2 - 1
    target = torch.randn(1, 2, 128, 128) * 3
    return Problem(name, model, inputs, target, run=_flow)


def _detect(model, inputs, target):
    # torchvision takes keypoints in float32 only.
    target = [
        {k: v.to(torch.float32) if k == "keypoints" else v for k, v in each.items()}
        for each in target
    ]
    outputs = model(list(inputs), target)
    return outputs, sum(outputs.values())


def _detections(model, inputs) -> dict[str, torch.Tensor]:
    return {
        f"image {index}, {key}": value
        for index, found in enumerate(model(list(inputs)))
        for key, value in found.items()
    }


def _boxes(count: int, size: int) -> torch.Tensor:
    corner = torch.rand(count, 2) * size * 0.5
    sides = size * (0.15 + 0.3 * torch.rand(count, 2))
    return torch.cat([corner, corner + sides], 1)


def _detection(name: str) -> Problem:
    size = 320 if name.startswith("ssd") else 128
    options = {"num_classes": 5, "weights": None, "weights_backbone": None}
    if not name.startswith("ssd"):
        options |= {"min_size": size, "max_size": size}
    if "rcnn" in name:
        options |= {
            "rpn_pre_nms_top_n_train": 200,
            "rpn_post_nms_top_n_train": 100,
            "rpn_pre_nms_top_n_test": 100,
            "rpn_post_nms_top_n_test": 30,
            "box_batch_size_per_image": 64,
            "box_score_thresh": 0.0,
            "box_detections_per_img": 10,
        }
    else:
        # Few enough that torchvision suppresses boxes in one way on every device.
        options |= {
            "score_thresh": 0.0,
            "detections_per_img": 20,
            "topk_candidates": 100,
        }
    if name.startswith("keypointrcnn"):
        options["num_classes"] = 2
    model = _models.get_model(name, **options)
    inputs = torch.rand(2, 3, size, size)
    target = []
    for _ in range(2):
        boxes = _boxes(3, size)
        each = {
            "boxes": boxes,
            "labels": torch.randint(1, options["num_classes"], (3,)),
        }
        if name.startswith("maskrcnn"):
            each["masks"] = (torch.rand(3, size, size) > 0.5).to(torch.uint8)
        if name.startswith("keypointrcnn"):
            at = boxes[:, None, :2] + torch.rand(3, 17, 2) * (
                boxes[:, None, 2:] - boxes[:, None, :2]
            )
            each["keypoints"] = torch.cat([at, torch.ones(3, 17, 1)], 2)
        target.append(each)
    _calibrate(model, inputs, target)
    return Problem(name, model, inputs, target, run=_detect, evaluate=_detections)


def _calibrate(model, inputs, target, forwards: int = 3) -> None:
    """Gives batch normalisation the statistics of a few training forwards: an
    untrained network in evaluation else has dead or exploding signals."""
    model.train()
    with torch.no_grad():
        for _ in range(forwards):
            model(list(inputs), target)


FAMILIES: dict[str, Callable[[str], Problem]] = {
    "classification": _classification,
    "quantization": _classification,
    "video": _video,
    "segmentation": _segmentation,
    "optical_flow": _optical_flow,
    "detection": _detection,
}
