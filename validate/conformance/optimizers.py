"""Optimizer by optimizer with torch's own options (optim_db): ten steps of every
implementation that it offers, against the same steps on the CPU."""

from __future__ import annotations

import torch
from conformance import opinfo
from torch.testing._internal.common_optimizers import OptimizerInfo

STEPS = 10
_MATRICES_ONLY = ("Muon",)


def implementations(info: OptimizerInfo) -> list[str]:
    offered = [name for name in ("foreach", "fused") if name in info.supported_impls]
    return ["single", *offered]


def steps(info: OptimizerInfo, implementation: str, device, dtype, seed) -> None:
    failures = []
    for sample in info.optim_inputs_func(device="cpu"):
        options = dict(sample.kwargs)
        if implementation != "single":
            options[implementation] = True
        elif "foreach" in info.supported_impls:
            options["foreach"] = False
        # A step that may be differentiated is not fused.
        if options.get("differentiable") or options.get("capturable"):
            continue
        try:
            result = _train(info, options, device, dtype, seed)
            expected = _train(info, sample.kwargs, torch.device("cpu"), dtype, seed)
            if info.step_requires_closure:
                # Once converged it divides noise by noise: where it gets counts.
                for mine, cpu in zip(result, expected, strict=True):
                    torch.testing.assert_close(mine.cpu(), cpu, rtol=1e-4, atol=1e-4)
                continue
            opinfo.assert_result(
                result,
                expected,
                lambda options=sample.kwargs: _train(
                    info, options, torch.device("cpu"), torch.float64, seed
                ),
            )
        except Exception as error:
            failures.append(f"{sample.desc}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures[:4])


def _train(info, options, device, dtype, seed) -> list[torch.Tensor]:
    """Parameters and state after ``STEPS`` steps down a seeded quadratic."""
    generator = torch.Generator().manual_seed(seed)

    def random(shape):
        return torch.randn(shape, generator=generator).to(device, dtype)

    shapes = [(7, 5), (3, 11)]
    if info.optim_cls.__name__ not in _MATRICES_ONLY:
        shapes += [(13,), (2, 3, 4)]
        if not info.only_supports_sparse_grads:
            shapes.append(())
    parameters = [random(shape).requires_grad_() for shape in shapes]
    targets = [random(shape) for shape in shapes]
    scales = [random(shape).abs() + 0.5 for shape in shapes]
    optimizer = info.optim_cls(parameters, **options)

    def closure():
        optimizer.zero_grad()
        for parameter, target, scale in zip(parameters, targets, scales, strict=True):
            gradient = 2 * scale * (parameter.detach() - target)
            if info.only_supports_sparse_grads:
                gradient = gradient.to_sparse()
            parameter.grad = gradient
        terms = zip(parameters, targets, scales, strict=True)
        return sum((s * (p.detach() - t) ** 2).sum() for p, t, s in terms)

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    if info.step_requires_closure:
        return [parameter.detach() for parameter in parameters]
    state = [
        value
        for parameter in parameters
        for value in optimizer.state[parameter].values()
    ]
    return [
        *(parameter.detach() for parameter in parameters),
        *opinfo.tensors(state),
    ]
