"""Calls that models make, by family: a function, inputs of some megabytes on the CPU,
and whether there is a gradient. Inputs are normal numbers unless a call asks for
others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from measure import LAYOUTS
from torch import nn
from torch.nn import functional as F

Inputs = tuple[torch.Tensor, ...]
_MATRIX = (2048, 1024)
_IMAGES = (8, 64, 56, 56)


@dataclass(frozen=True)
class Call:
    family: str
    name: str
    function: Callable[..., object]
    make_inputs: Callable[[], Inputs]
    has_gradient: bool = True


def numbers(*shapes: tuple[int, ...], layout: str = "contiguous") -> Inputs:
    def placed(shape: tuple[int, ...]) -> torch.Tensor:
        values = torch.randn(shape)
        is_image = len(shape) == 4
        return values.contiguous(memory_format=LAYOUTS[layout]) if is_image else values

    return tuple(placed(shape) for shape in shapes)


def matrix(dtype: torch.dtype = torch.float32) -> Inputs:
    return (torch.randn(_MATRIX).to(dtype),)


def two_matrices() -> Inputs:
    return numbers(_MATRIX, _MATRIX)


def positive(count: int = 1) -> Callable[[], Inputs]:
    return lambda: tuple(x.abs() + 0.1 for x in numbers(*[_MATRIX] * count))


def within_one() -> Inputs:
    return (torch.randn(_MATRIX).tanh() * 0.9,)


def integers() -> Inputs:
    return (torch.randint(0, 100, _MATRIX),)


def pointwise() -> Iterator[Call]:
    domains = {
        positive(): "sqrt rsqrt log log1p log2 log10 lgamma digamma reciprocal",
        within_one: "erfinv asin atanh",
        lambda: (torch.rand(_MATRIX),): "logit",
        lambda: (torch.randn(_MATRIX).abs() + 1.1,): "acosh",
        matrix: "abs exp expm1 exp2 sin cos tan tanh sigmoid erf floor round trunc frac "
        "sign neg square sinc i0 asinh atan cosh nan_to_num",
    }
    for make_inputs, names in domains.items():
        for name in names.split():
            yield Call("pointwise", name, getattr(torch, name), make_inputs)
    activations = (
        "relu gelu silu mish softplus elu selu celu leaky_relu hardtanh hardswish "
        "hardsigmoid softsign logsigmoid relu6 tanhshrink softshrink hardshrink glu"
    )
    for name in activations.split():
        yield Call("pointwise", name, getattr(F, name), matrix)
    binary = (
        "add sub mul div maximum minimum fmod remainder atan2 pow hypot logaddexp "
        "xlogy copysign"
    )
    for name in binary.split():
        yield Call("pointwise", name, getattr(torch, name), positive(2))
    yield Call("pointwise", "eq", torch.eq, two_matrices, False)
    yield Call(
        "pointwise", "where", lambda x, y: torch.where(x > 0, x, y), two_matrices
    )
    yield Call("pointwise", "clamp", lambda x: x.clamp(-1, 1), matrix)
    yield Call("pointwise", "lerp", lambda x, y: x.lerp(y, 0.3), two_matrices)
    yield Call("pointwise", "addcmul", lambda x, y: x.addcmul(x, y), two_matrices)
    yield Call("pointwise", "prelu", F.prelu, lambda: numbers(_IMAGES, (64,)))


def reductions() -> Iterator[Call]:
    def first_of(result: object) -> object:
        return result[0] if isinstance(result, tuple) else result

    def over(name: str, dimension: int) -> Callable[[torch.Tensor], object]:
        return lambda x: first_of(getattr(torch, name)(x, dim=dimension))

    of_all = "sum mean std norm amax argmax count_nonzero median"
    over_one = (
        "sum mean amax prod std var logsumexp norm median nansum cumsum cumprod sort "
        "softmax log_softmax cummax logcumsumexp argmax count_nonzero mode"
    )
    for name in of_all.split():
        yield Call("reduction", f"{name} of all", getattr(torch, name), matrix)
    for dimension in (0, 1):
        for name in over_one.split():
            title = f"{name} over {dimension}"
            yield Call("reduction", title, over(name, dimension), matrix)
        for name, function in (
            ("topk", lambda x, d=dimension: x.topk(5, dim=d)[0]),
            ("kthvalue", lambda x, d=dimension: x.kthvalue(5, dim=d)[0]),
            ("any", lambda x, d=dimension: (x > 0).any(d)),
        ):
            yield Call("reduction", f"{name} over {dimension}", function, matrix)
    words = partial(numbers, (8, 50_000))
    yield Call("reduction", "topk of 50 of 50000", lambda x: x.topk(50)[0], words)
    yield Call("reduction", "unique", lambda x: x.round().unique(), matrix, False)


def shapes() -> Iterator[Call]:
    for name, function in (
        ("transpose", lambda x: x.t().contiguous()),
        ("flip left to right", lambda x: x.flip(1)),
        ("flip top to bottom", lambda x: x.flip(0)),
        ("roll", lambda x: x.roll(3, 1)),
        ("repeat", lambda x: x.repeat(2, 2)),
        ("repeat_interleave", lambda x: x.repeat_interleave(2, 1)),
        ("tril", torch.tril),
        ("expand", lambda x: x[:, :1].expand(_MATRIX).contiguous()),
        ("narrow", lambda x: x[:, 100:200].contiguous()),
    ):
        yield Call("shape", name, function, matrix)
    yield Call("shape", "cat of rows", lambda x, y: torch.cat([x, y]), two_matrices)
    yield Call("shape", "cat", lambda x, y: torch.cat([x, y], 1), two_matrices)
    yield Call("shape", "stack", lambda x, y: torch.stack([x, y], 2), two_matrices)


def indexing() -> Iterator[Call]:
    def with_rows() -> Inputs:
        return (torch.randn(_MATRIX), torch.randint(0, 2048, (2048,)))

    def with_columns() -> Inputs:
        return (torch.randn(_MATRIX), torch.randint(0, 1024, _MATRIX))

    for name, function, make_inputs in (
        ("index_select", lambda x, i: x.index_select(0, i), with_rows),
        ("gather", lambda x, i: x.gather(1, i), with_columns),
        ("gather rows", lambda x, i: x.gather(0, i), with_columns),
        ("scatter", lambda x, i: torch.zeros_like(x).scatter(1, i, x), with_columns),
        (
            "scatter_add",
            lambda x, i: torch.zeros_like(x).scatter_add(1, i, x),
            with_columns,
        ),
        (
            "scatter_add of 1M into 1000",
            lambda x, i: x.new_zeros(1000).scatter_add(0, i, x),
            lambda: (torch.randn(1_000_000), torch.randint(0, 1000, (1_000_000,))),
        ),
        (
            "index_add",
            lambda x, i: torch.zeros_like(x).index_add(0, i, x),
            with_rows,
        ),
        ("masked_fill", lambda x: x.masked_fill(x > 0, 1.0), matrix),
        ("masked_select", lambda x: x.masked_select(x > 0), matrix),
        ("take", lambda x, i: x.take(i), with_columns),
        ("x at rows and columns", lambda x, i: x[i, i % 1024], with_rows),
        ("index_put", lambda x, i: x.index_put((i,), x), with_rows),
        (
            "embedding",
            lambda w, i: F.embedding(i, w),
            lambda: (torch.randn(30000, 256), torch.randint(0, 30000, (64, 128))),
        ),
    ):
        yield Call("indexing", name, function, make_inputs)
    for name, function, make_inputs in (
        ("nonzero", torch.nonzero, lambda: (torch.randn(_MATRIX) > 1,)),
        (
            "one_hot",
            lambda i: F.one_hot(i, 100),
            lambda: (torch.randint(0, 100, (20000,)),),
        ),
        (
            "searchsorted",
            torch.searchsorted,
            lambda: (torch.randn(_MATRIX).sort(1)[0], torch.randn(_MATRIX)),
        ),
        (
            "isin",
            torch.isin,
            lambda: (torch.randint(0, 100, (500_000,)), torch.arange(50)),
        ),
    ):
        yield Call("indexing", name, function, make_inputs, False)


def losses() -> Iterator[Call]:
    def with_labels() -> Inputs:
        return (torch.randn(_MATRIX), torch.arange(2048) % 1024)

    yield Call("loss", "cross_entropy", F.cross_entropy, with_labels)
    for name, function in (
        ("mse_loss", F.mse_loss),
        ("l1_loss", F.l1_loss),
        ("smooth_l1_loss", F.smooth_l1_loss),
        (
            "binary_cross_entropy_with_logits",
            lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        ),
        ("kl_div", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1))),
        ("cosine_similarity", F.cosine_similarity),
    ):
        yield Call("loss", name, function, two_matrices)
    for name, function in (
        ("layer_norm", lambda x: F.layer_norm(x, (1024,))),
        ("rms_norm", lambda x: F.rms_norm(x, (1024,))),
        ("normalize", F.normalize),
        ("dropout", F.dropout),
    ):
        yield Call("loss", name, function, matrix)
    points = (1000, 64)
    yield Call("loss", "cdist", torch.cdist, lambda: numbers(points, points))


def products() -> Iterator[Call]:
    for name, function, *inputs in (
        ("outer", torch.outer, (2048,), (1024,)),
        ("mv", torch.mv, _MATRIX, (1024,)),
        ("dot", torch.dot, (1 << 21,), (1 << 21,)),
        ("bmm", torch.bmm, (16, 128, 64), (16, 64, 128)),
        ("baddbmm", torch.baddbmm, (16, 128, 128), (16, 128, 64), (16, 64, 128)),
        ("linear", F.linear, (256, 1024), (1000, 1024), (1000,)),
        ("bilinear", F.bilinear, (64, 32), (64, 32), (16, 32, 32)),
        ("attention", F.scaled_dot_product_attention, *[(2, 8, 256, 64)] * 3),
    ):
        yield Call("product", name, function, partial(numbers, *inputs))
    square = partial(numbers, (256, 256))
    yield Call("product", "svd", lambda x: torch.linalg.svd(x)[1], square, False)


def dtypes() -> Iterator[Call]:
    for name, function in (
        ("add", lambda x: x + x),
        ("mul", lambda x: x * x),
        ("div", lambda x: x // 7),
        ("bitwise_and", lambda x: x & 15),
        ("shift", lambda x: x << 2),
        ("sum", torch.sum),
        ("sum of rows", lambda x: x.sum(1)),
        ("max", torch.max),
        ("cumsum", lambda x: x.cumsum(1)),
        ("sort", lambda x: x.sort(1)[0]),
    ):
        yield Call("dtype", f"int64 {name}", function, integers, False)

    def integer_squares() -> Inputs:
        return tuple(torch.randint(0, 100, (512, 512)) for _ in range(2))

    yield Call("dtype", "int64 mm", torch.mm, integer_squares, False)

    def to_bytes() -> Inputs:
        return (integers()[0].byte(),)

    yield Call("dtype", "uint8 to float", lambda x: x.float() / 255, to_bytes, False)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        for name, function in (
            ("add", lambda x: x + x),
            ("gelu", F.gelu),
            ("softmax", lambda x: x.softmax(1)),
            ("layer_norm", lambda x: F.layer_norm(x, (1024,))),
            ("sum of rows", lambda x: x.sum(1)),
            ("mm", lambda x: x[:512] @ x[:512].t()),
            ("pow", lambda x: x.abs().pow(1.7)),
            ("transpose", lambda x: x.t().contiguous()),
        ):
            title = f"{str(dtype).removeprefix('torch.')} {name}"
            yield Call("dtype", title, function, partial(matrix, dtype))


def images() -> Iterator[Call]:
    grid = torch.rand(8, 56, 56, 2) * 2 - 1
    classes = torch.zeros(8, 56, 56, dtype=torch.long)
    for name, function in (
        ("max_pool2d 2", lambda x: F.max_pool2d(x, 2)),
        ("max_pool2d 3 s2", lambda x: F.max_pool2d(x, 3, 2, 1)),
        ("max_pool2d 3 s1", lambda x: F.max_pool2d(x, 3, 1, 1)),
        ("max_pool2d 5 s1", lambda x: F.max_pool2d(x, 5, 1, 2)),
        ("avg_pool2d 2", lambda x: F.avg_pool2d(x, 2)),
        ("avg_pool2d 3 s1", lambda x: F.avg_pool2d(x, 3, 1, 1)),
        ("adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1)),
        ("adaptive_avg_pool2d 5", lambda x: F.adaptive_avg_pool2d(x, 5)),
        ("adaptive_max_pool2d 7", lambda x: F.adaptive_max_pool2d(x, 7)),
        ("lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2)),
        ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True)),
        ("group_norm", lambda x: F.group_norm(x, 8)),
        ("instance_norm", F.instance_norm),
        ("local_response_norm", lambda x: F.local_response_norm(x, 5)),
        ("layer_norm", lambda x: F.layer_norm(x, x.shape[1:])),
        ("pad", lambda x: F.pad(x, (1,) * 4)),
        ("pad reflect", lambda x: F.pad(x, (1,) * 4, mode="reflect")),
        ("pad replicate", lambda x: F.pad(x, (1,) * 4, mode="replicate")),
        ("pad circular", lambda x: F.pad(x, (1,) * 4, mode="circular")),
        ("unfold", lambda x: F.unfold(x, 3, padding=1)),
        ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2)),
        ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2)),
        ("channel_shuffle", lambda x: F.channel_shuffle(x, 8)),
        ("softmax over channels", lambda x: x.softmax(1)),
        ("sum over channels", lambda x: x.sum(1)),
        ("sum over pixels", lambda x: x.sum((2, 3))),
        ("sum but of channels", lambda x: x.sum((0, 2, 3))),
        ("amax over channels", lambda x: x.amax(1)),
        ("argmax over channels", lambda x: x.argmax(1)),
        ("var over pixels", lambda x: x.var((2, 3))),
        ("norm over channels", lambda x: x.norm(dim=1)),
        ("mul by channels", lambda x: x * x[:1, :, :1, :1]),
        ("mul by pixels", lambda x: x * x[:, :1]),
        ("cat of channels", lambda x: torch.cat([x, x], 1)),
        ("chunk of channels", lambda x: x.chunk(2, 1)[0].contiguous()),
        ("crop", lambda x: x[:, :, 1:-1, 1:-1].contiguous()),
        ("every second pixel", lambda x: x[:, :, ::2, ::2].contiguous()),
        ("flip left to right", lambda x: x.flip(3)),
        ("rot90", lambda x: x.rot90(1, (2, 3)).contiguous()),
        ("roll", lambda x: x.roll((3, 3), (2, 3))),
        ("permute", lambda x: x.permute(0, 2, 3, 1).contiguous()),
        ("dropout2d", F.dropout2d),
        ("interpolate area", lambda x: F.interpolate(x, (28, 28), mode="area")),
        ("bilinear /2", lambda x: F.interpolate(x, (28, 28), mode="bilinear")),
        ("bilinear x2", lambda x: F.interpolate(x, (112, 112), mode="bilinear")),
        ("bicubic x2", lambda x: F.interpolate(x, (112, 112), mode="bicubic")),
        ("nearest x2", lambda x: F.interpolate(x, (112, 112))),
        (
            "antialiased /2",
            lambda x: F.interpolate(x, (28, 28), mode="bilinear", antialias=True),
        ),
        (
            "grid_sample",
            lambda x: F.grid_sample(x, grid.to(x.device), align_corners=False),
        ),
        ("cross_entropy", lambda x: F.cross_entropy(x, classes.to(x.device))),
        ("cumsum of channels", lambda x: x.cumsum(1)),
    ):
        for layout in LAYOUTS:
            make_inputs = partial(numbers, _IMAGES, layout=layout)
            yield Call("image", f"{layout} {name}", function, make_inputs)


def _stem(layout: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """A network's first layer, of its weights: pictures have no gradient."""
    (pictures,) = numbers((8, 3, 224, 224), layout=layout)
    copies: dict[torch.device, torch.Tensor] = {}

    def run(weight: torch.Tensor) -> torch.Tensor:
        if weight.device not in copies:
            copies[weight.device] = pictures.to(weight.device)
        return F.conv2d(copies[weight.device], weight, stride=2, padding=3)

    return run


def convolutions() -> Iterator[Call]:
    for name, weight, options in (
        ("3x3", (64, 64, 3, 3), {"padding": 1}),
        ("1x1", (64, 64, 1, 1), {}),
        ("5x5 s2", (64, 64, 5, 5), {"padding": 2, "stride": 2}),
        ("3x3 dilated", (64, 64, 3, 3), {"padding": 2, "dilation": 2}),
        ("1x7", (64, 64, 1, 7), {"padding": (0, 3)}),
        ("3x3 of 8 groups", (64, 8, 3, 3), {"padding": 1, "groups": 8}),
        ("3x3 depthwise", (64, 1, 3, 3), {"padding": 1, "groups": 64}),
        ("7x7 depthwise", (64, 1, 7, 7), {"padding": 3, "groups": 64}),
    ):
        for layout in LAYOUTS:
            function = partial(F.conv2d, **options)
            make_inputs = partial(numbers, _IMAGES, weight, layout=layout)
            yield Call("convolution", f"{layout} {name}", function, make_inputs)
    for layout in LAYOUTS:
        make_inputs = partial(numbers, (64, 3, 7, 7), layout=layout)
        yield Call("convolution", f"{layout} stem", _stem(layout), make_inputs)
    for name, weight, options in (
        ("transposed 2x2 s2", (64, 32, 2, 2), {"stride": 2}),
        ("transposed 4x4 s2", (64, 32, 4, 4), {"stride": 2, "padding": 1}),
    ):
        for layout in LAYOUTS:
            function = partial(F.conv_transpose2d, **options)
            make_inputs = partial(numbers, _IMAGES, weight, layout=layout)
            yield Call("convolution", f"{layout} {name}", function, make_inputs)
    lines = (16, 64, 1000)
    volumes = (2, 32, 8, 28, 28)
    for name, function, *inputs in (
        ("conv1d", lambda x, w: F.conv1d(x, w, padding=1), lines, (64, 64, 3)),
        (
            "conv1d dilated",
            lambda x, w: F.conv1d(x, w, padding=16, dilation=16),
            lines,
            (64, 64, 3),
        ),
        (
            "conv1d depthwise",
            lambda x, w: F.conv1d(x, w, padding=15, groups=64),
            lines,
            (64, 1, 31),
        ),
        (
            "conv_transpose1d",
            lambda x, w: F.conv_transpose1d(x, w, stride=2),
            (16, 64, 500),
            (64, 64, 4),
        ),
        (
            "conv3d",
            lambda x, w: F.conv3d(x, w, padding=1),
            volumes,
            (32, 32, 3, 3, 3),
        ),
        (
            "conv_transpose3d",
            lambda x, w: F.conv_transpose3d(x, w, stride=2),
            volumes,
            (32, 32, 2, 2, 2),
        ),
        ("max_pool1d", lambda x: F.max_pool1d(x, 2), lines),
        ("max_pool3d", lambda x: F.max_pool3d(x, 2), (4, 32, 16, 28, 28)),
        ("avg_pool3d", lambda x: F.avg_pool3d(x, 2), (4, 32, 16, 28, 28)),
        (
            "trilinear x2",
            lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
            (2, 16, 8, 28, 28),
        ),
        (
            "batch_norm of rows",
            lambda x: F.batch_norm(x, None, None, training=True),
            (512, 1024),
        ),
    ):
        yield Call("convolution", name, function, partial(numbers, *inputs))


def modules() -> Iterator[Call]:
    def on_any_device(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        copies: dict[torch.device, nn.Module] = {}

        def run(x: torch.Tensor) -> torch.Tensor:
            if x.device not in copies:
                copies[x.device] = copy.deepcopy(module).to(x.device)
            result = copies[x.device](x)
            return result[0] if isinstance(result, tuple) else result

        return run

    for name, module, shape in (
        ("LSTM", nn.LSTM(128, 128, batch_first=True), (16, 32, 128)),
        ("GRU", nn.GRU(128, 128, batch_first=True), (16, 32, 128)),
        ("RNN", nn.RNN(128, 128, batch_first=True), (16, 32, 128)),
        (
            "LSTM of two layers, bidirectional",
            nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True),
            (8, 32, 128),
        ),
        (
            "TransformerEncoderLayer",
            nn.TransformerEncoderLayer(256, 8, batch_first=True, dropout=0.0),
            (8, 128, 256),
        ),
    ):
        yield Call("module", name, on_any_device(module), partial(numbers, shape))


def random_numbers() -> Iterator[Call]:
    for name, function in (
        ("rand", torch.rand_like),
        ("randn", torch.randn_like),
        ("randint", lambda x: torch.randint(0, 10, x.shape, device=x.device)),
        ("randperm", lambda x: torch.randperm(1_000_000, device=x.device)),
        ("bernoulli", lambda x: torch.bernoulli(x.sigmoid())),
        ("multinomial", lambda x: torch.multinomial(x.softmax(1), 5)),
        ("exponential_", lambda x: torch.empty_like(x).exponential_()),
        ("arange", lambda x: torch.arange(2_000_000, device=x.device)),
        ("full", lambda x: torch.full_like(x, 3.0)),
        ("eye", lambda x: torch.eye(1000, device=x.device)),
    ):
        yield Call("random", name, function, matrix, False)


FAMILIES: dict[str, Callable[[], Iterator[Call]]] = {
    "pointwise": pointwise,
    "reduction": reductions,
    "shape": shapes,
    "indexing": indexing,
    "loss": losses,
    "product": products,
    "dtype": dtypes,
    "image": images,
    "convolution": convolutions,
    "module": modules,
    "random": random_numbers,
}
