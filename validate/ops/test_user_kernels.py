"""Kernels of users: elementwise, reductions, and OpenCL C."""

from __future__ import annotations

import pytest
import torch
import torch_opencl
from against_cpu import LAYOUTS, check, move
from tolerance import assert_matches, assert_same_strides
from torch_opencl import ElementwiseKernel, RawKernel, ReductionKernel

SQUARED = ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared")
SUMS = ReductionKernel(
    "T x",
    "T sum, T squares",
    ("x", "x * x"),
    ("a + b", "a + b"),
    ("sum = a", "squares = a"),
    ("0", "0"),
    "sums",
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 7), (1, 1, 1, 1), (0, 3, 1, 2), (2, 64, 9, 17)]
)
def test_layouts(device, layout, shape):
    x, y = layout(torch.randn(shape)), torch.randn(shape[1], 1, 1)
    result = SQUARED(move(x, device), y.to(device))
    expected = (x - y) ** 2
    torch.testing.assert_close(result.cpu(), expected)
    assert_same_strides(result, expected)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64]
)
def test_dtypes(device, dtype):
    x, y = (torch.randint(-9, 9, (3, 40)).to(dtype) for _ in range(2))
    result = SQUARED(x.to(device), y.to(device))
    assert torch.equal(result.cpu(), (x - y) ** 2)


def test_several_outputs_of_several_dtypes(device):
    kernel = ElementwiseKernel(
        "T x, int32 shift, bool flip",
        "T sine, int64 index, bool positive",
        """T value = flip ? -x : x;
           sine = sin(value);
           index = (long)(value * 4) << shift;
           positive = value > 0.5""",
    )
    x, shift = torch.randn(5, 33), torch.arange(5, dtype=torch.int32)[:, None]
    flip = torch.rand(5, 33) > 0.5
    found = kernel(x.to(device), shift.to(device), flip.to(device))
    value = torch.where(flip, -x, x)
    torch.testing.assert_close(found[0].cpu(), value.sin())
    assert torch.equal(found[1].cpu(), (value * 4).long() << shift)
    assert torch.equal(found[2].cpu(), value > 0.5)


def test_numbers_are_passed_by_value(device):
    axpy = ElementwiseKernel("T a, T x, T y", "T z", "z = a * x + y", "axpy")
    x = torch.arange(5.0)
    for a in (3, 0.5, torch.tensor(2.0)):
        result = axpy(a, x.to(device), x.to(device)[:, None])
        assert torch.equal(result.cpu(), a * x + x[:, None])


def test_given_outputs_are_written_in_their_layout(device):
    x, y = torch.randn(4, 6), torch.randn(6)
    whole = torch.zeros(6, 9, device=device)
    result = SQUARED(x.to(device), y.to(device), whole[:, 2:6].T)
    expected = torch.zeros(6, 9)
    expected[:, 2:6] = ((x - y) ** 2).T
    assert result.data_ptr() == whole[:, 2:].data_ptr()
    torch.testing.assert_close(whole.cpu(), expected)
    total = x.to(device)
    ElementwiseKernel("T x, T y", "T z", "z = x + y")(total, y.to(device), total)
    torch.testing.assert_close(total.cpu(), x + y)


def test_names_of_parameters_are_free(device):
    """Those of the engine do not meet those of the user."""
    kernel = ElementwiseKernel(
        "T i, T count, T p0, T chunk, T sizes",
        "T linear",
        "linear = i + count + p0 + chunk * sizes",
    )
    values = [torch.full((2, 3), float(n), device=device).T for n in range(5)]
    assert torch.equal(kernel(*values).cpu(), torch.full((3, 2), 15.0))


def test_preamble_and_literals(device):
    """A literal such as 0.5 is a float unless an operand is float64."""
    kernel = ElementwiseKernel(
        "T x",
        "T y",
        "y = half_of(x) + 0.25",
        preamble="float half_of(float x) { return 0.5 * x; }",
    )
    assert kernel(torch.full((3,), 4.0, device=device)).cpu().tolist() == [2.25] * 3


def check_sums(x, device, axis, keepdims=False, dtype=torch.float32):
    x = x.to(dtype)
    found = SUMS(move(x, device), axis=axis, keepdims=keepdims)
    for result, power in zip(found, (1, 2), strict=True):
        reference = (x.double() ** power).sum(axis, keepdim=keepdims)
        baseline = (x.float() ** power).sum(axis, keepdim=keepdims).to(dtype)
        assert_matches(result, reference, baseline)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sums_of_batch_normalisation(device, layout):
    """x and x * x over everything but the channels, in one kernel."""
    x = layout(torch.rand(3, 20, 9, 11))
    check_sums(x, device, (0, 2, 3))
    check_sums(x, device, (0, 2, 3), keepdims=True)
    check_sums(x, device, 1)


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (130000,), (3, 1), (1, 3), (65, 129), (40000, 3)]
)
def test_reduction_sizes(device, shape):
    x = torch.rand(shape)
    for axis in (None, 0, -1):
        check_sums(x, device, axis)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_reduction_dtypes(device, dtype):
    check_sums(torch.rand(5, 300), device, 1, dtype=dtype)


def test_reduction_of_nothing_is_the_identity(device):
    found = SUMS(torch.zeros(3, 0, device=device), axis=1)
    assert [each.cpu().tolist() for each in found] == [[0] * 3] * 2
    assert SUMS(torch.zeros(0, 3, device=device), axis=1)[0].shape == (0,)


def test_reduction_of_several_inputs(device):
    """Broadcast inputs, a result of all accumulators, and the count."""
    kernel = ReductionKernel(
        "T x, T y",
        "float32 correlation, int64 size",
        ("x * y", "x * x", "y * y"),
        ("a + b",) * 3,
        "correlation = a0 / sqrt(a1 * a2); size = count",
        ("0",) * 3,
        "correlation",
        reduce_type="T",
    )
    x, y = torch.rand(6, 70), torch.rand(70)
    found, size = kernel(x.to(device), y.to(device), axis=1)
    expected = (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum()).sqrt()
    torch.testing.assert_close(found.cpu(), expected)
    assert size.cpu().tolist() == [70] * 6
    found, _ = kernel(x.T.to(device), y[:, None].to(device), axis=0)
    torch.testing.assert_close(found.cpu(), expected)


def test_reduction_types_and_outputs(device):
    kernel = ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", "INT_MIN", "most")
    x = torch.randint(-1000, 1000, (9, 50), dtype=torch.int32)
    out = torch.zeros(9, 2, dtype=torch.int32, device=device)
    assert kernel(x.to(device), out[:, 1], axis=1) is not None
    assert torch.equal(out.cpu()[:, 1], x.amax(1))
    mean = ReductionKernel("T x", "float32 y", "x", "a + b", "y = a / count", "0")
    torch.testing.assert_close(mean(x.to(device)).cpu(), x.float().mean())


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.half])
def test_reduction_counts_beyond_the_dtype(device, dtype):
    kernel = ReductionKernel(
        "T x",
        "float32 mean, int64 size",
        "(float)x",
        "a + b",
        "mean = a / count; size = count",
        "0",
        reduce_type="float32",
    )
    # Of few rows, of many and of more than a half counts one by one.
    for shape, axis in (((1000,), 0), ((70001, 3), 0), ((3, 70001), 1)):
        mean, size = kernel(torch.ones(shape, dtype=dtype, device=device), axis=axis)
        assert (mean.cpu() == 1).all()
        assert (size.cpu() == shape[axis]).all()


def test_numbers_whatever_was_called_before(device):
    x = torch.randn(5)
    for numbers in ((2.0, 3.0), (2, 3), (torch.tensor(2.0), 3)):
        for given in ((), (torch.empty(5, device=device),)):
            kernel = ElementwiseKernel(
                "T x, float32 a, float32 b", "T y", "y = x * a + b"
            )
            for _ in range(2):
                y = kernel(x.to(device), *numbers, *given)
                torch.testing.assert_close(y.cpu(), x * 2 + 3)
    with pytest.raises(RuntimeError, match="at least two devices"):
        kernel(x[0].to(device), 2.0, 3.0, torch.tensor(0.0))
    with pytest.raises(RuntimeError, match="at least two devices"):
        kernel(x.to(device), 2.0, 3.0, torch.empty(5))


def test_autograd_sees_writes_into_outputs(device):
    double = ElementwiseKernel("T x", "T y", "y = x * 2")
    total = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0")
    x = torch.ones(5, device=device)
    leaf = torch.ones(5, device=device, requires_grad=True)
    for write in (
        lambda y: double(x, y),
        lambda y: total(x.expand(3, 5), y, axis=0),
        lambda y: total(x.expand(3, 5), y[None], axis=0, keepdims=True),
        lambda y: total(x.new_empty(0, 5), y, axis=0),
    ):
        saved = leaf.exp()
        version = saved._version
        write(saved.detach())
        assert saved._version == version + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()


def test_a_gradient_by_torch_library(device):
    """What docs/custom-kernels.md says about autograd."""
    forward = ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)")
    backward = ElementwiseKernel(
        "T g, T x, T y", "T gx, T gy", "gx = 2 * g * (x - y); gy = -gx"
    )

    @torch.library.custom_op("test_user_kernels::squared", mutates_args=())
    def squared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return forward(x, y) if x.is_opencl else (x - y) ** 2

    @squared.register_fake
    def _(x, y):
        return torch.empty_like(x)

    def gradient(ctx, grad):
        x, y = ctx.saved_tensors
        if not x.is_opencl:
            return 2 * grad * (x - y), -2 * grad * (x - y)
        return backward(grad, x, y)

    squared.register_autograd(
        gradient,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    check(squared, [torch.randn(5, 7), torch.randn(5, 7)], device)


ADD = """
kernel void add(global const float *x, global const float *y, global float *z,
                const float4 scale, local float *scratch, uint size) {
  size_t i = get_global_id(0);
  scratch[get_local_id(0)] = scale.w;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i < size) z[i] = x[i] + scratch[0] * y[i];
}
"""


def test_raw_kernel(device):
    kernel = RawKernel(ADD, "add")
    x, y = torch.randn(1000, device=device), torch.randn(1000, device=device)
    z = torch.zeros_like(x)
    kernel((8,), (128,), (x, y, z, (1, 2, 3, 0.5), 128 * 4, 1000))
    torch.testing.assert_close(z, x + 0.5 * y)


def test_compile_kernel_and_views(device):
    """TENSOR() takes any offset; a plain pointer begins where the device can."""
    scale = torch.opencl.compile_kernel(
        """kernel void scale(TENSOR(float, x), int size, FACTOR_TYPE factor) {
             global float *values = POINTER(x);
             size_t i = get_global_id(0);
             if (i < size) values[i] *= factor;
           }""",
        "scale",
        ("-DFACTOR_TYPE=float",),
        device,
    )
    x = torch.ones(100, device=device)
    scale((1, 1), (64, 1), (x[3:], 20, 3))
    assert x.cpu().tolist() == [1] * 3 + [3] * 20 + [1] * 77
    plain = RawKernel(
        "kernel void one(global float *x) { x[get_global_id(0)] = 1; }", "one"
    )
    zeros = torch.zeros(4096, device=device)
    plain((5,), (1,), (zeros[2048:],))
    assert zeros.cpu()[2046:2055].tolist() == [0, 0, 1, 1, 1, 1, 1, 0, 0]
    with pytest.raises(RuntimeError, match=r"argument 0 is a view.*TENSOR\(\)"):
        plain((5,), (1,), (zeros[1:],))


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({0: torch.zeros(1000, dtype=torch.int32)}, TypeError, "dtype torch.int32"),
        ({0: 3}, TypeError, "must be a tensor"),
        ({3: 1.0}, TypeError, "takes 4 numbers, got 1"),
        ({4: None}, TypeError, "number of bytes"),
        ({5: -1}, TypeError, "got -1"),
        ({5: 1.5}, TypeError, "not an integer"),
        ({5: torch.zeros(())}, TypeError, "is a value"),
    ],
)
def test_raw_kernel_checks_arguments(device, change, error, text):
    x = torch.zeros(1000, device=device)
    arguments = [x, x, x, (1, 2, 3, 4), 512, 1000]
    for index, value in change.items():
        arguments[index] = value.to(device) if torch.is_tensor(value) else value
    with pytest.raises(error, match=text):
        RawKernel(ADD, "add")((8,), (128,), arguments)


def test_raw_kernel_errors(device):
    x = torch.zeros(4, device=device)
    kernel = RawKernel("kernel void k(global float *x) { x[0] = missing; }", "k")
    with pytest.raises(RuntimeError, match=r"(?s)missing.*1 \| kernel void k"):
        kernel((1,), (1,), (x,))
    with pytest.raises(RuntimeError, match="no kernel 'other'"):
        torch.opencl.compile_kernel("kernel void k(int x) {}", "other", device=device)
    kernel = RawKernel("kernel void k(global float *x) { x[0] = 1; }", "k")
    with pytest.raises(TypeError, match=r"expected 1 arguments \(float\* x\), got 2"):
        kernel((1,), (1,), (x, x))
    with pytest.raises(RuntimeError, match="expected tensors on an opencl device"):
        kernel((1,), (1,), (x.cpu(),))
    with pytest.raises(RuntimeError, match="same device"):
        RawKernel(ADD, "add")((1,), (1,), (x, x.cpu(), x, (1, 2, 3, 4), 4, 4))
    with pytest.raises(ValueError, match="takes up to"):
        kernel((1,), (1 << 20,), (x,))
    with pytest.raises(ValueError, match="the same number"):
        kernel((1,), (1, 1), (x,))


def test_errors_of_a_call(device):
    x = torch.zeros(3, 4, device=device)
    with pytest.raises(
        TypeError, match=r"squared: expected 2 arguments .* or 3 .*got 1"
    ):
        SQUARED(x)
    with pytest.raises(
        RuntimeError,
        match=r"The size of tensor a \(4\) must match the size of tensor b \(5\)",
    ):
        SQUARED(x, torch.zeros(5, device=device))
    with pytest.raises(
        RuntimeError, match="Expected all tensors to be on the same device"
    ):
        SQUARED(x, torch.zeros(4))
    with pytest.raises(RuntimeError, match="expected a tensor on an opencl device"):
        SQUARED(x.cpu(), x.cpu())
    with pytest.raises(
        TypeError, match=r"'y' has dtype torch.int64, expected torch.float32 for T"
    ):
        SQUARED(x, x.long())
    with pytest.raises(TypeError, match="must be a tensor or a number, not str"):
        SQUARED(x, "y")
    with pytest.raises(RuntimeError, match=r"output with shape \[1, 4\] doesn't match"):
        SQUARED(x, x, torch.zeros(1, 4, device=device))
    with pytest.raises(TypeError, match="nothing says what U"):
        ElementwiseKernel("T x", "U y", "y = x")(x)
    with pytest.raises(IndexError, match="Dimension out of range"):
        SUMS(x, axis=2)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        SUMS(x, axis=(0, -2))
    with pytest.raises(RuntimeError, match=r"'sum' has shape \[3\], expected \[4\]"):
        SUMS(x, torch.zeros(3, device=device), torch.zeros(4, device=device), axis=0)


def test_errors_of_a_definition(device):
    with pytest.raises(ValueError, match="a type and a name"):
        ElementwiseKernel("x", "T y", "y = x")
    with pytest.raises(ValueError, match="neither a dtype"):
        ElementwiseKernel("wrong x", "T y", "y = x")
    with pytest.raises(ValueError, match="same name"):
        ElementwiseKernel("T x", "T x", "x = x")
    with pytest.raises(ValueError, match="needs an output"):
        ElementwiseKernel("T x", "", "x")
    with pytest.raises(ValueError, match="different numbers of reductions"):
        ReductionKernel("T x", "T y", ("x", "x"), "a + b", "y = a", "0")
    with pytest.raises(ValueError, match="'count' has a meaning"):
        ReductionKernel("T count", "T y", "count", "a + b", "y = a", "0")
    x = torch.zeros(3, device=device)
    # NVIDIA's compiler counts lines of the whole text, whatever #line says.
    line = r"(doubled:2|<kernel>:\d+)"
    with pytest.raises(RuntimeError, match=rf"(?s){line}.*missing.*> 2 \| y = missing"):
        ElementwiseKernel("T x", "T y", "T z = x;\ny = missing * z", "doubled")(x)
    with pytest.raises(RuntimeError, match=r"(?s)compiler log.*wrong.map_expr"):
        ReductionKernel("T x", "T y", "nothing", "a + b", "y = a", "0", "wrong")(x)


def test_they_take_no_part_in_autograd(device):
    x = torch.zeros(3, device=device, requires_grad=True)
    assert not SQUARED(x, x).requires_grad
    assert not SUMS(x)[0].requires_grad


def test_reprs():
    assert repr(SQUARED) == "<torch_opencl.ElementwiseKernel 'squared'>"
    assert "sums" in repr(SUMS) and "'k'" in repr(torch_opencl.RawKernel("", "k"))


def test_second_calls_check_arguments(device):
    """They are launched without Python's checks where those would find nothing."""
    code = """
    kernel void scale(TENSOR(float, x), float factor, int size, local float *room,
                      float2 both) {
      global float *values = POINTER(x);
      size_t i = get_global_id(0);
      if (i < size) values[i] = values[i] * factor + both.x - both.y;
    }"""
    kernel = torch_opencl.RawKernel(code, "scale")
    x = torch.ones(40, device=device)
    for factor in (2.0, 3, True, torch.pi):
        before = x.cpu()
        kernel((5,), (8,), (x[3:], factor, 37, 64, (1, 0.5)))
        wanted = torch.cat([before[:3], before[3:] * float(factor) + 0.5])
        torch.testing.assert_close(x.cpu(), wanted)
    good = (x, 2.0, 37, 64, (1, 0.5))
    for place, bad, error in (
        (0, x.int(), TypeError),
        (0, x.cpu(), RuntimeError),
        (1, 1e39, TypeError),
        (2, 2**31, TypeError),
        (2, 0.5, TypeError),
        (3, 0, TypeError),
        (3, 2**40, ValueError),
        (4, (1, 2, 3), TypeError),
    ):
        with pytest.raises(error):
            kernel((5,), (8,), (*good[:place], bad, *good[place + 1 :]))
    for grid, block in (((5, 1), (8,)), ((-1,), (8,)), ((5,), (2**30,))):
        with pytest.raises(ValueError):
            kernel(grid, block, good)

    add = torch_opencl.ElementwiseKernel("T x, T y, float32 a", "T z", "z = x + a * y")
    y = torch.randn(5, 8, device=device)
    for _ in range(2):
        for other, number in ((y[:, :1], 0.5), (y[2], 2), (y.flip(1), -1.5)):
            wanted = y + number * other
            torch.testing.assert_close(add(y, other, number), wanted)
            z = torch.empty(8, 5, device=device).t()
            assert add(y, other, number, z) is z
            torch.testing.assert_close(z, wanted)
        with pytest.raises(TypeError, match="dtype"):
            add(y, y.int(), 0.5)
        with pytest.raises(TypeError):
            add(y, y, torch.ones((), dtype=torch.int32, device=device))
        with pytest.raises(RuntimeError):
            add(y, y[:3], 0.5)
