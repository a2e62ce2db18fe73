"""Functions and networks through Inductor, against the CPU's eager results.

A case is a function and the shapes or tensors it is called with; its text shows which
part of the generator it is for.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from tolerance import assert_matches
from torch import nn

pytestmark = [pytest.mark.gpu_class, pytest.mark.usefixtures("fresh_inductor")]


def randn(*shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


_CASES = {
    "broadcast": (
        lambda x, y: torch.relu(x + y) * 2,
        lambda: (randn(9, 33), randn(33)),
    ),
    "softmax": (lambda x: torch.softmax(x * 2 + 1, -1), lambda: (randn(6, 100),)),
    "gelu_layer_norm": (
        lambda x, b, r, w: F.layer_norm(F.gelu(x + b) + r, (96,), w, b),
        lambda: (randn(7, 96), randn(96), randn(7, 96), randn(96)),
    ),
    "sum_outer": (lambda x: (x * x).sum(0), lambda: (randn(50, 70),)),
    "sum_all": (lambda x: (x * x).sum(), lambda: (randn(70, 700),)),
    "transposed": (lambda x, y: x.t() + y, lambda: (randn(50, 70), randn(70, 50))),
    "argmax": (lambda x: (x.argmax(1), x.argmin(0)), lambda: (randn(50, 70),)),
    "argmax_equal": (
        lambda x: (x.argmax(1), x.argmin(1)),
        lambda: (torch.randint(0, 3, (9, 70)).float(),),
    ),
    "extremes": (
        lambda x: (x.amax(1), x.amin(0)),
        lambda: (torch.where(randn(50, 70) > 2.5, torch.nan, randn(50, 70)),),
    ),
    "bool": (
        lambda x: ((x > 0) & (x < 1), (x > 0).any(1), (x > 5).any(), (x > 0) < (x > 1)),
        lambda: (randn(50, 70),),
    ),
    "integers": (
        lambda x: (x // 3, x % 5, x // -3, x * 2 + 1, x.sum(), x.amax(0)),
        lambda: (torch.randint(-50, 50, (37, 21)),),
    ),
    "small_integers": (
        lambda x: (x.float() / 255, x + x, x > 100),
        lambda: (torch.randint(0, 255, (3, 5, 17), dtype=torch.uint8),),
    ),
    "float64": (
        lambda x: (torch.exp(x).sum(1), torch.lgamma(x), x.var(0)),
        lambda: (randn(20, 30, dtype=torch.float64),),
    ),
    "bfloat16": (
        lambda x: (x.float() * 2 + 1).bfloat16(),
        lambda: (randn(50, 70, dtype=torch.bfloat16),),
    ),
    "float16": (
        lambda x: (x.float().exp().half(), x * 2),
        lambda: (randn(50, 70, dtype=torch.float16),),
    ),
    "embedding": (
        lambda i, w: w[i] * 2,
        lambda: (torch.randint(-60, 60, (9, 11)), randn(60, 48)),
    ),
    "gather": (
        lambda x, i: x.gather(1, i) + 1,
        lambda: (randn(9, 40), torch.randint(0, 40, (9, 17))),
    ),
    "cat": (
        lambda x, y: torch.cat([x, y], 1) + 1,
        lambda: (randn(5, 20), randn(5, 13)),
    ),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 1)) * 2, lambda: (randn(2, 3, 8, 19),)),
    "var_mean": (
        lambda x: (*torch.var_mean(x, 1), *torch.var_mean(x, 0)),
        lambda: (randn(30, 500) + 100,),
    ),
    "var_mean_of_columns": (
        lambda x: (*torch.var_mean(x, (0, 2)), x.sum((0, 2)), x.double().var().float()),
        lambda: (randn(70, 18, 21) + 100,),
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda: (randn(8, 6, 9, 9), randn(6), randn(6)),
    ),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x, t),
        lambda: (randn(30, 50), torch.randint(0, 50, (30,))),
    ),
    "index_values": (
        lambda x: x + torch.arange(70, device=x.device) // 3,
        lambda: (randn(50, 70),),
    ),
    "upsample": (
        lambda x: F.interpolate(x, scale_factor=2),
        lambda: (randn(2, 3, 8, 9),),
    ),
    "max_pool": (lambda x: F.max_pool2d(x, 2), lambda: (randn(2, 3, 8, 34),)),
    "special": (
        lambda x: (torch.erfinv(x / 10), torch.sin(x), torch.digamma(x), torch.erf(x)),
        lambda: (randn(5, 70),),
    ),
    "moments_of_nothing": (lambda x: torch.var_mean(x, 0), lambda: (randn(0, 7),)),
    "products_of_bool": (lambda x: (x > -2).prod(1), lambda: (randn(9, 70),)),
    "polygamma": (lambda x: torch.polygamma(2, x.abs() + 1), lambda: (randn(5, 70),)),
    "power": (lambda x: (x.abs() ** 1.7, x**3, x**-1), lambda: (randn(5, 70),)),
    "matmul_tail": (
        lambda x, y: F.relu(x @ y) + 1,
        lambda: (randn(50, 70), randn(70, 40)),
    ),
    "empty": (lambda x: x + 1, lambda: (randn(0, 70),)),
    "number": (lambda x: x * 3 + 1, lambda: (randn(),)),
    "view": (lambda x: x[1:, 3:] * 2, lambda: (randn(13, 17),)),
    "scan": (lambda x: x.cumsum(0) + 1, lambda: (randn(13, 17),)),
    "sort": (lambda x: x.sort(1)[0] + 1, lambda: (randn(13, 17),)),
    "scatter_add": (
        lambda x, i, s: x.scatter_add(0, i, s) * 2,
        lambda: (randn(13, 17), torch.randint(0, 13, (5, 17)), randn(5, 17)),
    ),
    "index_put": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True) * 2,
        lambda: (randn(13, 17), torch.randint(0, 13, (5,)), randn(5, 17)),
    ),
    **{
        f"size_{n}": (
            lambda x: (torch.tanh(x), x.sum(), x.softmax(0), x.var(correction=0)),
            lambda n=n: (randn(n),),
        )
        for n in (1, 15, 16, 17, 33)
    },
}


def _tensors(results) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def _double(arguments):
    return [a.double() if a.is_floating_point() else a for a in arguments]


def _check(function, arguments, device, dynamic=None) -> None:
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    results = _tensors(compiled(*(a.to(device) for a in arguments)))
    baseline = _tensors(function(*arguments))
    reference = _tensors(function(*_double(arguments)))
    for result, theirs, exact in zip(results, baseline, reference, strict=True):
        assert result.shape == theirs.shape and result.dtype == theirs.dtype
        assert_matches(result, exact, theirs)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", _CASES)
def test_function(device, case):
    function, make = _CASES[case]
    _check(function, make(), device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_comparisons_see_rounded_values(device, dtype):
    def extremes(x):
        return (3 / x).amax(0), (x * 1.7).amin(1)

    def compared(x, y):
        return x * 3 == y, x * 3 > y, x * 3 <= 1

    for shape in ((33, 5), (5, 64), (1, 7)):
        x = torch.randn(shape).to(dtype)
        gradients = []
        for call, given in (
            (torch.compile(extremes), x.to(device)),
            (extremes, x),
            (extremes, x.double()),
        ):
            given.requires_grad_()
            outputs = call(given)
            gradients += torch.autograd.grad([o.sum() for o in outputs], given)
        result, theirs, exact = gradients
        assert_matches(result, exact, theirs)
        y = x.detach() * 3
        expected = compared(x.detach(), y)
        found = torch.compile(compared)(x.detach().to(device), y.to(device))
        assert all(map(torch.equal, (mine.cpu() for mine in found), expected))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_of_dynamic_sizes(device, dtype):
    """Quotients, roots and products of sizes are not rounded to integers."""

    def function(x, y):
        n, m = x.shape
        rows = x * (2 / (n - 1)) + y[:n, :m] / (n * m) + x * n**0.5 + n / m
        # 0.29 * 100 is 28.99 in Python, 29 in float32.
        cut = rows[int(0.29 * n) :, round(m * 0.3) :] * int(0.29 * n)
        scaled = F.layer_norm(rows, (m,)) * (0.1 / n)
        return rows.var(0), rows.var(1).sum() * 0.3, rows * (n // 2), cut, scaled

    compiled = torch.compile(function, dynamic=True)
    for shape in ((13, 17), (100, 33)):
        given = [torch.randn(shape).to(dtype) for _ in range(2)]
        results = []
        for call, inputs in (
            (compiled, [t.to(device) for t in given]),
            (function, given),
            (function, [t.double() for t in given]),
        ):
            x, y = (t.requires_grad_() for t in inputs)
            outputs = call(x, y)
            gradients = torch.autograd.grad([o.sum() for o in outputs], [x, y])
            results.append([t.detach() for t in (*outputs, *gradients)])
        for result, theirs, exact in zip(*results, strict=True):
            assert_matches(result, exact, theirs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shapes", [((13, 17), (9, 40)), ((3, 4, 5), (2, 4, 7))])
def test_dynamic_shapes(device, shapes):
    def function(x):
        return (x * 2).softmax(-1).sum(0), x.var(-1), x.amax()

    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(function, backend=counter, dynamic=True)
    for shape in shapes:
        x = torch.randn(shape)
        for result, exact, theirs in zip(
            compiled(x.to(device)), function(x.double()), function(x), strict=True
        ):
            assert_matches(result, exact, theirs)
    assert counter.frame_count == 1


def test_dropout(device):
    """One mask forward and backward, the same of the same seed."""

    def function(x):
        return F.dropout(x, 0.25) * 2

    compiled = torch.compile(function)
    results = []
    for seed in (1, 1, 2):
        x = torch.ones(300, 40, device=device, requires_grad=True)
        torch.manual_seed(seed)
        y = compiled(x)
        y.sum().backward()
        torch.testing.assert_close(x.grad, y.detach())
        results.append(y.detach().cpu())
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    torch.testing.assert_close(results[0].unique(), torch.tensor([0, 2 / 0.75]))
    assert abs((results[0] == 0).float().mean() - 0.25) < 0.02


def test_normal_numbers(device):
    x = torch.zeros(200, 500, device=device)
    y = torch.compile(lambda x: x + torch.randn_like(x))(x).cpu()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02
    assert y.unique().numel() > 0.95 * y.numel()


def test_bad_index_is_reported(device):
    weight = torch.randn(10, 16, device=device)
    index = torch.tensor([1, 10, 2], device=device)
    compiled = torch.compile(lambda w, i: w[i] * 2)
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        compiled(weight, index)
        torch.opencl.synchronize(device)
    torch.testing.assert_close(
        compiled(weight, index.clamp(max=9)).cpu(), weight.cpu()[[1, 9, 2]] * 2
    )


_DIVISIONS = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": lambda x, y: torch.fmod(x, y),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", _DIVISIONS)
def test_integers_divided_by_zero(device, name):
    function = _DIVISIONS[name]
    compiled = torch.compile(
        lambda x, y: (function(x, y) + 1, torch.where(y != 0, function(x, y), 0).sum(1))
    )
    for dtype in (torch.int32, torch.int64, torch.uint8):
        for columns in (33, 1, 64):
            x, y = torch.randint(1, 100, (2, 5, columns)).to(dtype)
            y[3, columns // 2] = 0
            zero, divisors = y.to(device), y.clamp(min=1).to(device)
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(x.to(device), zero)
                torch.opencl.synchronize(device)
            found = compiled(x.to(device), divisors)
            assert torch.equal(found[0].cpu(), function(x, divisors.cpu()) + 1)
    floats = compiled(x.float().to(device), y.float().to(device))[0]
    torch.testing.assert_close(
        floats.cpu(), function(x.float(), y.float()) + 1, equal_nan=True
    )


def test_only_elements_divide(device):
    """A divisor that is zero just beyond the last element, or where a mask is false."""

    def function(x):
        count = x.shape[0]
        place = torch.arange(count, device=x.device)
        padded = F.pad(x[1:] % (count - place[1:]), (2, 3))
        return x // (count - place), padded.sum()

    compiled = torch.compile(function)
    for count in (17, 16, 40, 257):
        x = torch.randint(1, 99, (count,))
        for mine, theirs in zip(compiled(x.to(device)), function(x), strict=True):
            assert torch.equal(mine.cpu(), theirs)


def test_mutation(device):
    def function(x, y):
        x.add_(y)
        y.mul_(2)
        return x.sum()

    x, y = torch.randint(-99, 100, (2, 30, 40)).float().unbind()  # sums are exact
    ours = [x.to(device), y.to(device)]
    total = torch.compile(function)(*ours)
    theirs = [x.clone(), y.clone()]
    torch.testing.assert_close(total.cpu(), function(*theirs))
    torch.testing.assert_close([each.cpu() for each in ours], theirs)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(20, 32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 20)

    def forward(self, tokens):
        x = self.tokens(tokens)
        parts = self.qkv(self.norm(x)).split(32, 2)
        q, k, v = (p.unflatten(2, (2, 16)).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(F.gelu(x + y.transpose(1, 2).flatten(2)))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.ConvTranspose2d(16, 8, 2, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


_NETWORKS = {
    "attention": (_Attention, lambda: torch.randint(0, 20, (2, 24))),
    "cnn": (_cnn, lambda: randn(4, 3, 16, 16)),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(20, 33), nn.Tanh(), nn.Linear(33, 5)),
        lambda: randn(9, 20),
    ),
}


def _step(model, function, x):
    result = function(x)
    result.pow(2).mean().backward()
    return [result.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("network", _NETWORKS)
def test_network(device, attention_compiles, network):
    make, make_input = _NETWORKS[network]
    x = make_input()
    model = make()
    ours = copy.deepcopy(model).to(device)
    results = _step(ours, torch.compile(ours, fullgraph=True), x.to(device))
    exact = copy.deepcopy(model).double()
    reference = _step(exact, exact, _double([x])[0])
    baseline = _step(model, model, x)
    for result, wanted, theirs in zip(results, reference, baseline, strict=True):
        assert_matches(result, wanted, theirs)


def test_optimizer(device):
    parameters = [torch.randn(n, 16) for n in (3, 8)]
    updated = []
    for where in ("cpu", device):
        mine = [p.clone().to(where).requires_grad_() for p in parameters]
        optimizer = torch.optim.Adam(mine, 0.1)
        step = optimizer.step if where == "cpu" else torch.compile(optimizer.step)
        for _ in range(2):
            for parameter in mine:
                parameter.grad = parameter.detach().sin()
            step()
        updated.append([p.detach().cpu() for p in mine])
    torch.testing.assert_close(updated[1], updated[0])


@pytest.mark.parametrize("length", [7, 64])
def test_exp_of_all_sizes(device, length):
    x = torch.linspace(-110, 95, 3 * length).view(3, length)
    x[0, :5] = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0])
    result = torch.compile(torch.exp)(x.to(device)).cpu()
    torch.testing.assert_close(
        result, x.double().exp().float(), rtol=3e-7, atol=1e-37, equal_nan=True
    )


def test_custom_op_with_a_gradient(device):
    """As in docs/custom-kernels.md."""
    from torch_opencl import ElementwiseKernel

    forward = ElementwiseKernel("T x", "T z", "z = x * x")
    backward = ElementwiseKernel("T g, T x", "T gx", "gx = 2 * g * x")
    name = f"validate::square{device.index}"

    @torch.library.custom_op(name, mutates_args=(), device_types="opencl")
    def square(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(f"{name}_backward", mutates_args=(), device_types="opencl")
    def square_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return backward(g, x)

    square.register_fake(torch.empty_like)
    square_backward.register_fake(lambda g, x: torch.empty_like(x))
    square.register_autograd(
        lambda ctx, g: square_backward(g, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = torch.randn(5, 7, device=device, requires_grad=True)
    torch.compile(lambda x: (square(x) + 1).sum(), fullgraph=True)(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


@pytest.mark.parametrize("length", [40, 3])
def test_op_that_cannot_be_generated(device, monkeypatch, caplog, length):
    """It stays a kernel of aten, and what lies around it a generated one."""
    from torch_opencl.inductor import operations
    from torch_opencl.inductor.types import NotGenerated

    def refuse(*arguments):
        raise NotGenerated("asked to")

    def function(x, y):
        z = torch.special.erfcx(F.gelu(x + y) * 2)
        return z + 1, z.sum(1), z.mean(0), torch.special.erfcx(x)

    monkeypatch.setattr(operations.OpenCLOverrides, "erfcx", staticmethod(refuse))
    with caplog.at_level("DEBUG", "torch_opencl.inductor"):
        _check(function, (randn(30, length), randn(length)), device)
    assert "aten.special_erfcx.default: asked to" in caplog.text


@pytest.mark.parametrize("function", [torch.erf, torch.tanh], ids=["erf", "tanh"])
def test_function_of_all_sizes(device, function):
    x = torch.cat([torch.linspace(-11, 11, 5000), torch.logspace(-37, 0, 3000)])
    x[:5] = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0])
    result = torch.compile(function)(x.to(device)).cpu()
    exact = function(x.double()).float()
    torch.testing.assert_close(result, exact, rtol=3e-7, atol=1e-37, equal_nan=True)
    assert torch.equal(result.signbit()[3:], exact.signbit()[3:])


def test_row_that_is_written_between_its_loops(device):
    """It is not kept: the second loop reads what the first wrote."""

    def function(x):
        total = torch.erf(x).sum(1, keepdim=True)
        x.copy_(x + total)
        return torch.erf(x).sum(1), torch.erf(x) / total

    x = torch.rand(9, 70)  # sums without cancellation
    ours, theirs = x.to(device), x.clone()
    results = torch.compile(function, fullgraph=True)(ours)
    torch.testing.assert_close([r.cpu() for r in results], [*function(theirs)])
    torch.testing.assert_close(ours.cpu(), theirs)
