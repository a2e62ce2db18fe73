"""Chains of ops, eager, compiled and compiled to be replayed, in turns.

    python benchmarks/compile.py --device opencl:0 --repeats 30
    python benchmarks/compile.py --device cpu          the competitor

Prints the smallest time of each, which other programs disturb least, and that of the
host until the replayed call returns; the ratio of eager to compiled, the kernels that
a compiled call launches, and the seconds that compiling took. Where the name says so, a
call computes the gradients of all operands, too.
"""

from __future__ import annotations

import argparse
import time

import measure
import torch
import torch.nn.functional as F
from torch._inductor import metrics


def _gelu_layer_norm(x, bias, residual, weight):
    return F.layer_norm(F.gelu(x + bias) + residual, (768,), weight, bias)


def _batch_norm_relu(x, other, weight):
    y = F.batch_norm(x, None, None, weight, weight, True)
    return F.relu(y + other)


def _masked_softmax(x, mask):
    return torch.softmax(x * 0.125 + mask, -1)


def _layers(x, weight, narrow):
    for _ in range(8):
        x = x + F.gelu(F.layer_norm(x, (128,)) @ weight) @ narrow
    return x


CHAINS = {
    "gelu, residual, layer_norm": (
        _gelu_layer_norm,
        ((4096, 768), (768,), (4096, 768), (768,)),
    ),
    "batch_norm, add, relu": (
        _batch_norm_relu,
        ((16, 256, 56, 56), (16, 256, 56, 56), (256,)),
    ),
    "scale, mask, softmax": (_masked_softmax, ((8, 8, 256, 256), (256, 256))),
    "eight layers of 4 x 128": (_layers, ((4, 128), (128, 512), (512, 128))),
    "their gradients, too": (_layers, ((4, 128), (128, 512), (512, 128))),
}
_WITH_GRADIENTS = "their gradients, too"


def _milliseconds(function, arguments, synchronize) -> tuple[float, float]:
    """Of a call, and of the host until it returned."""
    synchronize()
    start = time.perf_counter()
    function(*arguments)
    returned = time.perf_counter()
    synchronize()
    return (time.perf_counter() - start) * 1e3, (returned - start) * 1e3


def _with_gradients(function):
    def call(*arguments):
        for argument in arguments:
            argument.grad = None
        function(*arguments).sum().backward()

    return call


def times_of(
    function, shapes, trains: bool, device: torch.device, repeats: int
) -> dict:
    """Of one chain: milliseconds, kernels of a compiled call, seconds to compile."""
    arguments = [
        (torch.randn(shape, device=device) / shape[0] ** 0.5).requires_grad_(trains)
        for shape in shapes
    ]

    def synchronize() -> None:
        if device.type == "opencl":
            torch.opencl.synchronize(device)

    metrics.reset()
    compiled = torch.compile(function, fullgraph=True)
    replayed = torch.compile(function, fullgraph=True, mode="reduce-overhead")
    calls = [function, compiled, replayed]
    if trains:
        calls = [_with_gradients(call) for call in calls]
        for argument in arguments:  # parameters, which no replay copies
            torch._dynamo.mark_static_address(argument)
    with torch.set_grad_enabled(trains):
        start = time.perf_counter()
        calls[1](*arguments)
        synchronize()
        seconds = time.perf_counter() - start
        kernels = metrics.generated_kernel_count
        for call in calls * 4:  # captures come with the third one at the latest
            call(*arguments)
        times = [
            [_milliseconds(call, arguments, synchronize) for call in calls]
            for _ in range(repeats)
        ]
    eager, ours, again = (
        [min(values) for values in zip(*of_call, strict=True)]
        for of_call in zip(*times, strict=True)
    )
    return {
        "eager_ms": eager[0],
        "compiled_ms": ours[0],
        "replayed_ms": again[0],
        "eager_host_ms": eager[1],
        "compiled_host_ms": ours[1],
        "replayed_host_ms": again[1],
        "ratio": eager[0] / ours[0],
        "kernels": kernels,
        "compile_s": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="opencl:0")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="two repeats")
    parser.add_argument("--json", help="file for the numbers")
    options = parser.parse_args()
    repeats = 2 if options.quick else options.repeats
    record = {}
    heading = "eager  compiled  replayed  its host  ratio  kernels  compile s"
    print(f"{options.device}, ms: {'':14s} {heading}")
    for name, (function, shapes) in CHAINS.items():
        row = record[name] = times_of(
            function, shapes, name == _WITH_GRADIENTS, options.device, repeats
        )
        print(
            f"{name:26s} {row['eager_ms']:9.2f} {row['compiled_ms']:9.2f} "
            f"{row['replayed_ms']:9.2f} {row['replayed_host_ms']:9.2f} "
            f"{row['ratio']:6.2f} {row['kernels']:8d} {row['compile_s']:8.1f}",
            flush=True,
        )
    if options.json:
        measure.write_json(options.json, record)


if __name__ == "__main__":
    main()
