"""Convolution without shared weights, against patches and a product on the CPU."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLOATS, LAYOUTS, check
from torch_opencl.nn import LocallyConnected2d
from torch_opencl.nn.functional import local_conv2d, local_conv2d_size

# (images, channels, out channels), (rows, columns), kernel, stride, padding, dilation
CASES = [
    ((2, 3, 4), (7, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((7, 5, 6), (6, 35), (3, 3), (1, 1), (0, 0), (1, 1)),
    ((9, 4, 3), (5, 40), (3, 5), (1, 2), (1, 2), (2, 1)),
    ((2, 1, 1), (11, 37), (5, 5), (3, 3), (2, 2), (2, 2)),
    ((1, 9, 13), (5, 5), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((3, 2, 2), (5, 4), (2, 2), (5, 6), (0, 0), (1, 1)),
    ((8, 8, 1), (3, 33), (3, 3), (1, 1), (5, 5), (1, 1)),
    ((1, 1, 3), (4, 70), (2, 3), (1, 2), (0, 1), (1, 3)),
]


def operands(batch, size, kernel, *steps):
    images, channels, out_channels = batch
    out = local_conv2d_size(size, kernel, *steps)
    return [
        torch.randn(images, channels, *size),
        torch.randn(out_channels, channels, *kernel, *out),
        torch.randn(out_channels, *out),
    ]


@pytest.mark.parametrize("case", CASES)
def test_sizes(device, case):
    steps = case[3:]
    x, weight, bias = operands(*case)
    check(lambda x, w, b: local_conv2d(x, w, b, *steps), [x, weight, bias], device)
    check(lambda x, w: local_conv2d(x, w, None, *steps), [x, weight], device)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtypes(device, dtype):
    for case in (CASES[0], CASES[2]):
        inputs = operands(*case)
        check(lambda *t: local_conv2d(*t, *case[3:]), inputs, device, dtype)  # noqa: B023


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    case = CASES[0]
    x, weight, bias = operands(*case)
    weight = layout(weight.flatten(0, 2)).view(weight.shape)
    check(lambda *t: local_conv2d(*t, *case[3:]), [layout(x), weight, bias], device)


def test_biases_broadcast(device):
    case = CASES[0]
    x, weight, bias = operands(*case)
    for chosen in (bias[:, :1, :1], bias[:1], bias[0, 0], bias[0, 0, :1]):
        check(lambda *t: local_conv2d(*t, *case[3:]), [x, weight, chosen], device)


def test_expanded_gradient(device):
    x, weight, _ = operands(*CASES[0])
    check(
        lambda x, w: local_conv2d(x, w, None, 1, 1).sum((0, 1, 2, 3)),
        [x, weight],
        device,
    )


@pytest.mark.parametrize("batch", [(0, 3, 4), (2, 3, 0)])
def test_empty(device, batch):
    inputs = operands(batch, *CASES[0][1:])
    check(lambda *t: local_conv2d(*t, *CASES[0][3:]), inputs, device)


def test_no_channels(device):
    """Unfold, and so the CPU, refuses an input without channels."""
    x, weight, bias = (t.to(device) for t in operands((2, 0, 4), *CASES[0][1:]))
    result = local_conv2d(x, weight, bias, *CASES[0][3:])
    assert torch.equal(result.cpu(), bias.cpu().expand(2, -1, -1, -1))


def test_infinity_stays_where_it_is(device):
    """What masked lanes load must not reach other lanes as a NaN."""
    x, weight, _ = operands((7, 3, 4), (6, 19), (3, 3), (1, 1), (1, 1), (1, 1))
    x[2, 1, 3, 0] = torch.inf
    x[2, 1, 2, 18] = -torch.inf
    weight[:, :, :, :, 2, 0] = torch.inf
    check(lambda x, w: local_conv2d(x, w, None, 1, 1), [x, weight], device)


def test_shared_weights_are_conv2d(device):
    x, weight = torch.randn(2, 3, 8, 9), torch.randn(4, 3, 3, 3)
    expanded = weight.to(device)[..., None, None].expand(-1, -1, -1, -1, 8, 9)
    result = local_conv2d(x.to(device), expanded, padding=1)
    expected = torch.nn.functional.conv2d(x, weight, padding=1)
    torch.testing.assert_close(result.cpu(), expected)


def test_keeps_channels_last(device):
    x = torch.randn(2, 5, 6, 7, device=device).to(memory_format=torch.channels_last)
    layer = LocallyConnected2d(5, 4, (6, 7), 3, padding=1, device=device)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)


def test_gradients_of_gradients(device):
    if not torch.opencl.get_device_properties(device).has_fp64:
        pytest.skip("gradcheck needs float64")
    inputs = operands((2, 2, 2), (4, 5), (2, 3), (1, 2), (1, 1), (2, 1))
    inputs = [t.double().to(device).requires_grad_() for t in inputs]

    def function(x, weight, bias):
        return local_conv2d(x, weight, bias, (1, 2), (1, 1), (2, 1))

    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


STEPS = ((1, 2), (1, 1), (2, 1))


def small_operands(device):
    """Of float32, for devices without float64."""
    return [t.to(device) for t in operands((2, 2, 3), (4, 5), (2, 3), *STEPS)]


@pytest.mark.parametrize("where", ["cpu", "opencl"])
def test_forward_derivatives(device, where):
    """Of the op and of its gradients, which are linear in each operand."""
    x, w, b = small_operands(device if where == "opencl" else "cpu")
    forward = lambda x, w, b: local_conv2d(x, w, b, *STEPS)  # noqa: E731
    tangents = [torch.randn_like(t) for t in (x, w, b)]
    dx, dw, db = tangents
    none = torch.zeros_like(b)
    y, found = torch.func.jvp(forward, (x, w, b), (dx, dw, db))
    expected = forward(dx, w, none) + forward(x, dw, none) + db
    torch.testing.assert_close(found, expected)
    assert torch.equal(y, forward(x, w, b))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, dx)
        found = torch.autograd.forward_ad.unpack_dual(forward(dual, w, b)).tangent
        torch.testing.assert_close(found, forward(dx, w, none))
    g = torch.randn_like(y)

    def gradients(x, w):
        return torch.func.vjp(lambda x, w: forward(x, w, b), x, w)[1](g)

    _, (of_x, of_w) = torch.func.jvp(gradients, (x, w), (dx, dw))
    torch.testing.assert_close(of_x, gradients(x, dw)[0])
    torch.testing.assert_close(of_w, gradients(dx, w)[1])


def test_transforms(device):
    """Of functorch, against torch.autograd."""
    x, w, b = small_operands(device)
    forward = lambda x: local_conv2d(x, w, b, *STEPS).square().sum()  # noqa: E731
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(forward(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(forward)(x), expected)
    rows = torch.func.vmap(torch.func.grad(lambda x: forward(x[None])))(x)
    torch.testing.assert_close(rows, expected)
    products = torch.func.jacfwd(forward)(x)
    torch.testing.assert_close(products, expected)
    hessian = torch.func.hessian(forward)(x[:1])
    expected = torch.autograd.functional.hessian(forward, x[:1])
    torch.testing.assert_close(hessian, expected)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_shapes_without_data_have_the_kernels_strides(device, format):
    for where in ("cpu", device):
        x, w, b = small_operands(where)
        x = x.contiguous(memory_format=format).requires_grad_()
        arguments = (x, w.requires_grad_(), b, *map(list, STEPS))
        tests = ("test_schema", "test_faketensor")
        op = torch.ops.torch_opencl.local_conv2d
        torch.library.opcheck(op.default, arguments, test_utils=tests)
        y = op(*arguments)
        g = torch.randn_like(y)
        for name, other, size in (
            ("input", w, x.shape),
            ("weight", x, w.shape),
        ):
            op = getattr(torch.ops.torch_opencl, f"local_conv2d_{name}_gradient")
            arguments = (g, other, list(size), *map(list, STEPS))
            torch.library.opcheck(op.default, arguments, test_utils=tests)


def test_compiled_of_channels_last(device):
    x, w, b = small_operands(device)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()

    def function(x):
        return local_conv2d(x, w, b, *STEPS) * 2

    compiled = torch.compile(function, fullgraph=True)
    y, expected = compiled(x), function(x)
    torch.testing.assert_close(y, expected)
    assert y.stride() == expected.stride()
    found, wanted = (torch.autograd.grad(each.sum(), x)[0] for each in (y, expected))
    torch.testing.assert_close(found, wanted)


def test_module(device):
    layer = LocallyConnected2d(3, 4, (9, 8), 3, stride=2, padding=1)
    assert layer.weight.shape == (4, 3, 3, 3, 5, 4) and layer.bias.shape == (4, 5, 4)
    assert "input_size=[9, 8]" in repr(layer)
    parameters = dict(layer.named_parameters())

    def forward(x, weight, bias):
        values = {"weight": weight, "bias": bias}
        return torch.func.functional_call(layer, values, (x,))

    for x in (torch.randn(2, 3, 9, 8), torch.randn(3, 9, 8)):
        check(forward, [x, *parameters.values()], device)
    with torch.autocast("opencl", torch.float16):
        out = layer.to(device)(torch.randn(2, 3, 9, 8, device=device))
    assert out.dtype == torch.float16
    with torch.device("meta"):
        assert LocallyConnected2d(1, 2, 5, 2)(torch.empty(7, 1, 5, 5)).shape == (
            7,
            2,
            4,
            4,
        )


@pytest.mark.parametrize(
    "change, text",
    [
        ({"input": torch.zeros(2, 4, 7, 9)}, "to have 3 channels, but got 4"),
        ({"input": torch.zeros(2, 3, 9, 7)}, "an output of .* positions"),
        ({"input": torch.zeros(2, 3)}, "3D .* or 4D"),
        ({"input": torch.zeros(2, 3, 1, 1)}, "Kernel size can't be greater"),
        ({"weight": torch.zeros(4, 3, 3, 3)}, "a weight of 6 dimensions"),
        ({"weight": torch.zeros(4, 3, 3, 3, 5, 7, dtype=torch.half)}, "same"),
        ({"bias": torch.zeros(3)}, "broadcastable to"),
        ({"stride": 0}, "non-positive stride"),
        ({"padding": -1}, "negative padding"),
        ({"dilation": 0}, "dilation should be greater"),
        ({"stride": (1, 1, 1)}, "a single integer value or a list of 2"),
    ],
)
def test_errors(device, change, text):
    arguments = {
        "input": torch.zeros(2, 3, 7, 9),
        "weight": torch.zeros(4, 3, 3, 3, 5, 7),
        "bias": torch.zeros(4, 5, 7),
    } | change
    for name, value in arguments.items():
        if torch.is_tensor(value):
            arguments[name] = value.to(device)
    with pytest.raises(RuntimeError, match=text):
        local_conv2d(**arguments)


def test_operands_of_two_devices(device):
    with pytest.raises(RuntimeError, match="same device"):
        local_conv2d(
            torch.zeros(1, 1, 3, 3, device=device), torch.zeros(1, 1, 3, 3, 1, 1)
        )


def test_the_op_itself_checks_its_operands(device):
    x, weight, _ = (t.to(device) for t in operands(*CASES[0]))
    ops = torch.ops.torch_opencl
    ones = ([1, 1], [1, 1], [1, 1])
    with pytest.raises(RuntimeError, match="positions"):
        ops.local_conv2d(x, weight, None, [1, 1], [0, 0], [1, 1])
    with pytest.raises(RuntimeError, match="gradient of size"):
        ops.local_conv2d_input_gradient(x, weight, x.shape, *ones)
    with pytest.raises(RuntimeError, match="gradient of size"):
        ops.local_conv2d_weight_gradient(x, x, weight.shape, *ones)
    with pytest.raises(NotImplementedError, match="not implemented for"):
        ops.local_conv2d(x.int(), weight.int(), None, *ones)
    for steps in ([], [1], [1, 1, 1]):
        for i, name in enumerate(("stride", "padding", "dilation")):
            options = [*ones[:i], steps, *ones[i + 1 :]]
            with pytest.raises(RuntimeError, match=f"expected {name} to be .* list of"):
                ops.local_conv2d(x, weight, None, *options)
