"""One training step, recorded tensor by tensor, and its comparison."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from networks.decisions import Follow, Record
from networks.models import OPTIMIZERS
from networks.problem import Problem
from tolerance import (
    MULTIPLE,
    Comparison,
    compare_all,
    compare_errors,
    perturbed,
    worst,
)
from torch.utils._pytree import tree_map

# Relative error that a signal may have before a decision is made of it.
ROUNDING_AT_A_DECISION = 16 * torch.finfo(torch.float32).eps
# Of all that was decided; a decision within rounding of the other is rare.
MOST_FLIPS = 0.01
# Of the CPU's error: an ill-conditioned tensor's varies by a factor of six.
_MORE_DRAWS = 4

Tensors = dict[str, torch.Tensor]
Progress = Callable[[str], None]


@dataclass
class Step:
    """What a training step left behind, stage by stage, on the host."""

    stages: dict[str, Tensors]
    decisions: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    charges: list[float] = field(default_factory=list)
    flips: int = 0
    decided: int = 0


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
    more_draws: int = 0
    seconds: float = 0.0
    device_seconds: float = 0.0
    cpu_seconds: float = 0.0
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


# Above so many parameters only some are updated: the copies do not fit a small
# machine's memory.
_MANY_PARAMETERS = 250e6
_SHARE_OF_MANY = 8


def _updated(model: torch.nn.Module) -> Tensors:
    named = dict(model.named_parameters())
    if sum(p.numel() for p in named.values()) <= _MANY_PARAMETERS:
        return named
    return dict(list(named.items())[::_SHARE_OF_MANY])


def _to_host(tensors: Tensors) -> Tensors:
    # clone: on the CPU device the optimizer would change the record in place
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _converted(value: torch.Tensor, dtype: torch.dtype, device) -> torch.Tensor:
    return value.to(device, dtype if value.is_floating_point() else value.dtype)


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
    target = tree_map(lambda value: _converted(value, dtype, device), problem.target)
    with mode or nullcontext():
        outputs, loss = problem.run(model, inputs, target)
    stages = {"outputs": _to_host(outputs), "loss": _to_host({"loss": loss})}
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    if inputs.grad is not None:
        gradients["input"] = inputs.grad
    # No clone: optimizers leave gradients as they are.
    stages["gradients"] = {n: g.detach().cpu() for n, g in gradients.items()}
    updated = _updated(model)
    for name, parameter in model.named_parameters():
        if name not in updated:
            parameter.grad = None
        elif given_gradients is not None and name in given_gradients:
            parameter.grad = given_gradients[name].to(device, dtype)
    OPTIMIZERS[problem.optimizer](updated.values()).step()
    stages["parameters"] = _to_host(updated)
    buffers = _to_host(dict(model.named_buffers()))
    if buffers:
        stages["buffers"] = buffers
    if problem.evaluate is not None:
        # From the problem's own weights: a step down a random loss may not help.
        model.load_state_dict(problem.model.state_dict())
        model.eval()
        with mode or nullcontext(), torch.no_grad():
            stages["detections"] = _to_host(problem.evaluate(model, inputs))
    return stages


def recorded_step(problem: Problem, device: torch.device | str = "cpu") -> Step:
    record = Record()
    stages = training_step(problem, device, mode=record)
    return Step(stages, record.decisions)


def following_step(problem: Problem, step: Step, dtype: torch.dtype) -> Step:
    """The CPU's step in ``dtype`` along the decisions of ``step``.

    Its optimizer gets the gradients of ``step``, which are judged before:
    Adam's update is the sign of a gradient that is rounding only.
    """
    follow = Follow(step.decisions, dtype)
    stages = training_step(
        problem, dtype=dtype, mode=follow, given_gradients=step.stages["gradients"]
    )
    return Step(stages, [], follow.charges, follow.flips, follow.decided)


def perturbed_problem(problem: Problem, seed: int = 0) -> Problem:
    """The same with parameters and inputs that are off by a rounding."""
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(problem.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(perturbed(parameter, generator))
    inputs = perturbed(problem.inputs.detach(), generator)
    return replace(problem, model=model, inputs=inputs)


def passed_once(
    stages: list[StageResult], others: list[StageResult]
) -> list[StageResult]:
    """The comparisons of ``stages``, but those of ``others`` that pass instead."""
    merged = []
    for stage, other in zip(stages, others, strict=True):
        pairs = zip(stage.comparisons, other.comparisons, strict=True)
        chosen = [b if b.passed and not a.passed else a for a, b in pairs]
        merged.append(StageResult(stage.stage, chosen))
    return merged


def count_failed(stages: list[StageResult]) -> int:
    return sum(not c.passed for stage in stages for c in stage.comparisons)


def compare_steps(
    step: Step, baseline: Step, reference: Step, multiple: float
) -> list[StageResult]:
    own = max(baseline.charges, default=0.0) + ROUNDING_AT_A_DECISION
    decisions = compare_errors(
        reference.charges, [own] * len(reference.charges), "decision"
    )
    share = reference.flips / max(reference.decided, 1)
    reason = "" if share <= MOST_FLIPS else "more than rounding"
    decisions.append(Comparison("flips", share, 0.0, MOST_FLIPS, reason))
    results = [StageResult("decisions", decisions)]
    compared = {
        stage: compare_all(
            step.stages.get(stage, {}), reference.stages[stage], tensors, multiple
        )
        for stage, tensors in baseline.stages.items()
    }
    # A single number of the CPU's may be exact by luck: losses are allowed the
    # error that float32 typically makes in this network.
    errors = [c.baseline for c in compared["gradients"] if c.baseline == c.baseline]
    typical = multiple * statistics.median(errors)
    for stage, comparisons in compared.items():
        tensors = baseline.stages[stage]
        if stage in ("outputs", "loss"):
            comparisons = [
                _widened(comparison, typical)
                if tensors[comparison.name].numel() == 1
                else comparison
                for comparison in comparisons
            ]
        results.append(StageResult(stage, comparisons))
    return results


def _widened(comparison: Comparison, amount: float) -> Comparison:
    limit = comparison.limit + amount
    reason = "" if comparison.error <= limit else comparison.reason
    return replace(comparison, limit=limit, reason=reason)


def check(
    problem: Problem,
    device: str,
    multiple: float = MULTIPLE,
    progress: Progress = lambda text: None,
) -> Result:
    """Runs the step on ``device`` and judges every tensor of it."""
    result = Result(problem.network, device)
    before = fallback_counts()
    progress(device)
    start = time.perf_counter()
    try:
        step = recorded_step(problem, device)
    except (RuntimeError, NotImplementedError) as error:
        result.error = f"{type(error).__name__}: {error}"
    result.device_seconds = time.perf_counter() - start
    if hasattr(torch, "opencl"):
        # On a CPU driver this is the memory that the reference needs.
        torch.opencl.empty_cache()
    result.fallbacks = {
        op: count - before.get(op, 0)
        for op, count in fallback_counts().items()
        if count > before.get(op, 0)
    }
    if not result.error:
        progress("CPU float32")
        start = time.perf_counter()
        baseline = following_step(problem, step, torch.float32)
        result.cpu_seconds = time.perf_counter() - start
        progress("CPU float64")
        reference = following_step(problem, step, torch.float64)
        result.flips = reference.flips
        result.stages = compare_steps(step, baseline, reference, multiple)
        first_failed = failed = count_failed(result.stages)
        # The CPU's error is a draw, too: others, from a rounding away.
        for seed in range(_MORE_DRAWS):
            if not failed:
                break
            progress("CPU float32, perturbed")
            nearby = perturbed_problem(problem, seed)
            neighbour = following_step(nearby, step, torch.float32)
            again = compare_steps(step, neighbour, reference, multiple)
            result.stages = passed_once(result.stages, again)
            failed = count_failed(result.stages)
        result.more_draws = first_failed - failed
    return result
