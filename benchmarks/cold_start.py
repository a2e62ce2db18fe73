"""Measures how long a new process takes until its first step.

    python benchmarks/cold_start.py
    python benchmarks/cold_start.py --model mobilenet_v2 --mode train --devices opencl:1

Each device gets two processes that share a new, empty directory for compiled
programs: the first one compiles (cold), the second finds all of them there
(warm). The drivers' own caches (PoCL's, NVIDIA's) lie in it, too. "from import"
is everything but building the model on the CPU.
"""

from __future__ import annotations

# Nothing here imports torch: a child process times that.
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

_STAGES = {
    "import": "import\ntorch",
    "first": "first step",
    "second": "second step",
    "total": "from import",
}


def child(options: argparse.Namespace) -> dict[str, float]:
    """The stages of a start, in seconds."""
    started = time.perf_counter()
    import torch
    import torch_opencl  # noqa: F401  (loaded by `import torch` where installed)

    stages = {"import": time.perf_counter() - started}
    import measure
    import networks

    # Its cost is the CPU's: the weights are drawn there.
    model = networks.build(options.model)
    networks.build = lambda name: model
    started = time.perf_counter()
    place = networks.Place(options.device, options.memory_format)
    step = networks.step_of(options.model, options.mode, place, options)
    for name in ("first", "second"):
        step()
        measure.synchronize(options.device)
        stages[name] = time.perf_counter() - started
        started = time.perf_counter()
    stages["total"] = stages["import"] + stages["first"]
    if torch.device(options.device).type == "opencl":
        statistics = torch.opencl.program_cache_stats(options.device)
        stages["built"] = statistics["built"]
        stages["loaded"] = statistics["loaded"]
    return stages


def run_child(options: argparse.Namespace, device: str, cache: str) -> dict[str, float]:
    variables = ("TORCH_OPENCL_CACHE_DIR", "POCL_CACHE_DIR", "CUDA_CACHE_PATH")
    environment = dict(os.environ)
    for name in variables:
        environment[name] = os.path.join(cache, name)
        os.makedirs(environment[name], exist_ok=True)
    arguments = {**vars(options), "device": device}
    process = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(arguments)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if process.returncode != 0:
        raise RuntimeError(f"the process for {device} failed:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    import measure
    from networks import MODES

    parser = measure.parser_of(__doc__)
    parser.add_argument("--model", default="resnet50", help="default: %(default)s")
    parser.add_argument("--mode", choices=MODES, default="infer")
    measure.add_common_options(parser)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    options = parser.parse_args(arguments)
    if options.quick:
        options.batch, options.image_size = 1, 64
    options.memory_format, options.dtype = "contiguous", "float32"
    options.autocast = None
    return options


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(argparse.Namespace(**json.loads(sys.argv[2])))))
        return 0
    options = parse()
    import measure
    from rich.table import Table

    console = measure.console_of(options)
    rows = []
    with console.status("") as status:
        for device in options.devices:
            with tempfile.TemporaryDirectory() as cache:
                for start in ("cold", "warm"):
                    status.update(f"{device}, {start}")
                    stages = run_child(options, device, cache)
                    rows.append({"device": device, "start": start, **stages})
    table = Table(title=f"{options.model} {options.mode}, batch {options.batch}, s")
    table.add_column("device")
    table.add_column("disk cache")
    for heading in (*_STAGES.values(), "programs\nbuilt", "loaded"):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{row[name]:.2f}" for name in _STAGES]
        cells += [str(row.get(name, "")) for name in ("built", "loaded")]
        table.add_row(row["device"], row["start"], *cells)
    console.print(table)
    if options.json:
        settings = ("model", "mode", "batch", "image_size")
        record = {
            "benchmark": "cold_start",
            "machine": measure.describe_machine(options.devices),
            "settings": {name: getattr(options, name) for name in settings},
            "rows": rows,
        }
        measure.write_json(options.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
