"""Figures of a soak run, and whether they stayed what they were."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from soaking.work import PERIOD

MIB = 1 << 20
_LEAST_SAMPLES = 4 * PERIOD

# Allocators of the host and of drivers keep some memory that was freed.
_RSS_SHARE = 0.02
_RSS_BYTES = 8 * MIB
_RESERVED_SHARE = 0.1
_SLOWER = 0.2


@dataclass
class Sample:
    """At the end of a round, when the device has come to rest."""

    seconds: float  # since the start
    round_seconds: float
    cpu_seconds: float  # of all threads of the process, in the round
    rss: int
    allocated: int
    reserved: int
    programs: int
    ooms: int


@dataclass
class Finding:
    figure: str
    early: float
    late: float
    limit: float  # of the late value
    unit: str

    @property
    def passed(self) -> bool:
        return self.late <= self.limit


class Recorder:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._last = time.monotonic()
        self._last_cpu = time.process_time()
        self._first_ooms = torch.opencl.memory_stats(device)["num_ooms"]
        self.samples: list[Sample] = []

    def sample(self) -> None:
        gc.collect()
        torch.opencl.synchronize(self._device)
        now, cpu = time.monotonic(), time.process_time()
        stats = torch.opencl.memory_stats(self._device)
        programs = torch.opencl.program_cache_stats(self._device)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.samples.append(
            Sample(
                seconds=now - self._start,
                round_seconds=now - self._last,
                cpu_seconds=cpu - self._last_cpu,
                rss=pages * os.sysconf("SC_PAGE_SIZE"),
                allocated=stats["allocated_bytes.all.current"],
                reserved=stats["reserved_bytes.all.current"],
                programs=programs["built"] + programs["loaded"],
                ooms=stats["num_ooms"] - self._first_ooms,
            )
        )
        self._last, self._last_cpu = now, cpu


def judge(samples: list[Sample]) -> list[Finding]:
    """Compares the second quarter of a run with the last one. Raises ValueError
    where there are too few samples to say anything."""
    if len(samples) < _LEAST_SAMPLES:
        raise ValueError(
            f"{len(samples)} rounds say nothing, {_LEAST_SAMPLES} are needed: "
            "use more --minutes or --rounds"
        )
    # Of whole periods: memory goes up and down within one.
    length = len(samples) // 4 // PERIOD * PERIOD
    early = samples[len(samples) // 2 - length : len(samples) // 2]
    late = samples[-length:]

    def of(window: list[Sample], name: str) -> list[float]:
        return [getattr(sample, name) for sample in window]

    rss = min(of(early, "rss"))
    allocated = max(of(early, "allocated"))
    reserved = max(of(early, "reserved"))
    programs = early[-1].programs
    seconds = median(of(early, "cpu_seconds"))
    return [
        Finding(
            "resident set, least",
            rss / MIB,
            min(of(late, "rss")) / MIB,
            max(rss * (1 + _RSS_SHARE), rss + _RSS_BYTES) / MIB,
            "MiB",
        ),
        Finding(
            "memory_allocated",
            allocated / MIB,
            max(of(late, "allocated")) / MIB,
            allocated / MIB,
            "MiB",
        ),
        Finding(
            "memory_reserved",
            reserved / MIB,
            max(of(late, "reserved")) / MIB,
            reserved * (1 + _RESERVED_SHARE) / MIB,
            "MiB",
        ),
        Finding("programs", programs, late[-1].programs, programs, ""),
        # Of the CPU and not of the clock, which measures other processes, too.
        Finding(
            "CPU time of a round",
            seconds,
            median(of(late, "cpu_seconds")),
            seconds * (1 + _SLOWER),
            "s",
        ),
    ]


def plot(samples: list[Sample], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figures = {
        "resident set, MiB": [s.rss / MIB for s in samples],
        "reserved, MiB": [s.reserved / MIB for s in samples],
        "allocated, MiB": [s.allocated / MIB for s in samples],
        "programs": [s.programs for s in samples],
        "CPU time of a round, s": [s.cpu_seconds for s in samples],
        "out of memory": [s.ooms for s in samples],
    }
    minutes = [s.seconds / 60 for s in samples]
    figure, rows = pyplot.subplots(
        len(figures), sharex=True, figsize=(8, 2 * len(figures))
    )
    for axes, (name, values) in zip(rows, figures.items(), strict=True):
        axes.plot(minutes, values, linewidth=0.8)
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
    rows[0].set_title(title)
    rows[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
