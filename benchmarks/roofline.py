"""Measures what a device can do: float32 FMA peak and copy bandwidth.

    python benchmarks/roofline.py --devices opencl:0 opencl:1 cpu

The kernels are plain OpenCL, compiled by pyopencl in a process of their own:
the bars that other benchmarks are held against owe nothing to this project.
The peak is the best of a few shapes of independent fma chains, the bandwidth
that of the best of a copying kernel and clEnqueueCopyBuffer on buffers larger
than any cache, counting bytes read and bytes written. For other devices the
bandwidth is that of torch's copy_; the peak of torch's CPU is what the OpenCL
drivers for CPUs reach.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass

import measure
import torch
from plain_opencl import measured

_COPY_BYTES = 256 << 20
_ROUNDS = 7


@dataclass
class Roof:
    """FLOP/s of float32 fma, a fma being two, and bytes/s of a copy."""

    flops: float | None
    bandwidth: float

    def floor(self, flops: float, moved: float) -> float:
        """Seconds that so much work takes at least."""
        seconds = moved / self.bandwidth
        return max(seconds, flops / self.flops) if self.flops else seconds


def roofline_of(device: str, quick: bool = False) -> Roof:
    if torch.device(device).type == "opencl":
        return Roof(**measured(device, "roofline", quick))
    size = _COPY_BYTES >> (4 if quick else 0)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [
        measure.seconds_of(lambda: target.copy_(source), device) for _ in range(_ROUNDS)
    ]
    return Roof(None, 2 * size / statistics.median(times[1:]))


def rooflines_of(devices: list[str], quick: bool = False) -> dict[str, Roof]:
    rooflines = {device: roofline_of(device, quick) for device in devices}
    peaks = [
        roofline.flops
        for device, roofline in rooflines.items()
        if torch.device(device).type == "opencl"
        and not torch.opencl.get_device_properties(device).is_gpu
    ]
    if "cpu" in rooflines and peaks:
        rooflines["cpu"].flops = max(peaks)
    return rooflines


def main() -> None:
    parser = measure.parser_of(__doc__)
    measure.add_common_options(parser)
    options = parser.parse_args()
    measure.apply_common_options(options)
    rooflines = rooflines_of(options.devices, options.quick)
    console = measure.console_of(options)
    for device, roofline in rooflines.items():
        peak = f"{roofline.flops / 1e9:.0f} GFLOP/s, " if roofline.flops else ""
        console.print(f"{device}: {peak}{roofline.bandwidth / 1e9:.1f} GB/s")
    if options.json:
        record = {device: asdict(roofline) for device, roofline in rooflines.items()}
        measure.write_json(
            options.json, {"benchmark": "rooflines", "rooflines": record}
        )


if __name__ == "__main__":
    main()
