"""Batch, layer and group normalisation, forward and backward."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, LAYOUTS, channels_last, check, contiguous, move, strided
from tolerance import assert_matches, relative_distance

# Around a vector's 16 lanes, a job's 8192 elements, and with few channels.
SIZES = [
    (2, 3, 13, 17),
    (1, 1, 3, 2),
    (8, 17, 1, 1),
    (2, 16, 90, 100),
    (3, 33, 7, 7),
    (4, 40, 31, 9),
    (3, 1040, 5, 3),
]


def _batch_norm(training, momentum=0.1, eps=1e-5):
    def function(x, weight=None, bias=None, mean=None, var=None):
        mean = mean if mean is None else mean.detach().clone()
        var = var if var is None else var.detach().abs()
        out = F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
        return [t for t in (out, mean, var) if t is not None]

    return function


def _params(channels):
    return [torch.randn(channels) for _ in range(4)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
def test_batch_norm(device, size, layout, training):
    x = layout(torch.randn(size) * 2 + 1)
    check(
        _batch_norm(training),
        [x, *_params(size[1])],
        device,
        strides=layout in (contiguous, channels_last),
        # The gradient of a single weight may cancel, and has no other to
        # measure its error by.
        multiple=4.0 if size[1] > 1 else 64.0,
    )


# Around what a work-group takes of channels and of a channel's pixels.
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize(
    "size",
    [
        (1, 130, 1, 1),
        (3, 15, 2, 3),
        (2, 17, 32, 33),
        (1, 2, 91, 93),
        (4, 129, 64, 65),
        (1, 1, 129, 257),
    ],
)
def test_batch_norm_around_groups(device, size, layout):
    x = layout(torch.randn(size) * 2 + 30)
    if x.numel() == x.size(1):
        x = x.expand(2, -1, -1, -1).contiguous()
    multiple = 8.0 if size[1] > 2 else 64.0
    check(_batch_norm(True), [x, *_params(size[1])], device, multiple=multiple)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_rows_apart(device, training):
    x = torch.randn(3, 5, 14, 16)[:, :, ::2]
    check(_batch_norm(training), [x, *_params(5)], device)
    check(_batch_norm(training), [x[..., ::2], *_params(5)], device)


@pytest.mark.parametrize("size", [1, 7, 9, 127, 129, 1024, 1025, 2048, 2049, 9001])
def test_layer_norm_around_groups(device, size):
    for rows in (1, 35, 131):
        x = torch.randn(rows, size) * 2 + 30
        weights = [torch.randn(size), torch.randn(size)]
        check(
            lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
            [x, *weights],
            device,
            backward=size > 1,
            multiple=16.0 if size < 10 or rows == 1 else 8.0,
        )


@pytest.mark.parametrize(
    "batch,channels,pixels", [(1, 6, 20000), (40, 6, 9), (1, 4, 77)]
)
def test_group_norm_around_groups(device, batch, channels, pixels):
    x = torch.randn(batch, channels, pixels) + 3
    weights = [torch.randn(channels), torch.randn(channels)]
    check(lambda x, w, b: F.group_norm(x, 2, w, b), [x, *weights], device)


# Past the caches on CPUs: the gradient, 12 MiB by three tensors, and all of 16 MiB.
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("size", [(2, 96, 128, 130), (1, 5, 1024, 832)])
def test_batch_norm_of_large_results(device, size, layout, training):
    x = layout(torch.randn(size) * 2 + 1)
    check(_batch_norm(training), [x, *_params(size[1])], device)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("channels", [21, 32])
@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_norm_dtypes(device, dtype, channels, layout, training):
    x = layout(torch.randn(4, channels, 10, 9))
    check(_batch_norm(training), [x, *_params(channels)], device, dtype)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_batch_norm_half_with_float_parameters(device, dtype, training):
    x = torch.randn(4, 21, 10, 9).to(dtype)
    params = _params(21)
    grad = torch.randn(4, 21, 10, 9).to(dtype)

    def run(device, dtype, param_dtype):
        leaves = [x.to(device, dtype, copy=True)]
        leaves += [p.to(device, param_dtype, copy=True) for p in params]
        weighted = [leaf.requires_grad_() for leaf in leaves[:3]]
        outputs = _batch_norm(training)(*leaves)
        outputs[0].backward(grad.to(device, dtype))
        return [*outputs, *(leaf.grad for leaf in weighted)]

    results = run(device, dtype, torch.float32)
    baselines = run("cpu", dtype, torch.float32)
    references = run("cpu", torch.float64, torch.float64)
    for i, triple in enumerate(zip(results, references, baselines, strict=True)):
        assert_matches(*triple, name=f"tensor {i}")


@pytest.mark.parametrize("size", [(40, 7), (300, 33), (5, 6, 70), (2, 3, 4, 5, 6)])
def test_batch_norm_other_ranks(device, size):
    for training in (True, False):
        check(_batch_norm(training), [torch.randn(size), *_params(size[1])], device)


def test_batch_norm_without_parameters(device):
    x = torch.randn(4, 5, 6, 7)
    check(_batch_norm(True), [x], device)
    check(_batch_norm(True), [x, torch.randn(5)], device)
    check(lambda x, bias: _batch_norm(True)(x, None, bias), [x, torch.randn(5)], device)
    check(
        lambda x, m, v: _batch_norm(True)(x, None, None, m, v),
        [x, *_params(5)[:2]],
        device,
    )
    check(
        lambda x, m, v: _batch_norm(False)(x, None, None, m, v),
        [x, *_params(5)[:2]],
        device,
    )


@pytest.mark.parametrize("layout", [contiguous, channels_last])
def test_batch_norm_accuracy(device, layout):
    """A mean far from zero does not cancel the variance."""
    x = layout(torch.randn(4, 17, 64, 64) + 3000)
    check(_batch_norm(True), [x, *_params(17)], device)
    check(
        _batch_norm(True),
        [layout(torch.full((2, 3, 9, 9), 7.0))],
        device,
        backward=False,
    )


@pytest.mark.parametrize("mask", range(8))
@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_output_mask(device, train, mask):
    wanted = [bool(mask & 1), bool(mask & 2), bool(mask & 4)]
    x, grad = torch.randn(3, 5, 4, 4), torch.randn(3, 5, 4, 4)
    params = [torch.rand(5) + 0.5 for _ in range(5)]

    def function(x, grad, *params):
        outputs = torch.ops.aten.native_batch_norm_backward(
            grad, x, *params, train, 1e-5, wanted
        )
        return [t for t in outputs if t is not None and t.numel()]

    check(function, [x, grad, *params], device, backward=False)


@pytest.mark.parametrize("mixed", ["grad", "input"])
def test_batch_norm_mixed_layouts(device, mixed):
    x, grad = torch.randn(3, 20, 6, 6), torch.randn(3, 20, 6, 6)
    x, grad = (x, channels_last(grad)) if mixed == "grad" else (channels_last(x), grad)
    params = [torch.rand(20) + 0.5 for _ in range(5)]

    def function(x, grad, *params):
        return torch.ops.aten.native_batch_norm_backward(
            grad, x, *params, True, 1e-5, [True] * 3
        )

    check(function, [x, grad, *params], device, backward=False)


def test_batch_norm_format_of_single_rows(device):
    x = torch.randn(1, 7, 5, 1).as_strided((1, 7, 1, 5), (35, 1, 1, 7))
    # Not its gradient, which the CPU gets wrong for these strides.
    check(lambda x: F.batch_norm(x, None, None, training=True), [x], device,
          backward=False, strides=True)  # fmt: skip


def test_batch_norm_strided_running_statistics(device):
    x = torch.randn(4, 5, 6, 6)
    host = [strided(torch.rand(5)) for _ in range(2)]
    stats = [move(t, device) for t in host]
    F.batch_norm(x, *host, training=True)
    F.batch_norm(x.to(device), *stats, training=True)
    for result, expected in zip(stats, host, strict=True):
        torch.testing.assert_close(result.cpu(), expected)


def test_batch_norm_variants(device):
    x, (w, b, m, v) = torch.randn(4, 5, 6, 6), [t.abs() for t in _params(5)]
    aten = torch.ops.aten

    def out_variant(x, w, b, m, v):
        outputs = [torch.empty(0, device=x.device, dtype=x.dtype) for _ in range(3)]
        aten.native_batch_norm.out(
            x, w, b, m, v, True, 0.1, 1e-5,
            out=outputs[0], save_mean=outputs[1], save_invstd=outputs[2],
        )  # fmt: skip
        return outputs

    for function in (
        out_variant,
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5),
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5),
        lambda x, w, b, m, v: aten._native_batch_norm_legit(
            x, w, b, m, v, True, 0.1, 1e-5
        ),
        lambda x, w, b, m, v: aten._native_batch_norm_legit.no_stats(
            x, w, b, True, 0.1, 1e-5
        ),
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(
            x, w, b, m, v, 0.1, 1e-5
        ),
        lambda x, w, b, m, v: aten._batch_norm_with_update(x, w, b, m, v, 0.1, 1e-5)[
            :3
        ],
    ):
        check(function, [x, w, b, m, v], device, backward=False)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("size", [(2, 3, 13, 17), (4, 16, 5, 7), (2, 18, 33, 40)])
def test_batch_norm_in_place(device, size, layout, training):
    def in_place(x, weight, bias, mean, var):
        out, mean, var = x.clone(), mean.clone(), var.abs()
        saved = [torch.empty(0, device=x.device, dtype=x.dtype) for _ in range(2)]
        torch.ops.aten.native_batch_norm.out(
            out, weight, bias, mean, var, training, 0.1, 1e-5,
            out=out, save_mean=saved[0], save_invstd=saved[1],
        )  # fmt: skip
        return out, mean, var

    inputs = [layout(torch.randn(size)), *_params(size[1])]
    check(in_place, inputs, device, backward=False)


def test_batch_norm_empty(device):
    x = torch.randn(0, 3, 4, 4).to(device).requires_grad_()
    stats = torch.ones(3, device=device)
    assert F.batch_norm(x, stats, stats, training=False).shape == x.shape
    with pytest.raises(RuntimeError, match="at least one element"):
        torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)


def test_batch_norm_errors(device):
    x = torch.ones(2, 3, 2, 2, device=device)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.native_batch_norm(x.long(), None, None, None, None, True, 0.1, 1e-5)
    with pytest.raises(RuntimeError, match="mixed dtype"):
        torch.native_batch_norm(
            x, torch.ones(3, device=device).double(), None, None, None, True, 0.1, 1e-5
        )


def test_batch_norm_is_deterministic(device):
    x, grad = torch.randn(8, 5, 50, 50), torch.randn(8, 5, 50, 50)
    runs = []
    for _ in range(2):
        leaf = x.to(device).requires_grad_()
        out = F.batch_norm(leaf, None, None, training=True)
        out.backward(grad.to(device))
        runs.append((out.detach().cpu(), leaf.grad.cpu()))
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])


# Around a vector's 16 lanes, a work-group's 128 items and a chunk of 64 rows.
@pytest.mark.parametrize(
    "size,axes",
    [
        ((1, 1), 1),
        ((3, 15), 1),
        ((2, 5, 16), 1),
        ((65, 17), 1),
        ((200, 33), 1),
        ((4, 6, 7, 9), 3),
        ((3, 1000), 1),
        ((5, 40, 129), 2),
        ((70,), 1),
    ],
)
@pytest.mark.parametrize("layout", [contiguous, strided])
def test_layer_norm(device, size, axes, layout):
    shape = size[-axes:]
    params = [torch.randn(shape), torch.randn(shape)]
    check(
        lambda x, w, b: F.layer_norm(x, shape, w, b),
        [layout(torch.randn(size) * 2 + 1), *params],
        device,
        strides=True,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_dtypes(device, dtype):
    check(
        lambda x, w, b: F.layer_norm(x, (77,), w, b),
        [torch.randn(9, 77), torch.randn(77), torch.randn(77)],
        device,
        dtype,
    )


def test_layer_norm_without_parameters(device):
    x, param = torch.randn(9, 50), torch.randn(50)
    check(lambda x: F.layer_norm(x, (50,)), [x], device)
    check(lambda x, w: F.layer_norm(x, (50,), w), [x, param], device)
    check(lambda x, b: F.layer_norm(x, (50,), None, b), [x, param], device)
    check(lambda x: F.layer_norm(x + 5000, (50,)), [x], device)
    for size in ((0, 50), (3, 0)):
        check(
            lambda x, size=size: F.layer_norm(x, size[1:]), [torch.randn(size)], device
        )


def test_layer_norm_statistics(device):
    check(
        lambda x: torch.native_layer_norm(x, (5, 7), None, None, 1e-5),
        [torch.randn(4, 3, 5, 7)],
        device,
        backward=False,
        strides=True,
    )


def test_layer_norm_half_with_float_parameters(device):
    x = torch.randn(9, 77).half()
    params = [torch.randn(77), torch.randn(77)]
    result = torch.native_layer_norm(
        x.to(device), (77,), *[p.to(device) for p in params], 1e-5
    )
    expected = torch.native_layer_norm(x, (77,), *params, 1e-5)
    for ours, cpus in zip(result, expected, strict=True):
        assert ours.dtype == cpus.dtype
        torch.testing.assert_close(ours.cpu(), cpus)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 3, 18])
def test_group_norm(device, groups, layout):
    x = layout(torch.randn(4, 18, 9, 11) + 1)
    check(
        lambda x, w, b: F.group_norm(x, groups, w, b),
        [x, torch.randn(18), torch.randn(18)],
        device,
    )
    check(lambda x: F.group_norm(x, groups), [x], device)
    # Of gradients FakeTensorMode says other strides than the CPU has.
    check(lambda x: F.group_norm(x, groups), [x], device, backward=False, strides=True)


def test_group_norm_of_large_groups(device):
    """More than the nearest cache holds, and fewer than processors."""
    for shape, groups in (((2, 6, 67, 71), 2), ((1, 6, 67, 71), 1)):
        check(
            lambda x, w, b, groups=groups: F.group_norm(x, groups, w, b),
            [torch.randn(shape) + 3, torch.randn(6), torch.randn(6)],
            device,
        )


def test_group_norm_of_single_pixels(device):
    check(
        lambda x, w, b: F.group_norm(x, 1, w, b),
        [torch.randn(1, 3), torch.randn(3), torch.randn(3)],
        device,
    )
    check(lambda x: F.group_norm(x, 2), [torch.randn(5, 6)], device)


@pytest.mark.parametrize("dtype", FLOATS)
def test_group_norm_dtypes(device, dtype):
    check(
        lambda x, w, b: F.group_norm(x, 4, w, b),
        [torch.randn(3, 12, 50), torch.randn(12), torch.randn(12)],
        device,
        dtype,
    )


def _outcome(call, device):
    """Type and text of the error, or the result; and the texts of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call(device).detach().cpu()
        except Exception as error:
            result = type(error), str(error).split("\n\nException raised from")[0]
    return result, [str(warning.message) for warning in caught]


def _statistics(function, *sizes, **options):
    """A function of an image of 5 channels and of vectors of ``sizes``."""

    def call(device):
        x = torch.arange(160.0).sin().view(2, 5, 4, 4).to(device)
        vectors = [None if n is None else torch.ones(n, device=device) for n in sizes]
        return function(x, *vectors, **options)

    return call


def _instance_norm(training, **options):
    def call(device):
        x = torch.arange(160.0).sin().view(2, 5, 4, 4).to(device)
        return torch.nn.InstanceNorm2d(4, **options).to(device).train(training)(x)

    return call


_OTHER_CHANNELS = {
    "running statistics": _statistics(F.instance_norm, 4, 4),
    "running statistics in use": _statistics(
        F.instance_norm, 4, 4, use_input_stats=False
    ),
    "a weight": _statistics(F.instance_norm, None, None, 4),
    "a mean alone": _statistics(F.instance_norm, 5, None),
    "a variance alone": _statistics(F.instance_norm, None, 5),
    "a mean alone in use": _statistics(F.instance_norm, 5, None, use_input_stats=False),
    "batch norm's mean alone": _statistics(F.batch_norm, 5, None, training=True),
    "batch norm's variance alone": _statistics(F.batch_norm, None, 5, training=True),
    "module": _instance_norm(True),
    "module in evaluation": _instance_norm(False),
    "affine module": _instance_norm(True, affine=True),
    "tracking module": _instance_norm(True, track_running_stats=True),
    "tracking module in evaluation": _instance_norm(False, track_running_stats=True),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", _OTHER_CHANNELS)
def test_instance_norm_of_other_channels(device, name):
    result, warned = _outcome(_OTHER_CHANNELS[name], device)
    expected, said = _outcome(_OTHER_CHANNELS[name], "cpu")
    assert warned == said
    if torch.is_tensor(expected):
        torch.testing.assert_close(result, expected)
        assert said, "accepted without a word"
    else:
        assert result == expected


def test_instance_norm(device):
    x = torch.randn(3, 5, 9, 9)
    check(
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        [x, torch.randn(5), torch.randn(5)],
        device,
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.layer_norm(x, (3,)),
        lambda x: F.layer_norm(x, (4,), torch.ones(3, device=x.device)),
        lambda x: F.layer_norm(x, ()),
        lambda x: F.layer_norm(x.long(), (4,)),
        lambda x: F.group_norm(x, 5),
        lambda x: F.group_norm(x.long(), 1),
    ],
)
def test_errors_are_the_cpus(device, call):
    x = torch.randn(2, 3, 4)
    with pytest.raises(Exception) as expected:
        call(x)
    with pytest.raises(type(expected.value)) as raised:
        call(x.to(device))
    assert str(raised.value) == str(expected.value)


def _distance_by_cpu(function, x, device):
    """How far the device's results are from float64, and the CPU's."""
    exact = function(x.double())
    distances = [
        [relative_distance(r, e) for r, e in zip(function(there), exact, strict=True)]
        for there in (x.to(device), x)
    ]
    return zip(*distances, strict=True)


_LONG = {
    "layer": (
        lambda x: torch.native_layer_norm(x, x.shape[1:], None, None, 1e-5),
        (1, 9_400_000),
    ),
    "batch": (
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
        (1, 2, 2000, 2000),
    ),
    "group": (
        lambda x: torch.native_group_norm(x, None, None, 1, 2, 4_000_000, 2, 1e-5),
        (1, 2, 2000, 2000),
    ),
}


@pytest.mark.parametrize("name", _LONG)
def test_millions_a_statistic(device, name):
    """Sums of so many are precise: the CPU's own are within 1e-7."""
    function, shape = _LONG[name]
    x = torch.randn(shape) * 2 + 1
    for own, cpu in _distance_by_cpu(function, x, device):
        assert own < 2.5e-7, f"{own}, CPU {cpu}"


def test_layer_norm_gradient_of_long_rows(device):
    x, grad = torch.randn(2, 1, 9_400_000)
    weight = torch.randn(9_400_000)

    def gradients(x, weight, grad):
        x, weight = (t.detach().clone().requires_grad_() for t in (x, weight))
        F.layer_norm(x, weight.shape, weight).backward(grad)
        return x.grad, weight.grad

    exact = gradients(*(t.double() for t in (x, weight, grad)))
    result = gradients(*(t.to(device) for t in (x, weight, grad)))
    for found, expected in zip(result, exact, strict=True):
        assert relative_distance(found, expected) < 2.5e-7
