"""nn.Module by nn.Module on torch's own samples (module_db): outputs, and the
gradients of parameters and inputs, against the CPU."""

from __future__ import annotations

import copy

import torch
from conformance import opinfo
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import ModuleInfo
from torch.utils._pytree import tree_map


def train(info: ModuleInfo, device, dtype, seed) -> None:
    _judge(info, device, dtype, seed, training=True)


def evaluate(info: ModuleInfo, device, dtype, seed) -> None:
    _judge(info, device, dtype, seed, training=False)


def _judge(info, device, dtype, seed, training: bool) -> None:
    samples = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    failures = []
    for index, sample in enumerate(samples):
        try:
            _judge_sample(info, sample, device, dtype, seed, training)
        except Exception as error:
            failures.append(
                f"sample {index}, {sample.desc}: {type(error).__name__}: {error}"
            )
    assert not failures, f"{len(failures)} samples failed\n" + "\n".join(failures[:4])


def _judge_sample(info, sample, device, dtype, seed, training) -> None:
    torch.manual_seed(seed)
    constructor, given = sample.constructor_input, sample.forward_input
    module = info.module_cls(*constructor.args, **constructor.kwargs)
    module.to(dtype).train(training)
    if any(is_lazy(parameter) for parameter in module.parameters()):
        module(*given.args, **given.kwargs)
    state = torch.get_rng_state()
    expected = _run(module, given, torch.device("cpu"), dtype, seed)
    arbitrary = not torch.equal(state, torch.get_rng_state())
    result = _run(module, given, device, dtype, seed)
    if arbitrary:
        shapes = [tensor.shape for tensor in result]
        assert shapes == [tensor.shape for tensor in expected], shapes
        return
    opinfo.assert_result(
        result,
        expected,
        lambda: _run(module, given, torch.device("cpu"), torch.float64, seed),
    )


def _run(module, given, device, dtype, seed) -> list[torch.Tensor]:
    module = copy.deepcopy(module).to(device, dtype)

    def convert(value):
        if not torch.is_tensor(value):
            return value
        floating = value.is_floating_point()
        moved = value.detach().to(device, dtype if floating else value.dtype)
        return moved.clone().requires_grad_(value.requires_grad)

    args, kwargs = tree_map(convert, (given.args, given.kwargs))
    outputs = opinfo.tensors(module(*args, **kwargs))
    wanted = [tensor for tensor in outputs if tensor.requires_grad]
    sources = [*module.parameters(), *opinfo.tensors((args, kwargs))]
    sources = [tensor for tensor in sources if tensor.requires_grad]
    if not wanted or not sources:
        return outputs
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.autograd.grad(
        wanted,
        sources,
        [
            torch.randn(tensor.shape, generator=generator).to(tensor)
            for tensor in wanted
        ],
        allow_unused=True,
        materialize_grads=True,
    )
    return [*outputs, *gradients]
