"""One training step, recorded tensor by tensor, and its comparison."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from networks.decisions import Follow, Record
from networks.models import OPTIMIZERS, loss_of, named_outputs
from networks.problem import Problem
from tolerance import MULTIPLE, Comparison, compare_all, compare_errors, worst

Tensors = dict[str, torch.Tensor]
Progress = Callable[[str], None]


@dataclass
class Step:
    """What a training step left behind, stage by stage, on the host."""

    stages: dict[str, Tensors]
    decisions: list[torch.Tensor] = field(default_factory=list)
    charges: list[float] = field(default_factory=list)


@dataclass
class StageResult:
    stage: str
    comparisons: list[Comparison]

    @property
    def passed(self) -> bool:
        return all(comparison.passed for comparison in self.comparisons)

    @property
    def worst(self) -> Comparison:
        return worst(self.comparisons)


@dataclass
class Result:
    """Of one network on one device."""

    network: str
    device: str
    stages: list[StageResult] = field(default_factory=list)
    fallbacks: dict[str, int] = field(default_factory=dict)
    flips: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        return (
            not self.error
            and not self.fallbacks
            and bool(self.stages)
            and all(stage.passed for stage in self.stages)
        )


def fallback_counts() -> dict[str, int]:
    module = getattr(torch, "opencl", None)
    return dict(module.fallback_stats()) if module is not None else {}


def _to_host(tensors: Tensors) -> Tensors:
    # clone: on the CPU device the optimizer would change the record in place
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def training_step(
    problem: Problem,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    mode: Record | Follow | None = None,
    given_gradients: Tensors | None = None,
) -> dict[str, Tensors]:
    """Forward, loss, backward, one optimizer step, on a copy of the network.

    ``mode`` sees the forward pass; the optimizer steps along
    ``given_gradients`` where there are any.
    """
    model = copy.deepcopy(problem.model).to(dtype).to(device).train()
    inputs = problem.inputs.detach().to(dtype).to(device).requires_grad_()
    target = problem.target.to(device)
    with mode or nullcontext():
        outputs = named_outputs(model(inputs))
    loss = loss_of(outputs, target)
    stages = {"outputs": _to_host(outputs), "loss": _to_host({"loss": loss})}
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    stages["gradients"] = _to_host({**gradients, "input": inputs.grad})
    if given_gradients is not None:
        for name, parameter in model.named_parameters():
            if name in given_gradients:
                parameter.grad = given_gradients[name].to(device, dtype)
    OPTIMIZERS[problem.optimizer](model.parameters()).step()
    stages["parameters"] = _to_host(dict(model.named_parameters()))
    buffers = _to_host(dict(model.named_buffers()))
    if buffers:
        stages["buffers"] = buffers
    return stages


def recorded_step(problem: Problem, device: torch.device | str = "cpu") -> Step:
    record = Record()
    stages = training_step(problem, device, mode=record)
    return Step(stages, record.decisions)


def reference_step(problem: Problem, step: Step) -> tuple[Step, int]:
    """The float64 step along the decisions of ``step``, and how many it would
    have taken otherwise.

    Its optimizer gets the gradients of ``step``, which are judged before:
    Adam's update is the sign of a gradient that is rounding only.
    """
    follow = Follow(step.decisions)
    stages = training_step(
        problem,
        dtype=torch.float64,
        mode=follow,
        given_gradients=step.stages["gradients"],
    )
    return Step(stages, step.decisions, follow.charges), follow.flips


@dataclass
class Baseline:
    """The float32 step on the CPU and the float64 reference of its decisions."""

    step: Step
    reference: Step


def cpu_baseline(problem: Problem, progress: Progress = lambda text: None) -> Baseline:
    progress("CPU float32")
    step = recorded_step(problem)
    progress("CPU float64")
    return Baseline(step, reference_step(problem, step)[0])


def compare_steps(
    step: Step, reference: Step, baseline: Baseline, multiple: float
) -> list[StageResult]:
    decisions = compare_errors(
        reference.charges, baseline.reference.charges, "relu or max_pool"
    )
    results = [StageResult("decisions", decisions)] if decisions else []
    for stage, tensors in baseline.step.stages.items():
        comparisons = compare_all(
            step.stages.get(stage, {}),
            reference.stages[stage],
            tensors,
            multiple,
            baseline.reference.stages[stage],
        )
        results.append(StageResult(stage, comparisons))
    return results


def check(
    problem: Problem,
    device: str,
    baseline: Baseline,
    multiple: float = MULTIPLE,
    progress: Progress = lambda text: None,
) -> Result:
    """Runs the step on ``device`` and judges every tensor of it."""
    result = Result(problem.network, device)
    before = fallback_counts()
    progress(device)
    try:
        step = recorded_step(problem, device)
    except (RuntimeError, NotImplementedError) as error:
        result.error = f"{type(error).__name__}: {error}"
    result.fallbacks = {
        op: count - before.get(op, 0)
        for op, count in fallback_counts().items()
        if count > before.get(op, 0)
    }
    if not result.error:
        progress("CPU float64")
        reference, result.flips = reference_step(problem, step)
        result.stages = compare_steps(step, reference, baseline, multiple)
    return result
