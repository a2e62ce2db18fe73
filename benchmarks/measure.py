"""What the benchmarks share: devices, interleaved timing, ratios, output.

Devices are measured in turns, A B A B, so that a change of the machine's speed
meets all of them, and a ratio is made within a turn. All CPU devices share the
processor's cores, and threads of torch's OpenMP spin for up to 8 ms after their
last task, which made bursts of short calls that followed up to twice as long. So
a turn begins when the process uses no processor, and with calls that are not
timed: they wake the device's own threads, and bring back into the caches what the
other devices' turns displaced, which took a fill of 6 MB up to 160 calls.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
import torch_opencl
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

DTYPES = {"float32": torch.float32, "float16": torch.float16}
DTYPES["bfloat16"] = torch.bfloat16
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
# A burst of calls shorter than this is dominated by the wait that ends it.
_BURST_SECONDS = 0.02
_LONGEST_BURST = 1000
# Of a burst's calls, ahead of it: those of 12 ms.
WARMING_SHARE = 0.6


def default_devices() -> list[str]:
    """All there are, torch's own last: ratios are to the last one."""
    names = [f"opencl:{index}" for index in range(torch.opencl.device_count())]
    if torch.cuda.is_available():
        names.append("cuda:0")
    return [*names, "cpu"]


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--devices",
        nargs="+",
        default=default_devices(),
        metavar="DEVICE",
        help="default: %(default)s; ratios are to the last one",
    )
    parser.add_argument("--threads", type=int, help="of torch's CPU; default: all")
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - for stdout")
    parser.add_argument("--quick", action="store_true", help="small and inaccurate")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def apply_common_options(options: argparse.Namespace) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    if torch.cuda.is_available():
        # The other devices compute in float32 as well.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    for name in options.devices:
        torch.empty(1, device=name)


def synchronize(device: str | torch.device) -> None:
    device = torch.device(device)
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def release(devices: Iterable[str]) -> None:
    """Gives back what no tensor uses any more."""
    gc.collect()
    for kind in {torch.device(device).type for device in devices} - {"cpu"}:
        getattr(torch, kind).empty_cache()


def seconds_of(function: Callable[[], object], device: str, calls: int = 1) -> float:
    """A call's time: ``calls`` of them, then one wait for the device."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        function()
    synchronize(device)
    return (time.perf_counter() - start) / calls


def wait_for_idle_threads(limit: float = 0.5) -> None:
    """Waits until no thread of this process runs, ``limit`` seconds at most."""
    started = time.perf_counter()
    while time.perf_counter() - started < limit:
        used = time.process_time()
        time.sleep(0.002)
        if time.process_time() - used < 0.0002:
            return


def burst_of(function: Callable[[], object], device: str) -> int:
    """How many calls make a burst that is long enough to be timed."""
    function()
    seconds = seconds_of(function, device)
    return max(1, min(_LONGEST_BURST, math.ceil(_BURST_SECONDS / seconds)))


def interleave(
    functions: dict[str, Callable[[], object]],
    *,
    seconds: float,
    rounds: tuple[int, int] = (3, 50),
    places: dict[str, str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, list[float]]:
    """Times of a call, by device, one a round.

    Args:
        functions: what to call, by device.
        seconds: about how long to measure, all devices together.
        rounds: at least, at most.
        places: the devices, where ``functions`` has other names.
    """
    places = places or {name: name for name in functions}
    bursts = {}
    for device, function in functions.items():
        progress(f"{device}: warm-up")
        bursts[device] = burst_of(function, places[device])
    times: dict[str, list[float]] = {device: [] for device in functions}
    started = time.perf_counter()
    for number in range(rounds[1]):
        if number >= rounds[0] and time.perf_counter() - started > seconds:
            break
        for device, function in functions.items():
            progress(f"{device}: round {number + 1}")
            wait_for_idle_threads()
            for _ in range(int(bursts[device] * WARMING_SHARE)):
                function()
            times[device].append(seconds_of(function, places[device], bursts[device]))
    return times


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """How many times as fast ``of`` is: the median over the rounds."""
    return statistics.median(b / a for a, b in zip(of, to, strict=True))


def geometric_mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


def describe_machine(devices: Iterable[str]) -> dict[str, object]:
    described: dict[str, object] = {
        "torch": torch.__version__,
        "torch_opencl": torch_opencl.__version__,
        "threads": torch.get_num_threads(),
        "processor": processor(),
    }
    for name in devices:
        device = torch.device(name)
        if device.type == "opencl":
            properties = torch.opencl.get_device_properties(device)
            described[name] = f"{properties.platform_version}, {properties.name}"
        elif device.type == "cuda":
            described[name] = torch.cuda.get_device_name(device)
        else:
            described[name] = f"torch's own kernels, {torch.get_num_threads()} threads"
    return described


def show_machine(record: dict[str, object], console: Console) -> None:
    """Prints what describe_machine found, of a benchmark's record."""
    for key, value in record["machine"].items():
        console.print(f"{key}: {value}", markup=False, soft_wrap=True)


def show_fallbacks(record: dict[str, object], console: Console) -> None:
    for op, calls in record["fallbacks"].items():
        console.print(f"[red]ran on the CPU[/red]: {op}, {calls} times")


def processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def console_of(options: argparse.Namespace) -> Console:
    """As wide as the terminal; in a log, as wide as the tables need. JSON on
    standard output leaves the rest to standard error."""
    console = Console(stderr=options.json == "-")
    return console if console.is_terminal else Console(stderr=console.stderr, width=160)


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def write_json(path: str, record: dict[str, object]) -> None:
    text = json.dumps(record, indent=1)
    if path == "-":
        print(text)
    else:
        Path(path).write_text(text + "\n")
