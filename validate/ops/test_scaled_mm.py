"""_scaled_mm: products of float8 matrices by scales, against float64, and errors."""

from __future__ import annotations

import pytest
import torch
from against_cpu import move, offset, strided
from tolerance import assert_matches

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_V2 = torch.ops.aten._scaled_mm_v2


def _operands(rows, depth, columns, a=E4M3, b=E4M3):
    return torch.randn(rows, depth).to(a), torch.randn(columns, depth).to(b).t()


def _scales(rows, columns, row_wise):
    if row_wise:
        return torch.rand(rows, 1) + 0.1, torch.rand(1, columns) + 0.1
    return torch.tensor(0.37), torch.tensor([[1.9]])


def _check(device, a, b, scale_a, scale_b, bias=None, dtype=torch.float32):
    on_device = [
        x if x is None else move(x, device) for x in (a, b, scale_a, scale_b, bias)
    ]
    result = torch._scaled_mm(
        *on_device[:4], bias=on_device[4], out_dtype=dtype, use_fast_accum=True
    )
    assert result.dtype == dtype
    expected = torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=dtype)
    reference = a.double() * scale_a.double() @ (b.double() * scale_b.double())
    if bias is not None:
        reference = reference + bias.double()
    assert_matches(result, reference, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("row_wise", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_scales_and_results(device, rows, row_wise, dtype):
    a, b = _operands(rows, 48, 29)
    _check(device, a, b, *_scales(rows, 29, row_wise), dtype=dtype)


@pytest.mark.parametrize("bias", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bias(device, bias, dtype):
    a, b = _operands(7, 32, 19)
    values = torch.randn(19).to(bias)
    _check(device, a, b, *_scales(7, 19, True), bias=values, dtype=dtype)
    _check(device, a, b, *_scales(7, 19, False), bias=values, dtype=dtype)


@pytest.mark.parametrize("a", [E4M3, E5M2, torch.float8_e4m3fnuz])
@pytest.mark.parametrize("b", [E4M3, E5M2, torch.float8_e5m2fnuz])
def test_formats(device, a, b):
    _check(device, *_operands(9, 40, 17, a, b), *_scales(9, 17, True))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 7, 5), (2, 4133, 3), (67, 16, 131)])
@pytest.mark.parametrize("row_wise", [False, True])
def test_sizes(device, sizes, row_wise):
    rows, _, columns = sizes
    _check(device, *_operands(*sizes), *_scales(rows, columns, row_wise))


@pytest.mark.parametrize("sizes", [(0, 5, 4), (3, 0, 4), (3, 5, 0)])
def test_of_nothing(device, sizes):
    rows, _, columns = sizes
    a, b = _operands(*sizes)
    one = torch.tensor(1.0)
    result = torch._scaled_mm(
        *(x.to(device) for x in (a, b, one, one)), out_dtype=torch.float32
    )
    assert torch.equal(result.cpu(), torch.zeros(rows, columns))


def test_layouts(device):
    a, b = _operands(6, 24, 11)
    scales = _scales(6, 11, True)
    _check(device, strided(a.float()).to(E4M3), b.contiguous(), *scales)
    _check(device, a[::2], b[:, 1:], scales[0][:3], scales[1][:, 1:])
    _check(device, offset(a.float()).to(E4M3), b, *scales)


@pytest.mark.parametrize("dtype", [E4M3, E5M2, torch.int32, torch.float64])
def test_other_results(device, dtype):
    a, b = _operands(8, 32, 16)
    scales = (torch.tensor(0.5), torch.tensor(0.25), None, torch.tensor(2.0))
    expected = torch._scaled_mm(a, b, *scales, out_dtype=dtype)
    result = torch._scaled_mm(
        *(x if x is None else x.to(device) for x in (a, b, *scales)), out_dtype=dtype
    )
    assert result.dtype == dtype
    # Sums in another order may be rounded to the neighbour.
    distance = (result.cpu().double() - expected.double()).abs()
    step = 1.0 if dtype == torch.int32 else 0.3 * expected.double().abs() + 0.01
    assert (distance <= step).all()
    assert (distance > 0).double().mean() < 0.1 or dtype == torch.float64


def test_out(device):
    a, b = _operands(8, 32, 16)
    one = torch.ones((), device=device)
    out = torch.empty(16, 8, dtype=torch.bfloat16, device=device).t()
    torch._scaled_mm(
        a.to(device), b.to(device), one, one, out_dtype=torch.bfloat16, out=out
    )
    expected = torch._scaled_mm(
        a, b, torch.tensor(1.0), torch.tensor(1.0), out_dtype=torch.bfloat16
    )
    assert_matches(out, a.double() @ b.double(), expected)


@pytest.mark.parametrize("row_wise", [False, True])
def test_second_version(device, row_wise):
    a, b = _operands(7, 32, 19)
    scale_a, scale_b = _scales(7, 19, row_wise)
    scales = ([scale_a], [int(row_wise)], [0], [scale_b], [int(row_wise)], [0])
    bias = torch.randn(19)
    expected = _V2(a, b, *scales, bias, torch.bfloat16)
    moved = [[x.to(device) for x in s] if torch.is_tensor(s[0]) else s for s in scales]
    result = _V2(a.to(device), b.to(device), *moved, bias.to(device), torch.bfloat16)
    reference = a.double() * scale_a.double() @ (b.double() * scale_b.double()) + bias
    assert_matches(result, reference, expected)


_F32 = {"out_dtype": torch.float32}
_BAD = {
    "vector": lambda mm, a, b, one: mm(a[0], b, one, one, **_F32),
    "batch": lambda mm, a, b, one: mm(a[None], b, one, one, **_F32),
    "shapes": lambda mm, a, b, one: mm(a, b[:30], one, one, **_F32),
    "float": lambda mm, a, b, one: mm(a.float(), b, one, one, **_F32),
    "double scale": lambda mm, a, b, one: mm(a, b, one.double(), one, **_F32),
    "scale shape": lambda mm, a, b, one: mm(
        a, b, one.expand(16).contiguous(), one, **_F32
    ),
    "columns' scales as rows": lambda mm, a, b, one: mm(
        a, b, one.repeat(16, 1), one.repeat(24, 1), **_F32
    ),
    "bias": lambda mm, a, b, one: mm(a, b, one, one, bias=b[0, :23].float(), **_F32),
    "scale_result": lambda mm, a, b, one: mm(
        a, b, one, one, scale_result=one.expand(2), **_F32
    ),
    "out": lambda mm, a, b, one: mm(a, b, one, one, **_F32, out=one.half().reshape(1)),
}
_BAD_V2 = {
    "batch": lambda a, b, o: _V2(a[None], b, [o], [0], [], [o], [0], [], None, None),
    "shapes": lambda a, b, o: _V2(a, b[1:], [o], [0], [], [o], [0], [], None, None),
    "contraction": lambda a, b, o: _V2(
        a, b, [o], [0], [], [o], [0], [], None, None, [0, 0]
    ),
    "one contraction": lambda a, b, o: _V2(
        a, b, [o], [0], [], [o], [0], [], None, None, [0]
    ),
    "recipes": lambda a, b, o: _V2(a, b, [o], [0], [], [o], [1], [], None, None),
    "no scales": lambda a, b, o: _V2(a, b, [], [], [], [], [], [], None, None),
    "two elements": lambda a, b, o: _V2(
        a, b, [o.repeat(2)], [0], [], [o], [0], [], None, None
    ),
    "rows": lambda a, b, o: _V2(
        a, b, [o.repeat(15, 1)], [1], [], [o.repeat(1, 24)], [1], [], None, None
    ),
    "columns": lambda a, b, o: _V2(
        a, b, [o.repeat(16, 1)], [1], [], [o.repeat(1, 23)], [1], [], None, None
    ),
    "strides": lambda a, b, o: _V2(
        a, b, [o.repeat(16, 1)], [1], [], [o.repeat(1, 48)[:, ::2]], [1], [], None, None
    ),
    "swizzle": lambda a, b, o: _V2(a, b, [o], [0], [1], [o], [0], [1], None, None),
    "bias": lambda a, b, o: _V2(
        a, b, [o], [0], [], [o], [0], [], b[0].double(), torch.float32
    ),
}


def _assert_same_error(call, *arguments, device):
    with pytest.raises(Exception) as expected:
        call(*arguments)
    with pytest.raises(expected.type) as raised:
        call(*(x.to(device) if torch.is_tensor(x) else x for x in arguments))
    texts = [str(e.value).split("\n\n")[0] for e in (raised, expected)]
    # CPUs that multiply float8 themselves name the operands of mm.
    texts[1] = texts[1].replace("mat1 and mat2 shapes", "mat_a and mat_b shapes")
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", _BAD)
def test_errors(device, name):
    a, b = _operands(16, 32, 24)
    one = torch.ones(())
    _assert_same_error(_BAD[name], torch._scaled_mm, a, b, one, device=device)


@pytest.mark.parametrize("name", _BAD_V2)
def test_errors_of_the_second_version(device, name):
    a, b = _operands(16, 32, 24)
    _assert_same_error(_BAD_V2[name], a, b, torch.ones(()), device=device)


class _Float8Linear(torch.autograd.Function):
    """Weights and activations in e4m3, incoming gradients in e5m2."""

    @staticmethod
    def quantize(x, format):
        scale = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(format).max
        return (x / scale).to(format), scale

    @staticmethod
    def product(a, b):
        (a, scale_a), (b, scale_b) = a, b
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.float32)

    @classmethod
    def forward(cls, ctx, x, weight):
        ctx.save_for_backward(x, weight)
        w, scale = cls.quantize(weight, E4M3)
        return cls.product(cls.quantize(x, E4M3), (w.t(), scale))

    @classmethod
    def backward(cls, ctx, gradient):
        x, weight = ctx.saved_tensors
        g, scale = cls.quantize(gradient, E5M2)
        of_x = cls.product((g, scale), cls.quantize(weight, E4M3))
        return of_x, cls.product((g.t(), scale), cls.quantize(x, E4M3))


def test_a_float8_layer_learns(device):
    torch.manual_seed(0)
    target = torch.randn(16, 32) / 5
    x = torch.randn(64, 32)
    losses = {}
    for where in ("cpu", device):
        torch.opencl.reset_fallback_stats()
        weight = torch.zeros(16, 32, device=where, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=2.0)
        inputs, wanted = x.to(where), (x @ target.t()).to(where)
        for _ in range(20):
            optimizer.zero_grad()
            loss = (_Float8Linear.apply(inputs, weight) - wanted).square().mean()
            loss.backward()
            optimizer.step()
        losses[str(where)] = loss.item()
    assert not torch.opencl.fallback_stats()
    on_cpu, on_device = losses.values()
    assert on_device < 0.1
    assert abs(on_device - on_cpu) < 0.1 * on_cpu + 1e-3
