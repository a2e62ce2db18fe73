"""Batch normalisation, forward and backward."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, LAYOUTS, channels_last, check, contiguous, move, strided
from tolerance import assert_matches

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


@pytest.mark.parametrize("shape", [(1, 2, 1, 2), (1, 2, 1, 1), (2, 1, 2, 2)])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("parameter", [contiguous, strided])
def test_batch_norm_formats_of_single_elements(device, shape, train, parameter):
    """Strides of dimensions of one element count where a parameter is strided."""
    weight, mean, var = (parameter(torch.rand(shape[1])) for _ in range(3))
    if train and shape == (1, 2, 1, 1):
        pytest.skip("one value a channel")
    for order in itertools.permutations(range(4)):
        x = torch.randn([shape[i] for i in order])
        x = x.permute([order.index(i) for i in range(4)])
        results = []
        for where in ("cpu", device):
            y, w, m, v = (move(t, where) for t in (x, weight, mean, var))
            aten = torch.ops.aten
            out = aten.native_batch_norm(y, w, None, m, v, train, 0.1, 1e-5)[0]
            results.append(out.stride())
        assert results[1] == results[0], (order, x.stride())


@pytest.mark.parametrize("shape", [(3, 1, 1, 2), (1, 2, 1, 1), (2, 1, 3, 2), (2, 3, 4)])
def test_batch_norm_formats_of_gradients(device, shape):
    """Strides of dimensions of one element count where the gradient has another
    format than the input."""
    mean, var = torch.rand(shape[1]), torch.rand(shape[1])
    orders = list(itertools.permutations(range(len(shape))))
    for order, other in itertools.product(orders, orders):
        x, grad = (
            torch.randn([shape[i] for i in given]).permute(
                [given.index(i) for i in range(len(shape))]
            )
            for given in (order, other)
        )
        results = []
        for where in ("cpu", device):
            g, y, m, v = (move(t, where) for t in (grad, x, mean, var))
            found = torch.ops.aten.native_batch_norm_backward(
                g, y, None, m, v, None, None, False, 1e-5, [True, False, False]
            )
            results.append(found[0].stride())
        assert results[1] == results[0], (order, other, x.stride(), grad.stride())


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
def test_out_of_statistics(device, training):
    """Evaluation leaves them as they are."""

    def saved(x, mean, var):
        outs = [x.new_full((5,), 7.0) for _ in range(3)]
        names = ("out", "save_mean", "save_invstd")
        torch.ops.aten._native_batch_norm_legit.out(
            x, None, None, mean, var, training, 0.1, 1e-5,
            **dict(zip(names, outs, strict=True)),
        )  # fmt: skip
        return outs

    inputs = [torch.randn(3, 5, 4), torch.randn(5), torch.rand(5)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the out of another size
        check(saved, inputs, device, backward=False)


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
    short = torch.ones(2, device=device)
    for params in [(short, None, None, None), (None, None, short, short)]:
        with pytest.raises(RuntimeError, match="3 elements not 2"):
            torch.native_batch_norm(x, *params, True, 0.1, 1e-5)
    long, shared = torch.ones(3, device=device), torch.ones(1, device=device).expand(3)
    for params in [(long, shared), (shared, long)]:
        with pytest.raises(RuntimeError, match="single memory location"):
            F.batch_norm(x, *params, training=True)
        assert not F.batch_norm(x, *params).any()  # they are only read


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


@pytest.mark.parametrize("layout", [contiguous, channels_last])
@pytest.mark.parametrize("size", [(4, 3, 1, 1), (2, 17, 13, 17), (2, 18, 90, 100)])
def test_no_epsilon_and_a_constant_channel(device, size, layout):
    """The CPU's inverse deviation of a variance of 0 is 0; a group's is infinite.

    In channels_last the CPU's variance of equal values is what its mean's rounding leaves.
    """
    x = torch.randn(size)
    x[:, 0], x[:, 1] = 0.1, 0
    x, gradient = layout(x), layout(torch.randn(size))
    weight, bias = torch.randn(size[1]), torch.randn(size[1])
    results = []
    for place in ("cpu", device):
        of_place = x.contiguous() if place == "cpu" else x
        given = [t.detach().to(place) for t in (of_place, weight, bias)]
        leaves = [t.requires_grad_() for t in given]
        y = torch.batch_norm(leaves[0], *leaves[1:], None, None, True, 0.1, 0.0, False)
        y.backward(gradient.to(place))
        results.append([y.detach().cpu(), *(t.grad.cpu() for t in leaves)])
    assert torch.equal(results[1][0][:, 0], bias[0].expand_as(x[:, 0]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)
    for place in ("cpu", device):
        assert F.group_norm(x.to(place), size[1], eps=0.0)[:, 1].isnan().all()
        if size[2:] != (1, 1):
            assert (F.instance_norm(x.to(place)[:, :2], eps=0.0) == 0).all()
