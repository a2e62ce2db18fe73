"""Chains of ops, eager and compiled in turns.

    python benchmarks/compile.py --device opencl:0 --repeats 30
    python benchmarks/compile.py --device cpu          the competitor

Prints the smallest time of each, which other programs disturb least, their ratio, the
kernels that a compiled call launches, and the seconds that compiling took.
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
}


def _milliseconds(function, arguments, synchronize) -> float:
    synchronize()
    start = time.perf_counter()
    function(*arguments)
    synchronize()
    return (time.perf_counter() - start) * 1e3


def times_of(function, shapes, device: torch.device, repeats: int) -> dict:
    """Of one chain: milliseconds, kernels of a compiled call, seconds to compile."""
    arguments = [torch.randn(shape, device=device) for shape in shapes]

    def synchronize() -> None:
        if device.type == "opencl":
            torch.opencl.synchronize(device)

    metrics.reset()
    compiled = torch.compile(function, fullgraph=True)
    with torch.no_grad():
        start = time.perf_counter()
        compiled(*arguments)
        synchronize()
        seconds = time.perf_counter() - start
        function(*arguments)
        times = [
            [_milliseconds(f, arguments, synchronize) for f in (function, compiled)]
            for _ in range(repeats)
        ]
    eager, ours = map(min, zip(*times, strict=True))
    return {
        "eager_ms": eager,
        "compiled_ms": ours,
        "ratio": eager / ours,
        "kernels": metrics.generated_kernel_count,
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
    print(f"{options.device}, ms: {'':14s} eager  compiled  ratio  kernels  compile s")
    for name, (function, shapes) in CHAINS.items():
        row = record[name] = times_of(function, shapes, options.device, repeats)
        print(
            f"{name:26s} {row['eager_ms']:9.2f} {row['compiled_ms']:9.2f} "
            f"{row['ratio']:6.2f} {row['kernels']:8d} {row['compile_s']:8.1f}",
            flush=True,
        )
    if options.json:
        measure.write_json(options.json, record)


if __name__ == "__main__":
    main()
