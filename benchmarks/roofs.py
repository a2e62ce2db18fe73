"""Measures what a device can do: float32 FMA peak and copy bandwidth.

    python benchmarks/roofs.py --devices opencl:0 opencl:1 cpu

The kernels are plain OpenCL, compiled by pyopencl in a process of their own:
the bars that other benchmarks are held against owe nothing to this project.
The peak is the best of a few shapes of independent fma chains, the bandwidth
that of the best of a copying kernel and clEnqueueCopyBuffer on buffers larger
than any cache, counting bytes read and bytes written. For other devices the
bandwidth is that of torch's copy_; the peak of torch's CPU is what the OpenCL
drivers for CPUs reach.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

_COPY_BYTES = 256 << 20
_ROUNDS = 7
_FLOATS = 4

# Vector type, its width, independent chains, work-group size: drivers for CPUs
# want explicit vectors, GPUs scalars, and some pack work-items by themselves.
_SHAPES = (
    ("float16", 16, 10, 1),
    ("float16", 16, 20, 1),
    ("float8", 8, 12, 1),
    ("float", 1, 12, 64),
    ("float", 1, 16, 256),
    ("float4", 4, 8, 64),
)
_SOURCE = """
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void peak(global float *out, const float a, const float b, const int steps) {
  VECTOR chains[CHAINS];
  #pragma unroll
  for (int i = 0; i < CHAINS; ++i) {
    chains[i] = (VECTOR)(float)(get_global_id(0) + i);
  }
  const VECTOR factor = (VECTOR)a, term = (VECTOR)b;
  for (int step = 0; step < steps; ++step) {
    #pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
      chains[i] = fma(chains[i], factor, term);
    }
  }
  VECTOR sum = (VECTOR)0.0f;
  #pragma unroll
  for (int i = 0; i < CHAINS; ++i) {
    sum += chains[i];
  }
  out[get_global_id(0)] = FIRST(sum);
}
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void copy(global float4 *out, global const float4 *in) {
  out[get_global_id(0)] = in[get_global_id(0)];
}
"""


@dataclass
class Roof:
    """FLOP/s of float32 fma, a fma being two, and bytes/s of a copy."""

    flops: float | None
    bandwidth: float

    def floor(self, flops: float, moved: float) -> float:
        """Seconds that so much work takes at least."""
        seconds = moved / self.bandwidth
        return max(seconds, flops / self.flops) if self.flops else seconds


def roof_of(device: str, quick: bool = False) -> Roof:
    import measure
    import torch

    if torch.device(device).type != "opencl":
        count = (_COPY_BYTES >> (4 if quick else 0)) // _FLOATS
        source = torch.ones(count, device=device)
        target = torch.empty_like(source)
        times = [
            measure.seconds_of(lambda: target.copy_(source), device)
            for _ in range(_ROUNDS)
        ]
        return Roof(None, 2 * source.nbytes / statistics.median(times[1:]))
    properties = torch.opencl.get_device_properties(device)
    wanted = {
        "platform_version": properties.platform_version,
        "name": properties.name,
        "quick": quick,
    }
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as directory:
        if properties.library:
            # A driver of the virtual environment, which no loader finds.
            Path(directory, "driver.icd").write_text(f"{properties.library}\n")
            environment["OCL_ICD_VENDORS"] = directory
            libraries = (
                str(Path(properties.library).parent),
                environment.get("LD_LIBRARY_PATH", ""),
            )
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
        process = subprocess.run(
            [sys.executable, __file__, "--child", json.dumps(wanted)],
            env=environment,
            capture_output=True,
            text=True,
        )
    if process.returncode != 0:
        raise RuntimeError(f"the roofs of {device}:\n{process.stderr}")
    return Roof(**json.loads(process.stdout.splitlines()[-1]))


def roofs_of(devices: list[str], quick: bool = False) -> dict[str, Roof]:
    import torch

    roofs = {device: roof_of(device, quick) for device in devices}
    peaks = [
        roof.flops
        for device, roof in roofs.items()
        if torch.device(device).type == "opencl"
        and not torch.opencl.get_device_properties(device).is_gpu
    ]
    if "cpu" in roofs and peaks:
        roofs["cpu"].flops = max(peaks)
    return roofs


def best(rounds: int, run) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_of(context, queue, device, shape, quick: bool) -> float:
    import numpy
    import pyopencl as cl

    vector, width, chains, work_group = shape
    program = cl.Program(context, _SOURCE).build(
        [
            f"-D VECTOR={vector}",
            f"-D CHAINS={chains}",
            f"-D WG_SIZE={work_group}",
            f"-D FIRST(v)={'(v)' if width == 1 else '(v).s0'}",
        ]
    )
    is_gpu = bool(device.type & cl.device_type.GPU)
    items = device.max_compute_units * (64 if is_gpu else 16) * max(work_group, 16)
    items = items // work_group * work_group
    out = cl.Buffer(context, cl.mem_flags.READ_WRITE, _FLOATS * items)
    kernel = cl.Kernel(program, "peak")
    steps = 256

    def run() -> None:
        kernel(
            queue,
            (items,),
            (work_group,),
            out,
            numpy.float32(0.999),
            numpy.float32(0.001),
            numpy.int32(steps),
        )
        queue.finish()

    run()
    wanted = 0.01 if quick else 0.05
    while (seconds := best(2, run)) < wanted and steps < 1 << 24:
        steps = int(steps * min(16, max(2, 1.2 * wanted / seconds)))
    seconds = best(2 if quick else _ROUNDS, run)
    return 2.0 * items * width * chains * steps / seconds


def bandwidth_of(context, queue, quick: bool) -> float:
    import pyopencl as cl

    size = _COPY_BYTES >> (4 if quick else 0)
    source = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
    program = cl.Program(context, _SOURCE).build(
        ["-D VECTOR=float", "-D CHAINS=1", "-D WG_SIZE=64", "-D FIRST(v)=(v)"]
    )
    kernel = cl.Kernel(program, "copy")

    def by_kernel() -> None:
        kernel(queue, (size // 16,), (64,), target, source)
        queue.finish()

    def by_command() -> None:
        cl.enqueue_copy(queue, target, source, byte_count=size)
        queue.finish()

    # Pages that were never written are all the same one, and in the caches.
    for buffer in (source, target):
        cl.enqueue_fill_buffer(queue, buffer, b"\1", 0, size)
    by_command()
    by_kernel()
    return 2.0 * size / min(best(_ROUNDS, by_kernel), best(_ROUNDS, by_command))


def child(wanted: dict[str, object]) -> Roof:
    import pyopencl as cl

    for platform in cl.get_platforms():
        for device in platform.get_devices():
            if (platform.version, device.name) == (
                wanted["platform_version"],
                wanted["name"],
            ):
                context = cl.Context([device])
                queue = cl.CommandQueue(context)
                quick = bool(wanted["quick"])
                return Roof(
                    max(
                        peak_of(context, queue, device, shape, quick)
                        for shape in _SHAPES
                    ),
                    bandwidth_of(context, queue, quick),
                )
    raise RuntimeError(f"pyopencl finds no device {wanted}")


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(asdict(child(json.loads(sys.argv[2])))))
        return
    import measure

    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    options = parser.parse_args()
    measure.apply_common_options(options)
    roofs = roofs_of(options.devices, options.quick)
    console = measure.console_of(options)
    for device, roof in roofs.items():
        peak = f"{roof.flops / 1e9:.0f} GFLOP/s, " if roof.flops else ""
        console.print(f"{device}: {peak}{roof.bandwidth / 1e9:.1f} GB/s")
    if options.json:
        record = {device: asdict(roof) for device, roof in roofs.items()}
        measure.write_json(options.json, {"benchmark": "roofs", "roofs": record})


if __name__ == "__main__":
    main()
