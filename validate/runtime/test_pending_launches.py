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

def assert_launches(function, expected):
    # Of the second call, with those that are pending.
    def calls():
        result = function()
        torch.opencl.synchronize()
        return result
    calls()
    assert launches(calls) == expected, (function, launches(calls))
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


def test_calls_of_lists_apart_are_one_launch(device):
    _run(
        """
x, y = ([torch.ones(5000, device=DEVICE) for _ in range(3)] for _ in range(2))

def calls():
    torch._foreach_mul_(x, x)
    torch._foreach_add_(x, y)

assert_launches(calls, 1)
""",
        device,
    )


def test_a_profiler_leaves_pending_launches(device):
    _run(
        """
values = [torch.ones(n, device=DEVICE, requires_grad=True) for n in (3, 500, 1)]
for value in values:
    value.grad = torch.ones_like(value)
optimizer = torch.optim.Adam(values)
optimizer.step()
torch.opencl.synchronize()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
    assert launches(optimizer.step) == 1
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


# Words of the kernels of normalisations, of products and of add, broken.
_BROKEN = {"TORCH_OPENCL_BUILD_OPTIONS": "-Dmomentum=+ -Dalpha=+ -Dlower=+"}
_MESSAGES = """
F = torch.nn.functional
x, matrix = torch.randn(2, 5, 3, 3).to(DEVICE), torch.randn(5, 5).to(DEVICE)
rest = [torch.rand(5).to(DEVICE) for _ in range(4)]
counter = torch.tensor(5).to(DEVICE)

def messages(function):
    # of the call, and of the wait that follows
    found = []
    for step in (function, lambda: torch.opencl.synchronize(DEVICE)):
        try:
            step()
            found.append("")
        except RuntimeError as error:
            found.append(str(error))
    return found

def assert_fails_at_once(function, kernel):
    call, wait = messages(function)
    assert call.startswith(f"Building the OpenCL kernel '{kernel}"), call
    assert not wait, wait
    assert matrix.cpu().shape == (5, 5)
"""


def test_a_failure_of_a_pending_launch_is_its_ops(device):
    """What is complete when it is called fails there, the rest at the next wait."""
    _run(
        _MESSAGES
        + """
for op, function in (
    ("native_batch_norm", lambda: F.batch_norm(x, *rest)),
    ("native_batch_norm", lambda: F.relu(F.batch_norm(x, *rest, training=True))),
    ("matrix product", lambda: F.gelu(matrix.mm(matrix))),
    ("convolution", lambda: F.conv2d(x, matrix.view(5, 5, 1, 1)).mul_(2)),
):
    call, wait = messages(function)
    assert not call, (op, call)
    assert wait.startswith(f"{op}: Building the OpenCL kernel"), (op, wait)
    assert messages(lambda: matrix.clone()) == ["", ""], op
assert_fails_at_once(lambda: counter.add_(1), "add.out")
assert counter.item() == 5
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="gpu",
        **_BROKEN,
    )
    _run(
        _MESSAGES
        + """
for training in (False, True):
    assert_fails_at_once(
        lambda: F.batch_norm(x, *rest, training=training).relu_(), "batch_norm"
    )
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="cpu",
        **_BROKEN,
    )


def test_pointwise_ops_join_products_and_convolutions(device):
    _run(
        """
F = torch.nn.functional
x = torch.randn(2, 40, 9, 16, device=DEVICE)
weight = torch.randn(40, 40, 1, 1, device=DEVICE)
rest = [torch.rand(40, device=DEVICE) for _ in range(4)]
matrix = torch.randn(40, 70, device=DEVICE)
parameter = matrix.clone().requires_grad_()
kernel_parameter = weight.clone().requires_grad_()
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
def training():
    return F.gelu(F.linear(matrix, parameter))
def clipped():
    return F.relu6(F.conv2d(x, kernel_parameter), inplace=True)
def overlapping():
    y = x * 1
    y += F.conv2d(y, weight)
    return y

for function, expected in (
    (convolution, 1),
    (block, 1),
    (holding, 1),
    (training, 1),
    (clipped, 1),
    (linear, 1),
    (three_dimensions, 1),
    (normalized, 1),
    (overlapping, 3),
):
    assert_launches(function, expected)
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="gpu",
    )


def test_a_batch_normalisation_counts_itself(device):
    _run(
        """
norm = torch.nn.BatchNorm2d(40).to(DEVICE)
x = torch.randn(2, 40, 9, 16, device=DEVICE)
def step():
    y = norm(x)
    torch.opencl.synchronize()
    return y
step()
assert launches(step) == 1
assert norm.num_batches_tracked.item() == 2
counter = norm.num_batches_tracked
y = torch.zeros(3, device=DEVICE)

def between(action):
    before = counter.item()
    counter.add_(1)
    result = action()
    torch.nn.functional.batch_norm(x, None, None, training=True)
    assert counter.item() == before + 1
    return result, before

copy, before = between(lambda: counter.clone())
assert copy.item() == before + 1
copy, before = between(lambda: counter + 5)
assert copy.item() == before + 6
between(lambda: y.add_(1))
assert y.tolist() == [1.0, 1.0, 1.0]
with torch.Stream(DEVICE) as stream:  # the addition waits in the other queue
    copy, before = between(lambda: x.sum())

# many, other amounts, what wraps around
for amount in (3, -7, 2**62, 2**62, 2**62, 2**62):
    before = counter.item()
    counter.add_(amount)
    torch.nn.functional.batch_norm(x, None, None, training=True)
    expected = torch.tensor(before).add_(amount).item()
    assert counter.item() == expected, (counter.item(), expected)
counter.add_(2, alpha=-4).add_(1).add_(1)
torch.nn.functional.batch_norm(x, None, None, training=True)
assert counter.item() == expected - 6

# other data, freed and in the storage of the statistics
counter.add_(1)
old, counter.data = counter.data, torch.zeros((), dtype=torch.long, device=DEVICE)
torch.nn.functional.batch_norm(x, None, None, training=True)
assert (old.item(), counter.item()) == (expected - 5, 0)
torch.ones((), dtype=torch.long, device=DEVICE).add_(1)
torch.nn.functional.batch_norm(x, None, None, training=True)
room = torch.zeros(48, device=DEVICE)
mean, count = room[:40], room[46:].view(torch.long)[0]
count.add_(1)
torch.nn.functional.batch_norm(x, mean, room.new_ones(40), training=True)
assert count.item() == 1

# an evaluation, a failure
counter.add_(1)
torch.nn.functional.batch_norm(x, mean, room.new_ones(40))
assert counter.item() == 1
counter.add_(1)
try:
    torch.nn.functional.batch_norm(x, mean, room.new_ones(40).double(), training=True)
except RuntimeError:
    pass
assert counter.item() == 2
torch.nn.functional.batch_norm(x.double(), None, None, training=True)
counter.add_(1)
assert counter.tolist() == 3
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="gpu",
    )


def test_what_a_training_step_joins(device):
    _run(
        """
F = torch.nn.functional
x = torch.randn(40, 72, device=DEVICE)
weight = torch.randn(72, 72, device=DEVICE, requires_grad=True)
scale = torch.rand(72, device=DEVICE)
grad = torch.randn(40, 72, device=DEVICE)
saved = torch.native_layer_norm(x, (72,), scale, scale, 1e-5)

def dropout(): return x + F.dropout(F.linear(x, weight), 0.5)
def normalized():
    parts = torch.ops.aten.native_layer_norm_backward(
        grad, x, (72,), saved[1], saved[2], scale, scale, [True, True, True]
    )
    total = parts[0] + grad
    return total, total * 2
def linear_backward():
    with torch.no_grad():
        y = x.mm(weight)
        return y, x.t().mm(grad), grad.sum(0), torch.ops.aten.gelu_backward(y, grad)
def stacked(): return torch.stack([x, grad, x, grad, x, grad])

for function, expected in (
    (dropout, 2),
    (normalized, 3),
    (linear_backward, 3),
    (stacked, 2),
):
    assert_launches(function, expected)

# memory that only the pending launch holds is given back
y = x.mm(weight)
del y
assert x.t().mm(grad).shape == (72, 72)
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="gpu",
    )


def test_lists_in_many_buffers(device):
    """More than a launch can name are several launches."""
    _run(
        """
elements = 11 << 18  # 11 MiB: a buffer of its own
x = [torch.full((elements + i,), float(i), device=DEVICE) for i in range(28)]
buffers = {
    s["address"] for s in torch.opencl.memory_snapshot() if s["total_size"] >= 4 * elements
}
def calls():
    torch._foreach_mul_(x, 2.0)
    torch._foreach_add_(x, [float(i) for i in range(28)])
    torch.opencl.synchronize()
calls()
for i, tensor in enumerate(x):
    assert (tensor == 3 * i).all(), i
count = launches(calls)
assert len(buffers) < 25 or count == 2, (len(buffers), count)
assert count <= 2, count
""",
        device,
        TORCH_OPENCL_DEVICE_CLASS="gpu",
    )
