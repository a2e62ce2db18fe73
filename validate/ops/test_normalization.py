"""Layer, group and instance normalisation, forward and backward."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from against_cpu import (
    FLOATS,
    LAYOUTS,
    channels_last,
    check,
    check_error,
    contiguous,
    strided,
)
from tolerance import relative_distance


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


# The large mean's rounding is far above that of the deviations: chunks, work-items and
# vectors that are joined may not take it for them.
@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("size", [(2, 3, 5, 7), (8, 6, 40, 40), (3, 70, 31, 17)])
def test_variances_about_a_large_mean(device, size, layout):
    x = layout(1e4 + torch.randn(size) + 0.7 * torch.randn(size[0], 1, 1, 1))
    moved, wide = x.to(device), x.double()
    mean, variance = (torch.zeros(size[1], device=device) for _ in range(2))
    F.batch_norm(moved, mean, variance, training=True, momentum=1.0)
    inverses = [
        torch.native_layer_norm(moved, size[1:], None, None, 0.0)[2].flatten(),
        torch.native_group_norm(
            moved, None, None, size[0], size[1], size[2] * size[3], 1, 0.0
        )[2].flatten(),
    ]
    of_images = wide.var((1, 2, 3), correction=0)
    pairs = [(variance, wide.var((0, 2, 3)))]
    pairs += [(1 / inverse.square(), of_images) for inverse in inverses]
    for found, expected in pairs:
        assert relative_distance(found.cpu(), expected) < 2e-6


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
    check_error(call, device, x)


@pytest.mark.parametrize(
    "weight, bias",
    [
        (torch.ones(6).double(), torch.zeros(6)),
        (torch.ones(6).int(), None),
        (torch.ones(6), torch.zeros(6).bool()),
        (torch.ones(6), torch.zeros(6).half()),
        (torch.ones(6).cfloat(), None),
        (torch.ones(5), None),
        (torch.ones(6), torch.zeros(1)),
        (torch.ones(1, 6), None),
    ],
)
def test_group_norm_refuses_parameters(device, weight, bias):
    x = torch.randn(2, 6, 4)
    for place in ("cpu", device):
        params = [None if p is None else p.to(place) for p in (weight, bias)]
        with pytest.raises(RuntimeError, match=r"Expected|mixed dtype|expected scalar"):
            F.group_norm(x.to(place), 2, *params)
        with pytest.raises(RuntimeError, match=r"Expected|mixed dtype|expected scalar"):
            torch.native_group_norm(x.to(place), *params, 2, 6, 4, 2, 1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, p: F.group_norm(x, 2, p, p),
        lambda x, p: F.batch_norm(x, p, p),
        lambda x, p: F.layer_norm(x.mT, (6,), p),
    ],
    ids=["group", "batch", "layer"],
)
def test_input_left_on_the_cpu(device, call):
    with pytest.raises(RuntimeError, match="to be on the same device"):
        call(torch.randn(2, 6, 4), torch.ones(6, device=device))


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
    "batch of pixels": (
        lambda x: torch.native_batch_norm(
            x.contiguous(memory_format=torch.channels_last),
            *(None, None, None, None, True, 0.1, 1e-5),
        ),
        (1, 2, 2000, 2000),
    ),
    "variance": (torch.var_mean, (9_400_000,)),
    "variance of columns": (lambda x: torch.var_mean(x, 0), (4_000_000, 2)),
    "group": (
        lambda x: torch.native_group_norm(x, None, None, 1, 2, 4_000_000, 2, 1e-5),
        (1, 2, 2000, 2000),
    ),
}


@pytest.mark.sampled(3)
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
