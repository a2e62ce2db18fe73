"""torch.compile as programs use it: caches across processes, autocast, checkpoints,
optimizers, changing shapes and devices, views and aliases."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
import torch_opencl
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = [pytest.mark.gpu_class, pytest.mark.usefixtures("fresh_inductor")]


_STEP = """
import json, sys, time
import torch
import torch_opencl
from torch._dynamo.utils import counters
from torch import nn

device = sys.argv[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 33), nn.GELU(), nn.LayerNorm(33)).to(device)
x = torch.randn(9, 20, device=device)
y = torch.compile(model)(x)
y.square().sum().backward()
double = torch_opencl.RawKernel(
    "kernel void f(TENSOR(float, x)) { POINTER(x)[get_global_id(0)] *= 2; }", "f"
)
double((9,), (20,), (x,))
torch_opencl.ElementwiseKernel("T x", "T y", "y = x + 1")(x)
torch.opencl.synchronize(device)
print(json.dumps({
    "sum": y.double().sum().item(),
    "gradient": model[0].weight.grad.double().sum().item(),
    "built": torch.opencl.program_cache_stats(device)["built"],
    "graphs": counters["inductor"]["fxgraph_cache_miss"],
    "found": counters["inductor"]["fxgraph_cache_hit"]
    + counters["aot_autograd"]["autograd_cache_hit"],
}))
"""


def _in_a_process(device, directory, monkeypatch) -> dict:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory / "graphs"))
    monkeypatch.setenv("TORCH_OPENCL_CACHE_DIR", str(directory / "programs"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _STEP, str(device)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_second_process_compiles_nothing(device, tmp_path, monkeypatch):
    (tmp_path / "programs").mkdir(mode=0o700)
    first = _in_a_process(device, tmp_path, monkeypatch)
    second = _in_a_process(device, tmp_path, monkeypatch)
    assert first["built"] > 0 and first["graphs"] > 0 and first["found"] == 0
    assert second["built"] == 0 and second["graphs"] == 0 and second["found"] > 0
    assert (second["sum"], second["gradient"]) == (first["sum"], first["gradient"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_a_known_nan(device, dtype):
    """One element has no deviation: the kernel's text divides 0 by 0."""
    names = "exp exp2 expm1 sinh cosh tanh sigmoid round floor ceil trunc erf lgamma"

    def function(x):
        known = x.std(0, keepdim=True)
        return [getattr(torch, name)(known) for name in names.split()]

    x = torch.ones(1, device=device, dtype=dtype)
    for name, result in zip(names.split(), torch.compile(function)(x), strict=True):
        assert result.isnan().all(), (name, result)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(device, dtype):
    linear = nn.Linear(33, 20).to(device)

    def function(x):
        with torch.autocast("opencl", dtype):
            return torch.softmax(F.gelu(linear(x)) + 1, -1), linear(x)

    x = torch.randn(9, 33, device=device)
    wanted = function(x)
    results = torch.compile(function, fullgraph=True)(x)
    for result, eager in zip(results, wanted, strict=True):
        assert result.dtype == eager.dtype
    torch.testing.assert_close(results[0], wanted[0], rtol=2e-2, atol=1e-3)
    sum(result.float().sum() for result in results).backward()
    assert linear.weight.grad.dtype == torch.float32


def test_checkpoint_repeats_dropout(device):
    def part(x):
        return F.dropout(x * 2, 0.5).sin()

    def function(x):
        return checkpoint(part, x, use_reentrant=False)

    x = torch.full((64, 50), 0.3, device=device, requires_grad=True)
    y = torch.compile(function, fullgraph=True)(x)
    y.sum().backward()
    kept = y.detach() != 0
    assert 0.4 < kept.float().mean().item() < 0.6
    # d sin(4 x) = 4 cos(4 x) where the element was kept
    slope = 4 * torch.cos(4 * x.detach())
    torch.testing.assert_close(x.grad, torch.where(kept, slope, 0))


_OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.5, centered=True),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_optimizer_steps(device, name):
    start = [torch.randn(n, 16) for n in (3, 8)]
    updated = []
    for where in ("cpu", device):
        mine = [p.clone().to(where).requires_grad_() for p in start]
        optimizer = _OPTIMIZERS[name](mine)
        step = optimizer.step if where == "cpu" else torch.compile(optimizer.step)
        for _ in range(3):
            for parameter in mine:
                parameter.grad = parameter.detach().sin()
            step()
        updated.append([p.detach().cpu() for p in mine])
    torch.testing.assert_close(updated[1], updated[0])


def test_lengths_are_compiled_once(device):
    from torch._dynamo.testing import CompileCounterWithBackend

    def function(x, w):
        return F.layer_norm(x @ w, (16,)).softmax(0), x.sum(), x.amax(0)

    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    w = torch.randn(16, 16)
    for length in (7, 9, 33, 100, 16):
        x = torch.randn(length, 16)
        results = compiled(x.to(device), w.to(device))
        torch.testing.assert_close([r.cpu() for r in results], [*function(x, w)])
    assert counter.frame_count == 2  # of one length, then of any


def test_graph_of_another_device(device):
    """It is neither the current one nor that of an earlier call."""
    count = torch.opencl.device_count()
    other = torch.device("opencl", (device.index + 1) % count)

    def function(x):
        return (x * 2 + torch.arange(33, device=x.device)).softmax(-1), x.sum(0)

    compiled = torch.compile(function, fullgraph=True)
    x = torch.randn(9, 33)
    with torch.opencl.device(other):
        for where in (device, other, device):
            results = compiled(x.to(where))
            assert {result.device for result in results} == {where}
            torch.testing.assert_close([r.cpu() for r in results], [*function(x)])


def test_views_with_offsets(device):
    """One graph for views that begin anywhere."""
    base = torch.randn(200)
    on_device = base.to(device)
    compiled = torch.compile(lambda x: (x * 2 + 1, x.sum(1)), fullgraph=True)
    for offset in (0, 1, 7, 16, 50):
        x = base.as_strided((4, 17), (33, 1), offset)
        results = compiled(on_device.as_strided((4, 17), (33, 1), offset))
        torch.testing.assert_close(
            [r.cpu() for r in results], [x * 2 + 1, x.sum(1)], rtol=1e-5, atol=1e-5
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_zero_and_one(device, dynamic):
    def function(x):
        return F.gelu(x) + 1, x.sum(0), x.softmax(1), x.var(1, correction=0)

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    for shape in ((0, 5), (3, 0), (1, 1), (1, 40), (40, 1), (5, 7)):
        x = torch.randn(shape)
        results = compiled(x.to(device))
        torch.testing.assert_close(
            [r.cpu() for r in results], [*function(x)], equal_nan=True
        )


_OF_SIZES = {
    "conv_transpose": lambda x: F.conv_transpose1d(
        x[None], x[:, :7, None], stride=2, padding=2, output_padding=1
    ),
    "embedding": lambda x: F.embedding(torch.arange(len(x), device=x.device) % 3, x),
    "roll": lambda x: x.roll(len(x) // 2, 0) + x.flip(1),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None, None], x[None, None, :7] * 2, x[None, None, :7], is_causal=True
    ),
    "gather": lambda x: x.gather(
        1, torch.arange(len(x), device=x.device)[:, None] % x.shape[1]
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", _OF_SIZES)
def test_dynamic_sizes(device, name):
    compiled = torch.compile(_OF_SIZES[name], fullgraph=True, dynamic=True)
    for shape in ((12, 17), (31, 40), (9, 9)):
        x = torch.randn(shape)
        results = []
        for call, given in ((compiled, x.to(device)), (_OF_SIZES[name], x.clone())):
            y = call(given.requires_grad_())
            (gradient,) = torch.autograd.grad(y.square().sum(), given)
            results.append([y.detach().cpu(), gradient.cpu()])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "alias",
    [
        lambda x: x,
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x.flatten()[1:49].view(6, 8),
    ],
    ids=["same", "flat", "transposed", "shifted"],
)
def test_aliases(device, alias):
    """Inputs that share memory, of which one is written."""

    def function(x, y):
        x.add_(1)
        return x.sum(1), y * 2

    x = torch.randn(7, 7)
    ours, theirs = x.to(device), x.clone()
    results = torch.compile(function)(ours, alias(ours))
    torch.testing.assert_close(
        [r.cpu() for r in results], [*function(theirs, alias(theirs))]
    )
    torch.testing.assert_close(ours.cpu(), theirs)


def test_layouts_of_an_elementwise_kernel_in_a_graph(device):
    kernel = torch_opencl.ElementwiseKernel("T x, T y, T z", "T w", "w = x * y + z")
    number = torch.tensor(2.0)
    x, y = torch.randn(3, 1, device=device), torch.randn(1, 4, device=device)
    z, image = torch.randn(4, 3, device=device).t(), torch.randn(2, 4, 3, 5)
    image = image.to(device, memory_format=torch.channels_last)
    for inputs in (
        (x, y, z),
        (z, x, y),
        (x, y, number),
        (z, number, z),
        (x[:, :0], z[:, :0], z[:, :0]),
        (image, number, image),
        (image, x, number),
        (image[:, ::2], image[:, ::2], x),
    ):
        wanted = kernel(*inputs)
        found = torch.compile(lambda *t: kernel(*t) * 1, dynamic=False)(*inputs)
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted)


def test_elementwise_kernel_in_a_graph(device):
    kernel = torch_opencl.ElementwiseKernel(
        "T x, float32 a, S y", "T z, S w", "z = x * a + y; w = y - x", "mixed"
    )
    square = torch_opencl.ElementwiseKernel("T x", "T z", "z = x * x")

    def function(x, y, room):
        z, w = kernel(x.sin(), 0.5, y.t())
        square(w + 1, room)
        return z * 2, w, square(room.relu()), kernel(x, x, y.t())[0]

    x, y = torch.randn(5, 7, device=device), torch.randn(7, 5, device=device)
    rooms = torch.zeros(2, 5, 7, device=device)
    wanted = function(x, y, rooms[0])
    results = torch.compile(function, fullgraph=True)(x, y, rooms[1])
    torch.testing.assert_close(results, wanted)
    for result, eager in zip(results, wanted, strict=True):
        assert result.stride() == eager.stride()
    torch.testing.assert_close(rooms[1], rooms[0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_lanes_do_not_matter(device, name):
    """PoCL's own sine is wrong of small numbers in a vector that has a huge one."""
    function = getattr(torch, name)
    x = torch.randn(9, 64) * torch.logspace(-4, 1, 64)
    x[:, ::5], x[::2, 3] = 1e10, -3e38
    result = torch.compile(lambda x: function(x * 1) + 0)(x.to(device)).cpu()
    expected = function(x.double())
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-6)


def _break_programs(monkeypatch) -> None:
    """No driver compiles what is generated."""
    from torch_opencl.inductor import scheduling

    write = scheduling.kernel_source
    monkeypatch.setattr(
        scheduling,
        "kernel_source",
        lambda *args: write(*args).replace(
            "kernel __attri", "no_type f(); kernel __attri"
        ),
    )


def test_failing_build(device, monkeypatch):
    """The error names the ops; with suppress_errors they run eagerly."""
    _break_programs(monkeypatch)
    x = torch.randn(37, device=device)

    def chain(x):
        return (x + 1).sin() * 2

    with pytest.raises(RuntimeError, match="opencl_fused_add_mul_sin_0"):
        torch.compile(chain)(x)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=True):
        assert torch.equal(torch.compile(chain)(x), chain(x))


def test_no_cpp_package(device, tmp_path):
    """The error says what takes the place of an AOTInductor package, and that works."""
    model = torch.nn.Linear(5, 3).to(device)
    x = torch.randn(4, 5, device=device)
    program = torch.export.export(model, (x,))
    with pytest.raises(Exception, match="no AOTInductor package for opencl"):
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "package.pt2")
        )
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    torch.testing.assert_close(torch.compile(loaded)(x), model(x))


@pytest.mark.parametrize("size", [7, 100])
def test_functions_of_a_number_beside_vectors(device, size):
    """What the loop over vectors does not change is a number, in the same kernel."""

    def function(x):
        whole = x.logsumexp(0)
        some = torch.cos(whole) + torch.tan(whole / 4) + torch.special.i0(whole / 10)
        gammas = torch.lgamma(whole.abs() + 1) + torch.polygamma(1, whole.abs() + 1)
        return x + some * gammas, torch.special.gammainc(whole.abs(), whole.abs())

    x = torch.randn(size, device=device)
    wanted = function(x.cpu().double())
    found = [result.cpu().double() for result in torch.compile(function)(x)]
    torch.testing.assert_close(found, [*wanted], rtol=1e-5, atol=1e-5)
