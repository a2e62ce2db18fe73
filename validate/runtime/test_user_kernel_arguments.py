"""Bad arguments of user kernels: errors that name the argument, before any build."""

from __future__ import annotations

import pytest
import torch
import torch_opencl
from torch_opencl import ElementwiseKernel, RawKernel, ReductionKernel

CODE = "kernel void k(global float *x, int n, local float *l, float4 v) {}"


def elementwise(**changes):
    arguments = {"in_params": "T x", "out_params": "T y", "operation": "y = x"}
    return ElementwiseKernel(**{**arguments, **changes})


def reduction(**changes):
    arguments = {
        "in_params": "T x",
        "out_params": "T y",
        "map_expr": "x",
        "reduce_expr": "a + b",
        "post_map_expr": "y = a",
        "identity": "0",
    }
    return ReductionKernel(**{**arguments, **changes})


def raw(**changes):
    return RawKernel(**{"code": CODE, "name": "k", **changes})


TEXTS = [
    *((elementwise, name) for name in ("in_params", "out_params", "operation")),
    *((elementwise, name) for name in ("name", "preamble")),
    *((reduction, name) for name in ("in_params", "out_params", "map_expr")),
    *((reduction, name) for name in ("reduce_expr", "post_map_expr", "identity")),
    *((reduction, name) for name in ("name", "preamble", "reduce_type")),
    *((raw, name) for name in ("code", "name", "options")),
]


@pytest.mark.parametrize("make, name", TEXTS)
@pytest.mark.parametrize("value", [5, b"x", ["x", 3], object()])
def test_texts_are_str(make, name, value):
    if make is raw and name == "options" and isinstance(value, bytes):
        value = [value]
    if name == "identity" and isinstance(value, list):
        value = ["x", None]  # numbers are written as texts
    with pytest.raises(TypeError, match=name):
        make(**{name: value})


@pytest.mark.parametrize("make, name", [each for each in TEXTS if each[1] != "options"])
def test_none_is_no_text(make, name):
    if name == "reduce_type":
        assert make(reduce_type=None) is not None  # the default
        return
    with pytest.raises(TypeError, match=rf"{name}.* not NoneType"):
        make(**{name: None})


@pytest.mark.parametrize("make, name", TEXTS)
@pytest.mark.parametrize("value", ["T x\0", "a\ud800"])
def test_texts_without_nul_and_surrogates(make, name, value):
    with pytest.raises(ValueError, match=name):
        make(**{name: [value] if name == "options" else value})


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\", "a\rb"])
@pytest.mark.parametrize("make", [elementwise, reduction])
def test_names_that_would_end_a_line_directive(make, name):
    with pytest.raises(ValueError, match="name is printed"):
        make(name=name)


@pytest.mark.parametrize("name", ["", "k k", "1k", "k;", "é", "k" + "(" * 50000])
def test_names_of_raw_kernels_are_identifiers(name):
    with pytest.raises(ValueError, match="name must be an identifier"):
        raw(name=name)


def test_parameters():
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        ElementwiseKernel(None)
    with pytest.raises(ValueError, match="a type and a name"):
        elementwise(in_params="T é")
    with pytest.raises(ValueError, match="named like their types"):
        elementwise(in_params="T T")
    with pytest.raises(TypeError, match=r"options must be a sequence of str"):
        raw(options="-DROWS=4")
    with pytest.raises(ValueError, match="different numbers"):
        reduction(map_expr=(), reduce_expr=(), identity=(), post_map_expr=())
    assert reduction(identity=("0",)).identities == ("0",)
    assert reduction(identity=(0,)).identities == ("0",)


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("uint8 n", 300, "overflow"),
        ("int32 n", 2.5, "2.5"),
        ("int32 n", float("nan"), "nan"),
        ("int64 n", 2**70, "1180591620717411303424"),
        ("float32 n", 1j, "1j"),
    ],
)
@pytest.mark.parametrize("make", [elementwise, reduction])
def test_numbers_that_do_not_fit(device, make, name, value, text):
    kernel = make(in_params=f"T x, {name}")
    with pytest.raises(TypeError, match=rf"argument 'n'.*{text}"):
        kernel(torch.ones(3, device=device), value)


def test_numbers_of_other_kinds(device):
    x = torch.ones(3, device=device)
    with pytest.raises(TypeError, match=r"U would be torch\.complex64"):
        elementwise(in_params="T x, U n")(x, 1j)
    kernel = elementwise(in_params="T x, int32 n", operation="y = x * n")
    assert kernel(x, 3.0).tolist() == [3, 3, 3]
    assert kernel(x, True).tolist() == [1, 1, 1]


@pytest.mark.parametrize("make", [elementwise, reduction])
def test_sparse_tensors(device, make):
    x = torch.eye(3).to_sparse().to(device)
    with pytest.raises(TypeError, match=r"argument 'x' has layout torch.sparse_coo"):
        make()(x)


@pytest.mark.parametrize("axis", [1.0, "0", (0, None), [1.5], object()])
def test_axes_are_integers(device, axis):
    with pytest.raises(TypeError, match="axis must be an integer"):
        reduction()(torch.ones(2, 3, device=device), axis=axis)


def call(device, **changes):
    x = torch.ones(4, device=device)
    values = {"x": x, "n": 1, "l": 64, "v": (1, 2, 3, 4)}
    grid, block = changes.pop("grid", (1,)), changes.pop("block", (1,))
    values.update(changes)
    raw()(grid, block, values.pop("args", list(values.values())))


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"grid": (2**63,)}, ValueError, "grid .* has more than"),
        (
            {"grid": (2**40, 2**40), "block": (1, 1)},
            ValueError,
            "grid .* has more than",
        ),
        ({"grid": (-1,)}, ValueError, "grid has no negative"),
        ({"grid": (1.5,)}, TypeError, "grid must be a sequence of integers"),
        ({"grid": 4}, TypeError, "grid must be a sequence of integers"),
        ({"grid": None}, TypeError, "grid must be a sequence of integers"),
        ({"grid": ()}, ValueError, "one to three dimensions"),
        ({"block": (0,)}, ValueError, "block only positive"),
        ({"block": ("1",)}, TypeError, "block must be a sequence of integers"),
        ({"block": (2**62,)}, ValueError, r"block \(4611686018427387904,\)"),
        ({"args": None}, TypeError, "args must be a sequence"),
        ({"args": "abc"}, TypeError, "args must be a sequence"),
        ({"n": None}, TypeError, r"argument 1 \('int n'\) must be a number"),
        ({"n": float("nan")}, TypeError, r"argument 1 \('int n'\)"),
        ({"n": 1j}, TypeError, r"argument 1 \('int n'\)"),
        ({"n": 2**31}, TypeError, r"argument 1 \('int n'\)"),
        ({"n": b""}, TypeError, r"argument 1 \('int n'\) got no bytes"),
        ({"l": 2**50}, ValueError, r"argument 2 \('float\* l'\) got"),
        ({"l": 1.5}, TypeError, r"argument 2 \('float\* l'\) must be a number"),
        ({"v": (1, 2)}, TypeError, "takes 4 numbers, got 2"),
        ({"v": ("a", "b", "c", "d")}, TypeError, r"argument 3 \('float4 v'\)"),
        ({"x": None}, TypeError, r"argument 0 \('float\* x'\) must be a tensor"),
    ],
)
def test_calls_of_raw_kernels(device, change, error, text):
    with pytest.raises(error, match=text):
        call(device, **change)


def test_tensors_of_raw_kernels(device):
    call(device)
    with pytest.raises(TypeError, match="args must be a sequence"):
        call(device, args=torch.ones(4, device=device))
    with pytest.raises(TypeError, match=r"layout torch\.sparse_coo"):
        call(device, x=torch.eye(3).to_sparse().to(device))
    negated = torch.ones(4, dtype=torch.complex64, device=device).conj().imag
    with pytest.raises(TypeError, match="resolve_neg"):
        call(device, x=negated)
    with pytest.raises(TypeError, match="must be a str"):
        torch.opencl.compile_kernel(None, "k", device=device)


@pytest.mark.parametrize(
    "parameters, count",
    [
        ("global float *x_memory, ulong n, ulong x_offset", 3),
        ("ulong x_offset, global float *x_memory", 2),
        ("global float *x_memory, uint x_offset", 2),
        ("global float *x_memory, ulong y_offset", 2),
        ("ulong x_memory, ulong x_offset, global float *y", 3),
        ("TENSOR(float, x), ulong y_offset", 2),
    ],
)
def test_a_buffer_and_its_offset_are_next_to_each_other(device, parameters, count):
    kernel = raw(code=f"kernel void k({parameters}) {{}}")
    with pytest.raises(TypeError, match=f"expected {count} arguments"):
        kernel((1,), (1,), (torch.zeros(4, device=device),) * 4)


def test_an_offset_behind_another_parameter_is_a_number(device):
    kernel = raw(
        code="""kernel void k(global float *x_memory, ulong n, ulong x_offset) {
          x_memory[x_offset] = n;
        }"""
    )
    x = torch.zeros(4, device=device)
    kernel((1,), (1,), (x, 7, 2))
    assert x.cpu().tolist() == [0, 0, 7, 0]


@pytest.mark.parametrize("length", [10, 40_000, 400_000])
def test_file_names_of_any_length(device, length):
    code = f'#line 7 "{"f" * length}"\nkernel void k(int n) {{ missing; }}'
    with pytest.raises(RuntimeError, match=r"(?s)missing.*> 7 \| kernel void k"):
        raw(code=code).compile(device)


@pytest.mark.parametrize(
    "line",
    [
        "#line 99999999999999999999",
        '#line 2147483647 "a"',
        '#line 5 "' + '"' * 1000 + '"',
        "//" + "x:" * 50_000 + "1:2:",
        "//" + " " * 100_000 + ": : :",
    ],
)
def test_lines_of_any_kind(device, line):
    with pytest.raises(RuntimeError, match="Building the OpenCL kernel"):
        raw(code=f"{line}\nkernel void k(int n) {{ missing; }}").compile(device)


def test_long_lines_are_cut(device):
    code = f"kernel void k(int n) {{ missing; }} // {'x' * 100_000}"
    with pytest.raises(RuntimeError, match=r"missing; } // x+\.\.\.") as raised:
        raw(code=code).compile(device)
    source = str(raised.value).split("\nsource:\n")[1]
    assert len(source) < 10_000


def test_to_pyopencl(device):
    pytest.importorskip("pyopencl")
    to_pyopencl = torch_opencl.to_pyopencl
    with pytest.raises(TypeError, match=r"expected a torch\.Tensor"):
        to_pyopencl(None)
    with pytest.raises(TypeError, match="sparse"):
        to_pyopencl(torch.eye(3).to_sparse().to(device))
    z = torch.ones(3, dtype=torch.complex64, device=device)
    with pytest.raises(RuntimeError, match="conjugate bit"):
        to_pyopencl(z.conj())
    with pytest.raises(RuntimeError, match="negative bit"):
        to_pyopencl(z.conj().imag)


def test_from_pyopencl(device):
    pytest.importorskip("pyopencl")
    import numpy
    import pyopencl as cl
    import pyopencl.array as cl_array

    queue = torch_opencl.pyopencl_queue(device)
    data = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)

    def array(shape, dtype="float32", **options):
        return cl_array.Array(queue, shape, dtype, data=data, **options)

    assert torch_opencl.from_pyopencl(array((16,))).shape == (16,)
    for wrong in (
        array((17,)),
        array((4,), offset=52),
        array((3, 3), strides=(28, 4)),
    ):
        with pytest.raises(ValueError, match="ends outside of its buffer of 64 bytes"):
            torch_opencl.from_pyopencl(wrong)
    with pytest.raises(ValueError, match="byte order"):
        torch_opencl.from_pyopencl(array((4,), numpy.dtype("float32").newbyteorder()))
