"""Ops that are bound by memory: pooling, indexing, norms, softmax, pointwise, reductions,
copies, casts, pixel_shuffle and optimizers. The sizes are those of networks
and larger than caches; `scale` divides the batch, for a quick look."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from case import Case, Run, gradients, random, size_of
from measure import LAYOUTS
from torch.nn import functional as F

Shape = tuple[int, ...]
Function = Callable[..., object]


def tensors_of(
    shapes: list[Shape], device: str, dtype: torch.dtype, layout: str
) -> list[torch.Tensor]:
    return [
        random(
            shape,
            device,
            dtype,
            LAYOUTS[layout] if len(shape) == 4 else torch.contiguous_format,
        )
        for shape in shapes
    ]


def simple(
    family: str,
    name: str,
    shapes: list[Shape],
    read: float,
    written: float,
    function: Function,
    dtype: torch.dtype,
    layout: str = "contiguous",
) -> Case:
    """function(*tensors of these shapes)"""

    def make(device: str) -> Run:
        tensors = tensors_of(shapes, device, dtype, layout)
        return lambda: function(*tensors)

    size = dtype.itemsize
    return Case(family, name, make, read=read * size, written=written * size)


def backward(
    family: str,
    name: str,
    shapes: list[Shape],
    read: float,
    written: float,
    function: Callable[..., torch.Tensor],
    dtype: torch.dtype,
    layout: str = "contiguous",
) -> Case:
    """The gradients of function(*tensors) with regard to all of them."""

    def make(device: str) -> Run:
        tensors = tensors_of(shapes, device, dtype, layout)
        for tensor in tensors:
            tensor.requires_grad_()
        return gradients(function(*tensors), tensors)

    size = dtype.itemsize
    title = f"{name} backward"
    return Case(family, title, make, read=read * size, written=written * size)


def pooling(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    batch = max(1, 16 // scale)
    # An index of max_pool2d is an int64.
    index = 8 / dtype.itemsize
    for layout in LAYOUTS:
        for name, size, function in (
            ("max_pool2d 3x3 s2 p1", 112, lambda x: F.max_pool2d(x, 3, 2, 1)),
            ("max_pool2d 2x2", 224, lambda x: F.max_pool2d(x, 2)),
            ("avg_pool2d 2x2", 112, lambda x: F.avg_pool2d(x, 2)),
        ):
            shape = (batch, 64, size, size)
            pixels, pooled = size_of(shape), size_of(shape) // 4
            title = f"{name} {size}x{size} {layout}"
            indices = pooled * index if "max" in name else 0
            results = pooled + indices
            arguments = (function, dtype, layout)
            yield simple("pooling", title, [shape], pixels, results, *arguments)
            yield backward("pooling", title, [shape], results, pixels, *arguments)
        shape = (batch, 2048, 7, 7)
        title = f"adaptive_avg_pool2d 7x7 -> 1 {layout}"
        arguments = (lambda x: F.adaptive_avg_pool2d(x, 1), dtype, layout)
        yield simple("pooling", title, [shape], size_of(shape), 0, *arguments)
        yield backward("pooling", title, [shape], 0, size_of(shape), *arguments)


def indexing(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    """Tables and rows of language models and graphs, indices of the whole range."""
    size = dtype.itemsize
    tokens, edges, rows = 16384 // scale, 20000 // scale, 1000 // scale
    # Name, function, shapes of the tensors, of the indices, their range, elements an index.
    for name, function, shapes, places, end, run in (
        (
            "embedding",
            F.embedding,
            [(30000, 512)],
            (16, tokens // 16),
            30000,
            512,
        ),
        (
            "index_select",
            lambda i, table: table.index_select(0, i),
            [(30000, 512)],
            (tokens,),
            30000,
            512,
        ),
        (
            "index_add",
            lambda i, out, x: out.index_add_(0, i, x),
            [(5000, 256), (edges, 256)],
            (edges,),
            5000,
            256,
        ),
        (
            "gather",
            lambda i, x: x.gather(1, i),
            [(rows, 4000)],
            (rows, 4000),
            4000,
            1,
        ),
        (
            "scatter",
            lambda i, out, x: out.scatter_(1, i, x),
            [(rows, 4000), (rows, 4000)],
            (rows, 4000),
            4000,
            1,
        ),
    ):

        def make(device: str, function=function, shapes=shapes, places=places, end=end):
            tensors = tensors_of(shapes, device, dtype, "contiguous")
            indices = torch.randint(end, places).to(device)
            return lambda: function(indices, *tensors)

        moved = run * size_of(places) * size
        yield Case(
            "indexing",
            f"{name} {'x'.join(map(str, shapes[-1]))}",
            make,
            read=moved + 8 * size_of(places),
            written=moved,
        )


def norms(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    batch = max(1, 16 // scale)
    for layout in LAYOUTS:
        for channels, size in ((64, 112), (256, 56), (512, 28), (2048, 7)):
            shape = (batch, channels, size, size)
            shapes = [shape, (channels,), (channels,)]
            count = size_of(shape)

            def train(x, weight, bias):
                return F.batch_norm(x, None, None, weight, bias, training=True)

            def evaluate(x, weight, bias):
                # |weight| for a variance, so that no random one is negative
                return F.batch_norm(x, bias, weight.abs(), weight, bias)

            title = f"batch_norm {channels}x{size}x{size} {layout}"
            # The statistics are needed before the first value is written, so
            # training reads the input twice; backward reads two tensors twice.
            for make, text, reads, function in (
                (simple, f"{title} train", 2, train),
                (backward, title, 4, train),
                (simple, f"{title} eval", 1, evaluate),
            ):
                moved = reads * count, count
                yield make("norm", text, shapes, *moved, function, dtype, layout)
    rows = max(1, 16384 // scale)
    shapes = [(rows, 768), (768,), (768,)]
    count = rows * 768

    def layer_norm(x, weight, bias):
        return F.layer_norm(x, (768,), weight, bias)

    title = f"layer_norm {rows}x768"
    yield simple("norm", title, shapes, count, count, layer_norm, dtype)
    yield backward("norm", title, shapes, 2 * count, count, layer_norm, dtype)
    shape = (batch, 256, 56, 56)
    shapes = [shape, (256,), (256,)]
    count = size_of(shape)

    def group_norm(x, weight, bias):
        return F.group_norm(x, 32, weight, bias)

    title = "group_norm 32 groups 256x56x56"
    yield simple("norm", title, shapes, count, count, group_norm, dtype)
    yield backward("norm", title, shapes, 2 * count, count, group_norm, dtype)


def softmaxes(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    for shape, dim in (
        ((max(1, 16384 // scale), 1000), 1),
        ((max(1, 256 // scale), 50257), 1),
        ((max(1, 32 // scale), 21, 128, 128), 1),
    ):
        count = size_of(shape)
        title = "x".join(map(str, shape))
        for name, function in (
            ("softmax", lambda x, dim=dim: x.softmax(dim)),
            ("log_softmax", lambda x, dim=dim: x.log_softmax(dim)),
        ):
            text = f"{name} {title} dim {dim}"
            yield simple("softmax", text, [shape], count, count, function, dtype)
            yield backward("softmax", text, [shape], 2 * count, count, function, dtype)
    rows = max(1, 16384 // scale)
    yield cross_entropy(rows, dtype, is_backward=False)
    yield cross_entropy(rows, dtype, is_backward=True)


def cross_entropy(rows: int, dtype: torch.dtype, is_backward: bool) -> Case:
    def make(device: str) -> Run:
        x = random((rows, 1000), device, dtype).requires_grad_(is_backward)
        target = (torch.arange(rows) % 1000).to(device)
        if is_backward:
            return gradients(F.cross_entropy(x, target), [x])
        return lambda: F.cross_entropy(x, target)

    name = f"cross_entropy {rows}x1000" + (" backward" if is_backward else "")
    # What its ops write for each other counts: logarithms of probabilities, which
    # autograd keeps, and their gradient, which backward clears, writes and reads.
    count = rows * 1000 * dtype.itemsize * (2 if is_backward else 1)
    return Case("softmax", name, make, read=count, written=count)


def pointwise(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    shape = (max(1, 16 // scale), 64, 112, 112)
    row = (1, 64, 1, 1)
    count = size_of(shape)
    one, two, three = [shape], [shape, shape], [shape, shape, shape]
    for name, shapes, reads, function in (
        ("relu", one, 1, torch.relu),
        ("relu_", one, 1, torch.relu_),
        ("sigmoid", one, 1, torch.sigmoid),
        ("exp", one, 1, torch.exp),
        ("gelu", one, 1, F.gelu),
        ("silu", one, 1, F.silu),
        ("hardswish", one, 1, F.hardswish),
        ("relu6", one, 1, F.relu6),
        ("add", two, 2, torch.add),
        ("add_", two, 2, lambda x, y: x.add_(y)),
        ("mul by a number", one, 1, lambda x: x * 0.5),
        ("mul by a channel's", [shape, row], 1, torch.mul),
        ("addcmul", three, 3, torch.addcmul),
        ("where", two, 4, lambda x, y: torch.where(x > y, x, y)),
        ("lerp_", two, 2, lambda x, y: x.lerp_(y, 0.1)),
        (
            "threshold_backward",
            two,
            2,
            lambda x, y: torch.ops.aten.threshold_backward(x, y, 0),
        ),
        ("dropout", one, 1, lambda x: F.dropout(x, 0.5)),
    ):
        for layout in ("contiguous", "channels_last"):
            if layout == "channels_last" and name not in ("add", "mul by a channel's"):
                continue
            # A comparison writes a byte an element, which the selection reads.
            mask = count / dtype.itemsize if name == "where" else 0
            moved = reads * count + mask, count + mask
            title = f"{name} {layout}"
            yield simple("pointwise", title, shapes, *moved, function, dtype, layout)
    # Rows that are no full vectors: of an image, or of channels.
    for channels, side, layout in ((2048, 7, "contiguous"), (24, 56, "channels_last")):
        image = (max(1, 64 // scale), channels, side, side)
        yield simple(
            "pointwise",
            f"mul by a channel's {channels}x{side}x{side} {layout}",
            [image, (*image[:2], 1, 1)],
            size_of(image),
            size_of(image),
            torch.mul,
            dtype,
            layout,
        )
    yield simple(
        "pointwise",
        "add of a transposed matrix",
        [(4096 // scale, 4096 // scale)] * 2,
        2 * (4096 // scale) ** 2,
        (4096 // scale) ** 2,
        lambda x, y: x + y.t(),
        dtype,
    )


def reductions(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    side = 4096 // scale
    for name, shape, function in (
        ("sum of all", (side, side), torch.sum),
        ("sum of rows", (side, side), lambda x: x.sum(1)),
        ("sum of columns", (side, side), lambda x: x.sum(0)),
        ("sum of a matrix to 16", (16, side * side // 16), lambda x: x.sum(1)),
        (
            "sum over all but channels",
            (max(1, 16 // scale), 64, 112, 112),
            lambda x: x.sum((0, 2, 3)),
        ),
        (
            "mean of images",
            (max(1, 16 // scale), 64, 112, 112),
            lambda x: x.mean((2, 3)),
        ),
        ("max of all", (side, side), torch.max),
        ("argmax of rows", (side, side), lambda x: x.argmax(1)),
        ("var of rows", (side, side), lambda x: x.var(1)),
        ("norm", (side, side), torch.linalg.vector_norm),
        ("cumsum of rows", (side, side), lambda x: x.cumsum(1)),
    ):
        count = size_of(shape)
        results = count if "cumsum" in name else 0
        yield simple("reduction", name, [shape], count, results, function, dtype)
    shape = (max(1, 16 // scale), 64, 112, 112)
    yield simple(
        "reduction",
        "sum over all but channels, channels_last",
        [shape],
        size_of(shape),
        0,
        lambda x: x.sum((0, 2, 3)),
        dtype,
        "channels_last",
    )


def copies(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    shape = (max(1, 16 // scale), 64, 112, 112)
    side = 4096 // scale
    count = size_of(shape)
    matrix = (side, side)
    channels_last = torch.channels_last
    for name, shapes, read, written, function in (
        ("copy_", [shape] * 2, count, count, lambda x, y: x.copy_(y)),
        ("clone", [shape], count, count, torch.clone),
        ("fill_", [shape], 0, count, lambda x: x.fill_(1.0)),
        ("zero_", [shape], 0, count, torch.zero_),
        ("transposed", [matrix], side**2, side**2, lambda x: x.t().contiguous()),
        (
            "to channels_last",
            [shape],
            count,
            count,
            lambda x: x.contiguous(memory_format=channels_last),
        ),
        (
            "permuted 0213",
            [shape],
            count,
            count,
            lambda x: x.permute(0, 2, 1, 3).clone(),
        ),
        (
            "every second",
            [matrix],
            side**2 / 2,
            side**2 / 2,
            lambda x: x[:, ::2].contiguous(),
        ),
        ("cat", [shape] * 2, 2 * count, 2 * count, lambda x, y: torch.cat((x, y), 1)),
        (
            "expanded",
            [(1, side)],
            0,
            side**2,
            lambda x: x.expand(side, side).contiguous(),
        ),
    ):
        yield simple("copy", name, shapes, read, written, function, dtype)

    def index_select(device: str) -> Run:
        values = random(matrix, device, dtype)
        rows = torch.arange(side).flip(0).to(device)
        return lambda: values.index_select(0, rows)

    size = side**2 * dtype.itemsize
    yield Case("copy", "index_select of rows", index_select, read=size, written=size)


def casts(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    """These name their dtypes themselves."""
    count = (1 << 24) // scale
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64)
    pairs = [(torch.float32, kind) for kind in (*kinds, torch.bool)]
    pairs += [(kind, torch.float32) for kind in (*kinds, torch.uint8)]
    for source, target in pairs:

        def make(device: str, source=source, target=target) -> Run:
            values = random((count,), device).abs().to(source)
            return lambda: values.to(target)

        name = f"{source} -> {target}".replace("torch.", "")
        read, written = count * source.itemsize, count * target.itemsize
        yield Case("cast", name, make, read=read, written=written)


def shuffles(dtype: torch.dtype, scale: int) -> Iterator[Case]:
    batch = max(1, 16 // scale)
    for layout in LAYOUTS:
        for factor in (2, 4):
            size = 448 // factor
            shape = (batch, 16 * factor**2 // 4, size, size)
            large = (batch, 4, size * factor, size * factor)
            count = size_of(shape)
            yield simple(
                "pixel_shuffle",
                f"pixel_shuffle {factor} {layout}",
                [shape],
                count,
                count,
                lambda x, factor=factor: F.pixel_shuffle(x, factor),
                dtype,
                layout,
            )
            yield simple(
                "pixel_shuffle",
                f"pixel_unshuffle {factor} {layout}",
                [large],
                count,
                count,
                lambda x, factor=factor: F.pixel_unshuffle(x, factor),
                dtype,
                layout,
            )
