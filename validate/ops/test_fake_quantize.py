"""Fake quantisation, its gradients and its observer, number by number as the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from against_cpu import move, strided, transposed

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_LEARN = torch.ops.aten._fake_quantize_learnable_per_tensor_affine
_LEARN_CHANNELS = torch.ops.aten._fake_quantize_learnable_per_channel_affine


@pytest.fixture(autouse=True)
def _nothing_falls_back(device):
    torch.opencl.reset_fallback_stats()
    yield
    assert torch.opencl.fallback_stats() == {}


def _run(function, inputs, device):
    """Outputs and gradients of the floats among the inputs."""
    leaves = [move(x, device).requires_grad_(x.is_floating_point()) for x in inputs]
    out = function(*leaves)
    outputs = out if isinstance(out, tuple) else (out,)
    wanted = [x for x in leaves if x.requires_grad]
    gradient = torch.linspace(-1, 2, outputs[0].numel()).view(outputs[0].shape)
    found = torch.autograd.grad(
        outputs[0], wanted, gradient.to(outputs[0]), allow_unused=True
    )
    return [*outputs, *(x for x in found if x is not None)]


def _check(function, inputs, device, dtype=torch.float32):
    inputs = [inputs[0].to(dtype), *inputs[1:]]
    expected = _run(function, inputs, torch.device("cpu"))
    result = _run(function, inputs, device)
    assert len(result) == len(expected)
    for found, wanted in zip(result, expected, strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found.cpu(), wanted, rtol=2e-5, atol=2e-5)


def _numbers(*size):
    x = torch.randn(size) * 3
    x.view(-1)[::7] *= 100  # beyond the last levels
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, transposed, strided])
def test_per_tensor(device, dtype, layout):
    x = layout(_numbers(5, 37))
    _check(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        [x],
        device,
        dtype,
    )
    _check(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, -2, -8, 7),
        [x],
        device,
        dtype,
    )


def test_per_tensor_with_parameters_on_the_device(device):
    scale, zero = torch.tensor([0.11]), torch.tensor([4], dtype=torch.int32)
    for enabled in (0, 1):
        on = torch.tensor([enabled])
        results = [
            torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                *(v.to(where) for v in (x, scale, zero, on)), 0, 255
            )
            for x in [_numbers(61)]
            for where in ("cpu", device)
        ]
        for found, wanted in zip(results[1], results[0], strict=True):
            assert torch.equal(found.cpu(), wanted)


@pytest.mark.parametrize("zero_dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(device, axis, zero_dtype):
    x = _numbers(3, 4, 5)
    scale = torch.rand(x.size(axis)) + 0.05
    zero = torch.randint(0, 9, (x.size(axis),)).to(zero_dtype)

    def quantize(x, scale):
        return torch.fake_quantize_per_channel_affine(
            x, scale.detach(), zero.to(x.device), axis, 0, 255
        )

    _check(quantize, [x, scale], device)
    _check(quantize, [x.mT.contiguous().mT, scale], device)


@pytest.mark.parametrize("zero", [0.0, 3.0, 2.75])
def test_ties_round_as_on_the_cpu(device, zero):
    # Halfway between levels, before the zero point is added or after it.
    x = torch.cat([torch.arange(-9, 30) / 4 + shift for shift in (0, 0.125)])
    scale, zeros = torch.tensor([0.5]), torch.tensor([zero])

    def quantize(x):
        zeros_there = zeros.to(x.device)
        return torch.fake_quantize_per_channel_affine(
            x, scale.to(x.device), zeros_there, 1, 0, 15
        )

    _check(quantize, [x.view(-1, 1)], device)
    _check(lambda x, s, z: _LEARN(x, s, z, 0, 15, 1.0), [x, scale, zeros], device)
    _check(
        lambda x, s, z: _LEARN_CHANNELS(x, s, z, 1, 0, 15, 1.0),
        [x.view(-1, 1), scale, zeros],
        device,
    )


def test_nan_and_nothing(device):
    x = torch.tensor([float("nan"), 1.0, -2.0])
    _check(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15), [x], device
    )
    empty = torch.fake_quantize_per_tensor_affine(
        torch.empty(0, device=device), 0.1, 3, 0, 15
    )
    assert empty.shape == (0,)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_learnable_per_tensor(device, factor):
    inputs = [_numbers(6, 19), torch.tensor([0.13]), torch.tensor([3.0])]
    _check(lambda x, s, z: _LEARN(x, s, z, 0, 255, factor), inputs, device)


@pytest.mark.parametrize("factor", [1.0, 0.25])
@pytest.mark.parametrize("axis", [0, 1])
def test_learnable_per_channel(device, axis, factor):
    x = _numbers(6, 5)
    channels = x.size(axis)
    inputs = [x, torch.rand(channels) + 0.1, torch.arange(channels).float()]
    _check(
        lambda x, s, z: _LEARN_CHANNELS(x, s, z, axis, 0, 255, factor), inputs, device
    )


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("switches", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_moving_average_observer(device, switches, per_row, symmetric):
    batches = [_numbers(4, 6) for _ in range(3)]
    size = 4 if per_row else 1
    results = []
    for where in ("cpu", device):
        low, high = (
            torch.full((size,), v, device=where) for v in (torch.inf, -torch.inf)
        )
        scale = torch.full((size,), 0.5, device=where)
        zero = torch.zeros(size, dtype=torch.int32, device=where)
        on, quantizes = (torch.tensor([s], device=where) for s in switches)
        for batch in batches:
            out = torch.fused_moving_avg_obs_fake_quant(
                batch.to(where), on, quantizes, low, high, scale, zero, 0.1, 0, 255, 0,
                per_row, symmetric,
            )  # fmt: skip
        results.append([out, low, high, scale, zero])
    for found, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found.cpu(), wanted)


_BAD = {
    "scale": lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s[:1], z, 0, 0, 9),
    "quant range": lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 9, 0),
    "zero point": lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, 0.1, 99, 0, 9),
    "axis": lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 7, 0, 9),
    "scale dtype": lambda x, s, z: torch.fake_quantize_per_channel_affine(
        x, s.double(), z, 0, 0, 9
    ),
    "zero points": lambda x, s, z: torch.fake_quantize_per_channel_affine(
        x, s, z + 99, 0, 0, 9
    ),
    "learnable scales": lambda x, s, z: _LEARN_CHANNELS(
        x, s[:2], z.float(), 0, 0, 9, 1.0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _BAD)
def test_errors(device, name):
    inputs = torch.randn(3, 4), torch.rand(3), torch.zeros(3, dtype=torch.int32)
    with pytest.raises(Exception) as expected:
        _BAD[name](*inputs)
    with pytest.raises(expected.type) as raised:
        _BAD[name](*(x.to(device) for x in inputs))
    assert str(raised.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_a_network_trains_for_quantisation(device):
    from torch.ao.quantization import (
        FusedMovingAvgObsFakeQuantize,
        QConfig,
        prepare_qat,
    )

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    )
    fake = FusedMovingAvgObsFakeQuantize.with_args(
        quant_min=-128, quant_max=127, dtype=torch.qint8
    )
    model.qconfig = QConfig(activation=fake, weight=fake)
    prepared = prepare_qat(model.train())
    x, target = torch.randn(32, 8), torch.randn(32, 4)
    losses = []
    for where in ("cpu", device):
        own = copy.deepcopy(prepared).to(where)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = (own(x.to(where)) - target.to(where)).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[1] - losses[0]) < 0.02 * losses[0]
