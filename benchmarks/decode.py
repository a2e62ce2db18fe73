"""Tokens a second of a Llama-shaped decoder, and its first token of a long prompt.

    python benchmarks/decode.py --weights float32 bfloat16 int8 int4
    python benchmarks/decode.py --width 512 --layers 4 --prompt 128 --devices opencl:0 cpu

The network is made here, of random weights: about 100 million parameters unless sizes
say otherwise, with a static KV cache. int8 and int4 have a scale a row, or a pair a
group of 128, and inputs of --activations. Devices are measured in turns; "GB/s" is the
bytes of weights over the time of a token: the bandwidth they were read with.
"""

from __future__ import annotations

import argparse
import statistics

import measure
import torch
import torch.nn.functional as F
from gpu.zoo import rotated
from rich.table import Table
from torch import nn
from torch_opencl.nn import quantize_linears

WEIGHTS = ("float32", "bfloat16", "float16", "int8", "int4")


class Layer(nn.Module):
    def __init__(self, o: argparse.Namespace) -> None:
        super().__init__()
        self.heads, self.key_heads, self.dim = o.heads, o.key_heads, o.width // o.heads
        wide = o.width + 2 * o.key_heads * self.dim
        self.before = nn.RMSNorm(o.width)
        self.qkv = nn.Linear(o.width, wide, bias=False)
        self.out = nn.Linear(o.width, o.width, bias=False)
        self.after = nn.RMSNorm(o.width)
        self.gate_up = nn.Linear(o.width, 2 * o.hidden, bias=False)
        self.down = nn.Linear(o.hidden, o.width, bias=False)
        size = (1, o.key_heads, o.prompt + o.tokens, self.dim)
        self.register_buffer("keys", torch.zeros(size), persistent=False)
        self.register_buffer("values", torch.zeros(size), persistent=False)

    def forward(self, x, places, cos, sin, mask):
        _, length, width = x.shape
        parts = self.qkv(self.before(x)).view(1, length, -1, self.dim).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.key_heads, self.key_heads], 1)
        q, k = (y * cos + rotated(y) * sin for y in (q, k))
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        seen = F.scaled_dot_product_attention(
            q, self.keys, self.values, mask, enable_gqa=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(1, length, width))
        gate, up = self.gate_up(self.after(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """Llama's layers: RMSNorm, rotary embedding, grouped heads, SwiGLU."""

    def __init__(self, o: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(o.vocabulary, o.width)
        self.layers = nn.ModuleList(Layer(o) for _ in range(o.layers))
        self.last = nn.RMSNorm(o.width)
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)
        length, dim = o.prompt + o.tokens, o.width // o.heads
        rates = 10000 ** (-torch.arange(0, dim, 2) / dim)
        angles = torch.arange(length)[:, None] * rates.repeat(2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, codes: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """The next code (1, 1), of ``codes`` (1, n) at ``places``."""
        x = self.embedding(codes)
        cos, sin, mask = (t[places] for t in (self.cos, self.sin, self.mask))
        for layer in self.layers:
            x = layer(x, places, cos, sin, mask)
        return self.head(self.last(x[:, -1:])).argmax(-1)


def build(options: argparse.Namespace, weights: str, device: str) -> Decoder:
    """The same weights on every device, but for what int4 rounds to."""
    torch.manual_seed(0)
    dtype = options.activations if weights.startswith("int") else weights
    model = Decoder(options).to(measure.DTYPES[dtype]).to(device).eval()
    if weights.startswith("int"):
        quantize_linears(model, int(weights[3:]))
    return model


def bytes_of_token(model: Decoder) -> int:
    """Of what a token reads: all but the embedding, of which it reads a row."""
    tensors = [*model.layers.parameters(), *model.head.parameters()]
    tensors += [
        buffer
        for name, buffer in model.named_buffers()
        if name.endswith(("weight", "scales", "scales_and_zeros"))
    ]
    return sum(t.numel() * t.element_size() for t in tensors)


class Runs:
    """One device's model, and what is timed of it."""

    def __init__(self, options, weights: str, device: str) -> None:
        self.model = build(options, weights, device)
        self.options = options
        length = options.prompt + options.tokens
        self.places = torch.arange(length, device=device)
        self.prompt = torch.arange(options.prompt, device=device)[None] % 1000
        self.steps = self.places[options.prompt :].split(1)
        self.code = self.first_token()

    @torch.no_grad()
    def first_token(self) -> torch.Tensor:
        return self.model(self.prompt, self.places[: self.options.prompt])

    @torch.no_grad()
    def decode(self) -> torch.Tensor:
        """Every token feeds the next one, and stays on the device."""
        code = self.code
        for place in self.steps:
            code = self.model(code, place)
        return code


def measured(options: argparse.Namespace, weights: str) -> dict[str, dict[str, float]]:
    runs = {device: Runs(options, weights, device) for device in options.devices}
    seconds = 2 if options.quick else options.seconds
    rounds = (1, 1) if options.quick else (3, 50)
    record: dict[str, dict[str, float]] = {}
    timings = {
        "token": {name: run.decode for name, run in runs.items()},
        "first": {name: run.first_token for name, run in runs.items()},
    }
    times = {
        what: measure.interleave(functions, seconds=seconds, rounds=rounds)
        for what, functions in timings.items()
    }
    last = options.devices[-1]
    for name, run in runs.items():
        token = statistics.median(times["token"][name]) / options.tokens
        size = bytes_of_token(run.model)
        record[name] = {
            "tokens_per_second": 1 / token,
            "ratio": measure.ratio(times["token"][name], times["token"][last]),
            "megabytes": size / 1e6,
            "gigabytes_per_second": size / token / 1e9,
            "first_token_ms": statistics.median(times["first"][name]) * 1e3,
            "first_ratio": measure.ratio(times["first"][name], times["first"][last]),
        }
    return record


def add_sizes(parser: argparse.ArgumentParser) -> None:
    for name, value in {
        "width": 768,
        "layers": 12,
        "heads": 12,
        "key-heads": 4,
        "hidden": 2048,
        "vocabulary": 32000,
        "prompt": 512,
        "tokens": 16,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help="%(default)s")


def main() -> None:
    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=None)
    parser.add_argument(
        "--activations", choices=list(measure.DTYPES), default="bfloat16"
    )
    parser.add_argument("--seconds", type=float, default=20, help="of a measurement")
    add_sizes(parser)
    options = parser.parse_args()
    if options.quick:
        options.width, options.heads, options.key_heads = 128, 4, 2
        options.layers, options.hidden, options.vocabulary = 2, 256, 512
        options.prompt, options.tokens = 16, 4
    measure.apply_common_options(options)
    console = measure.console_of(options)
    record = {"machine": measure.describe_machine(options.devices), "weights": {}}
    measure.show_machine(record, console)
    table = Table("weights", "device", "tokens/s", "ratio", "MB", "GB/s", "first ms")
    table.add_column("ratio")
    torch.opencl.reset_fallback_stats()
    for weights in options.weights or ("float32", "bfloat16", "int8", "int4"):
        rows = record["weights"][weights] = measured(options, weights)
        for name, row in rows.items():
            table.add_row(
                weights,
                name,
                f"{row['tokens_per_second']:.1f}",
                f"{row['ratio']:.2f}",
                f"{row['megabytes']:.1f}",
                f"{row['gigabytes_per_second']:.1f}",
                f"{row['first_token_ms']:.1f}",
                f"{row['first_ratio']:.2f}",
            )
    console.print(table)
    record["fallbacks"] = torch.opencl.fallback_stats()
    measure.show_fallbacks(record, console)
    if options.json:
        measure.write_json(options.json, record)


if __name__ == "__main__":
    main()
