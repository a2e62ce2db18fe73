"""all_reduce of tensors on the device beside gloo's of CPU tensors, in turns.

    python benchmarks/distributed.py --device opencl:0 --processes 2
    python benchmarks/distributed.py --megabytes 1 16 64 --json numbers.json

Prints the smallest time of each, which other programs disturb least, the bytes of the
tensor a second, and what the device has of gloo's own. Processes share the device.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
import time

import measure
import torch
import torch.distributed as dist
import torch.multiprocessing

KIBIBYTES = [1, 16, 256, 1024, 4096, 16384, 65536]


def _seconds(tensor: torch.Tensor, repeats: int) -> float:
    """Of one all_reduce, until its result can be read."""
    times = []
    for _ in range(repeats):
        if tensor.device.type == "opencl":
            torch.opencl.synchronize()
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        if tensor.device.type == "opencl":
            torch.opencl.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def _measure(rank: int, arguments: argparse.Namespace, path: str) -> None:
    torch.set_num_threads(1)
    device = torch.device(arguments.device)
    torch.opencl.set_device(device)
    dist.init_process_group(
        init_method=f"file://{path}/store",
        rank=rank,
        world_size=arguments.processes,
        timeout=datetime.timedelta(seconds=300),
    )
    rows = []
    for kibibytes in arguments.kibibytes:
        tensors = [
            torch.ones(kibibytes * 256, device=where) for where in ("cpu", device)
        ]
        repeats = max(3, min(arguments.repeats, 200 * 1024 // kibibytes))
        for tensor in tensors:
            _seconds(tensor, 2)
        halves = [[_seconds(x, repeats) for x in tensors] for _ in range(2)]
        gloo, ours = map(min, zip(*halves, strict=True))
        size = kibibytes * 1024
        rows.append(
            {
                "bytes": size,
                "gloo_ms": gloo * 1e3,
                "opencl_ms": ours * 1e3,
                "gloo_GBps": size / gloo * 1e-9,
                "opencl_GBps": size / ours * 1e-9,
                "share": gloo / ours,
            }
        )
        if rank == 0:
            print(
                f"{kibibytes:>8} KiB  gloo {gloo * 1e3:9.3f} ms  "
                f"{arguments.device} {ours * 1e3:9.3f} ms  "
                f"{size / ours * 1e-9:6.3f} GB/s  {gloo / ours:5.2f} of gloo's",
                flush=True,
            )
    if rank == 0 and arguments.json:
        measure.write_json(arguments.json, {"all_reduce": rows})
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--megabytes", type=float, nargs="+", help="sizes in MiB")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    arguments.kibibytes = [round(m * 1024) for m in arguments.megabytes or []]
    if not arguments.kibibytes:
        arguments.kibibytes = KIBIBYTES[:3] if arguments.quick else KIBIBYTES
    with tempfile.TemporaryDirectory() as path:
        torch.multiprocessing.spawn(
            _measure, (arguments, path), nprocs=arguments.processes
        )


if __name__ == "__main__":
    main()
