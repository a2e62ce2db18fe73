"""Lists of tensors in grouped launches, fused optimizers and GradScaler's ops."""

from __future__ import annotations

import pytest
import torch
import torch_opencl
from against_cpu import check_error

_SHAPES = [(3, 5), (7,), (), (0,), (300, 70), (2, 3, 4)] * 5
_NUMBERS = [0.5 + 0.1 * i for i in range(len(_SHAPES))]
_CALLS = {
    "add list": lambda x, y, z: torch._foreach_add(x, y, alpha=2),
    "add number": lambda x, y, z: torch._foreach_add(x, 1.5),
    "add numbers": lambda x, y, z: torch._foreach_add(x, _NUMBERS),
    "add tensor": lambda x, y, z: torch._foreach_add(x, torch.tensor(2.0), alpha=3),
    "sub": lambda x, y, z: torch._foreach_sub(x, y, alpha=2),
    "mul": lambda x, y, z: torch._foreach_mul(x, y),
    "div": lambda x, y, z: torch._foreach_div(x, _NUMBERS),
    "addcmul": lambda x, y, z: torch._foreach_addcmul(x, y, z, 0.3),
    "addcdiv": lambda x, y, z: torch._foreach_addcdiv(x, y, z, _NUMBERS),
    "lerp": lambda x, y, z: torch._foreach_lerp(x, y, 0.3),
    "lerp from the end": lambda x, y, z: torch._foreach_lerp(x, y, 0.8),
    "lerp list": lambda x, y, z: torch._foreach_lerp(x, y, z),
    "maximum": lambda x, y, z: torch._foreach_maximum(x, y),
    "clamp_max": lambda x, y, z: torch._foreach_clamp_max(x, 0.1),
    "sqrt": lambda x, y, z: torch._foreach_sqrt(z),
    "neg": lambda x, y, z: torch._foreach_neg(x),
    "abs": lambda x, y, z: torch._foreach_abs(x),
    "reciprocal": lambda x, y, z: torch._foreach_reciprocal(z),
    "sign": lambda x, y, z: torch._foreach_sign(x),
    # not grouped
    "pow": lambda x, y, z: torch._foreach_pow(z, 1.5),
    "norm": lambda x, y, z: torch._foreach_norm(x),
}


def _lists(device, dtype):
    generator = torch.Generator().manual_seed(1)
    x, y = (
        [torch.randn(s, generator=generator).to(dtype) for s in _SHAPES]
        for _ in range(2)
    )
    z = [(torch.rand(s, generator=generator) + 0.5).to(dtype) for s in _SHAPES]
    # dense, but not contiguous
    x[0], y[0], z[0] = x[0].t(), y[0].t(), z[0].t()
    x[1][3] = float("nan")
    return [[tensor.to(device) for tensor in tensors] for tensors in (x, y, z)]


def _launches(device, function) -> int:
    before = torch_opencl._C._launch_count(device.index)
    function()
    return torch_opencl._C._launch_count(device.index) - before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", _CALLS)
def test_functional(device, name, dtype):
    expected = _CALLS[name](*_lists("cpu", dtype))
    result = _CALLS[name](*_lists(device, dtype))
    for mine, cpu in zip(result, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), cpu, equal_nan=True)
        assert mine.stride() == cpu.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_in_place_and_other_dtypes(device, dtype):
    x, y, _ = _lists("cpu", torch.float32)
    x, y = ([(t * 10).nan_to_num(1).to(dtype) for t in ts] for ts in (x, y))
    on_device = [[t.to(device) for t in ts] for ts in (x, y)]
    for a, b in ((x, y), on_device):
        torch._foreach_mul_(a, b)
        torch._foreach_add_(a, 3)
        torch._foreach_copy_(a[1:2], b[1:2])
        torch._foreach_zero_(b)
    for mine, cpu in zip([*on_device[0], *on_device[1]], [*x, *y], strict=True):
        torch.testing.assert_close(mine.cpu(), cpu)


def test_slices_and_mixed_devices(device):
    whole = torch.arange(30.0, device=device)
    torch._foreach_mul_([whole[3:7], whole[10:20]], [2.0, 3.0])
    expected = torch.arange(30.0)
    expected[3:7] *= 2
    expected[10:20] *= 3
    assert torch.equal(whole.cpu(), expected)
    strided = torch._foreach_add([whole[::2]], 1.0)[0]
    assert torch.equal(strided.cpu(), expected[::2] + 1)
    with pytest.raises(RuntimeError):
        torch._foreach_add([whole], [whole, whole])


def test_launches_of_many_tensors(device):
    x = [torch.ones(3, device=device) for _ in range(161)]
    y = [torch.ones(3, device=device) for _ in range(161)]
    assert _launches(device, lambda: torch._foreach_add_(x, y)) <= 6
    assert all(tensor.eq(2).all() for tensor in x)


# The parameter tensors of resnet50, a tenth as wide.
_RESNET50 = [(6, 3, 7, 7), (6,), (6,)]
for _blocks, _width in ((3, 6), (4, 12), (6, 25), (3, 51)):
    for _block in range(_blocks):
        _RESNET50 += [(_width, _width), (_width,), (_width,)]
        _RESNET50 += [(_width, _width, 3, 3), (_width,), (_width,)]
        _RESNET50 += [(4 * _width, _width), (4 * _width,), (4 * _width,)]
        if _block == 0:
            _RESNET50 += [(4 * _width, _width), (4 * _width,), (4 * _width,)]
_RESNET50 += [(100, 200), (100,)]


@pytest.mark.parametrize("way", ["foreach", "fused"])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_step_of_resnet50_takes_few_launches(device, kind, way):
    assert len(_RESNET50) == 161
    parameters = [torch.randn(s, device=device, requires_grad=True) for s in _RESNET50]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = kind(parameters, **{way: True})
    optimizer.step()
    assert _launches(device, optimizer.step) <= 40


def test_grad_scaler(device):
    for bad in (False, True):
        results = []
        for place in ("cpu", device):
            weight = torch.ones(5, device=place, requires_grad=True)
            optimizer = torch.optim.SGD([weight], lr=0.1)
            scaler = torch.amp.GradScaler(
                torch.device(place).type, init_scale=8.0, growth_interval=2
            )
            for step in range(5):
                optimizer.zero_grad()
                factor = float("inf") if bad and step == 2 else 1.0
                scaler.scale((weight * weight).sum() * factor).backward()
                scaler.step(optimizer)
                scaler.update()
            results.append((weight.detach().cpu(), scaler.get_scale()))
        torch.testing.assert_close(results[0][0], results[1][0])
        assert results[0][1] == results[1][1]


def test_unscale_of_strided_gradients(device):
    one, inverse = torch.zeros(1, device=device), torch.full((1,), 0.5, device=device)
    whole = torch.arange(12.0)
    for view in (
        lambda x: x[::2],
        lambda x: x.view(3, 4).t(),
        lambda x: x.view(3, 4)[1],
    ):
        there, expected = whole.to(device), whole.clone()
        view(expected).mul_(0.5)
        torch._amp_foreach_non_finite_check_and_unscale_([view(there)], one, inverse)
        assert torch.equal(there.cpu(), expected)
    assert one.item() == 0
    bad = torch.full((6,), float("inf"), device=device)[::2]
    torch._amp_foreach_non_finite_check_and_unscale_([bad], one, inverse)
    assert one.item() == 1


def test_scales_on_another_device(device):
    if torch.opencl.device_count() < 2:
        pytest.skip("one device only")
    other = f"opencl:{1 - device.index}"

    def run(op, tensors, *numbers):
        for moved in range(1, len(tensors)):
            places = [other if i == moved else device for i in range(len(tensors))]
            placed = [t.to(p) for t, p in zip(tensors, places, strict=True)]
            with pytest.raises(RuntimeError, match=r"same device|on opencl"):
                op(*placed, *numbers)

    one, count = torch.ones(1), torch.ones(1, dtype=torch.int32)
    run(torch._amp_update_scale_, (one, count, one), 2.0, 0.5, 3)
    run(
        lambda x, *scales: torch._amp_foreach_non_finite_check_and_unscale_(
            [x], *scales
        ),
        (torch.ones(5), one, one),
    )


def test_bools_are_as_for_single_tensors(device):
    x = torch.rand(3)
    for call in (
        lambda x: torch._foreach_sub([x], True),
        lambda x: torch._foreach_sub_([x], [True]),
        lambda x: torch._foreach_add([x], [x], alpha=True),
    ):
        check_error(call, device, x)
    found = torch._foreach_add([x.to(device)], True)[0]
    assert torch.equal(found.cpu(), x + 1)


_IN_PLACE = {
    "_foreach_add_": (2.0, [2.0, 3.0], "list"),
    "_foreach_mul_": (2.0, [2.0, 3.0], "list"),
    "_foreach_div_": (2.0, "list"),
    "_foreach_maximum_": (0.5, "list"),
    "_foreach_lerp_": ("list", 0.5),
    "_foreach_copy_": ("list",),
    "_foreach_sqrt_": (),
    "_foreach_zero_": (),
}


@pytest.mark.parametrize("name", _IN_PLACE)
def test_writes_in_place_count(device, name):
    function = getattr(torch, name)
    for other in _IN_PLACE[name] or (None,):
        tensors = [torch.rand(3, device=device) for _ in range(2)]
        given = [torch.rand(3, device=device) for _ in range(2)]
        if name == "_foreach_lerp_":
            arguments = (given, 0.5)
        else:
            arguments = () if other is None else (given if other == "list" else other,)
        function(tensors, *arguments)
        assert [tensor._version for tensor in tensors] == [1, 1], (name, other)


def test_autograd_sees_writes_in_place(device):
    x = torch.rand(3, device=device, requires_grad=True)
    y = x.exp()
    torch._foreach_mul_([y], 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
