"""What waits in a queue for more of its kind, counted in launches.

In processes of their own: queues that were shared with pyopencl defer nothing."""

from __future__ import annotations

import pytest
from script import run_script

_COUNT = """
def launches(function):
    before = torch_opencl._C._launch_count(torch.device(DEVICE).index)
    function()
    return torch_opencl._C._launch_count(torch.device(DEVICE).index) - before
"""


def _run(code: str, device, **environment: str) -> None:
    run_script(_COUNT + code, device, **environment)


def test_a_step_of_an_optimizer_is_one_launch(device):
    _run(
        """
for kind, options in (
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (torch.optim.AdamW, {}),
    (torch.optim.RMSprop, {"momentum": 0.9}),
    (torch.optim.Adagrad, {}),
):
    values = [torch.ones(n, device=DEVICE, requires_grad=True) for n in (3, 500, 1)]
    for value in values:
        value.grad = torch.ones_like(value)
    optimizer = kind(values, **options)
    optimizer.step()
    torch.opencl.synchronize()
    assert launches(optimizer.step) == 1, kind
""",
        device,
    )


def test_low_precision_is_rounded_after_every_call(device):
    _run(
        """
x = [torch.ones(100, device=DEVICE, dtype=torch.bfloat16)]
def calls():
    torch._foreach_add_(x, 1.0)
    torch._foreach_mul_(x, 2.0)
assert launches(calls) == 2
""",
        device,
    )


def test_synchronous_launches_do_not_wait(device):
    _run(
        """
x = [torch.ones(100, device=DEVICE)]
def calls():
    torch._foreach_add_(x, 1.0)
    torch._foreach_mul_(x, 2.0)
assert launches(calls) == 2
""",
        device,
        TORCH_OPENCL_SYNC="1",
    )


def test_a_queue_that_others_know_defers_nothing(device):
    pytest.importorskip("pyopencl")
    _run(
        """
x = torch.ones(100, device=DEVICE)
def calls():
    torch._foreach_add_([x], 1.0)
    torch._foreach_mul_([x], 3.0)
assert launches(calls) == 1
calls()
array = torch_opencl.to_pyopencl(x)
assert launches(calls) == 2
calls()
# on the same queue, which pyopencl enqueues to by itself
assert (array.get() == 201).all(), array.get()[0]
""",
        device,
    )


def test_a_clamp_joins_a_batch_normalisation(device):
    _run(
        """
# in channels_last the deviations of running variances come first
for layout, expected in ((torch.contiguous_format, 1), (torch.channels_last, 2)):
    x = torch.randn(2, 32, 9, 16).to(DEVICE, memory_format=layout)
    rest = [torch.rand(32, device=DEVICE) for _ in range(4)]
    def calls():
        y = torch.nn.functional.batch_norm(x, *rest).relu_()
        torch.opencl.synchronize()
        return y
    calls()
    assert launches(calls) == expected, layout
    other = torch.rand(8, device=DEVICE)
    def with_another():
        torch.nn.functional.batch_norm(x, *rest)
        other.relu_()
        torch.opencl.synchronize()
    assert launches(with_another) == expected + 1, layout
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="cpu",
    )


def test_what_waits_stays_on_its_stream(device):
    _run(
        """
x = torch.randn(2, 32, 9, 16, device=DEVICE)
rest = [torch.rand(32, device=DEVICE) for _ in range(4)]
torch.nn.functional.batch_norm(x, *rest)
torch.opencl.synchronize()
stream = torch.Stream(DEVICE)
index = torch.device(DEVICE).index
def counts():
    own = torch_opencl._C._launch_count(index)
    with stream:
        return own, torch_opencl._C._launch_count(index)
own, others = counts()
with stream:
    y = torch.nn.functional.batch_norm(x, *rest)
torch.accelerator.current_stream(DEVICE).wait_stream(stream)
assert counts() == (own, others + 1), counts()
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="cpu",
    )


def test_an_error_belongs_to_its_op(device):
    """It is raised by the next wait, and what was called meanwhile is done."""
    _run(
        """
x = [torch.ones(100, device=DEVICE)]
y = torch.arange(3.0, device=DEVICE)
y += 1
y.cpu()
torch._foreach_add_(x, 1.0)
y += 1  # enqueues the additions, whose program does not build
try:
    torch.opencl.synchronize(DEVICE)
except RuntimeError as error:
    assert str(error).startswith("aten::_foreach_add_: "), error
    assert "list0" in str(error), error
else:
    raise AssertionError("no error")
torch.opencl.synchronize(DEVICE)  # raised once
assert y.tolist() == [2.0, 3.0, 4.0], y.tolist()
torch._foreach_add_(x, 1.0)
try:
    y.tolist()
except RuntimeError as error:
    assert "aten::_foreach_add_" in str(error), error
else:
    raise AssertionError("no error")
assert y.tolist() == [2.0, 3.0, 4.0]
""",
        device,
        TORCH_OPENCL_BUILD_OPTIONS="-Dlist0=+",
    )


def test_pointwise_ops_join_products_and_convolutions(device):
    _run(
        """
F = torch.nn.functional
x = torch.randn(2, 40, 9, 16, device=DEVICE)
weight = torch.randn(40, 40, 1, 1, device=DEVICE)
rest = [torch.rand(40, device=DEVICE) for _ in range(4)]
matrix = torch.randn(40, 70, device=DEVICE)
held = []

def convolution(): return F.conv2d(x, weight)
def block(): return F.relu(F.batch_norm(convolution(), *rest) + x)
def holding():
    y = convolution()
    held.append(y)
    return F.relu(y)
def linear(): return F.gelu(F.linear(matrix, matrix))
def three_dimensions():
    return F.gelu(F.linear(matrix.view(4, 10, 70), matrix)) * 2
def normalized(): return F.relu(F.batch_norm(x, *rest) + x)
def overlapping():
    y = x * 1
    y += F.conv2d(y, weight)
    return y

for function, expected in (
    (convolution, 1),
    (block, 1),
    (holding, 2),
    (linear, 1),
    (three_dimensions, 1),
    (normalized, 1),
    (overlapping, 3),
):
    def calls():
        result = function()
        torch.opencl.synchronize()
        return result
    calls()
    assert launches(calls) == expected, (function, launches(calls))
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="gpu",
    )
