"""Runs tests in processes whose only OpenCL driver is oclgrind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")

# Texts that are made at run time have no file's suffix.
_LAUNCH = re.compile(r"torch_opencl: launch (\S+?)(?:\.cl)?:(\w+)")


@dataclass
class Outcome:
    test: str
    status: str  # passed, failed, skipped, stopped
    reason: str = ""
    seconds: float = field(default=0.0, compare=False)


def environment(device_class: str, folder: Path) -> dict[str, str]:
    """``folder`` is the process's own: what names the driver is written into it, and
    reports are, as oclgrind.log."""
    (folder / "oclgrind.icd").write_text(f"{LIBRARY}\n")
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "validate"),
        "OCL_ICD_VENDORS": str(folder),
        "OCLGRIND_LOG": str(folder / "oclgrind.log"),
        "TORCH_OPENCL_DEVICES": "oclgrind",
        "TORCH_OPENCL_TEST": "",
        "TORCH_OPENCL_DEBUG": "2",
        "TORCH_OPENCL_DEVICE_CLASS": device_class,
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_GLOBAL_MEM_SIZE": "2000000000",  # 128 MiB by default
        "OCLGRIND_LOCAL_MEM_SIZE": "65536",  # 32 KiB by default; GPUs have 48 or 64
        "OCLGRIND_MAX_ERRORS": "100",
    }


def pytest(device_class: str) -> list[str]:
    options = ["--guard", *(["--gpu-class"] if device_class == "gpu" else [])]
    plugins = ("no:cacheprovider", "oclgrinding.one_thread", "oclgrinding.outcome_file")
    for plugin in plugins:
        options += ["-p", plugin]
    return ["-m", "pytest", *options]


@dataclass
class Run:
    device_class: str
    outcomes: list[Outcome] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    _shown: int = 0

    def tests(self, ids: list[str], time_limit: int) -> Iterator[Outcome]:
        """A test that is not done in time ends its process; the others go on."""
        left = list(ids)
        while left:
            done = self._process(left, time_limit)
            for outcome in done:
                self.outcomes.append(outcome)
                yield outcome
            names = {outcome.test for outcome in done}
            left = [test for test in left if test not in names]

    def new_reports(self) -> list[str]:
        new = self.reports[self._shown :]
        self._shown = len(self.reports)
        return new

    def _process(self, ids: list[str], time_limit: int) -> list[Outcome]:
        """Outcomes of those that ended. One that did not is the last of them."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            log = folder / "oclgrind.log"
            arguments = folder / "tests"
            arguments.write_text("\n".join(ids))
            # A signal would wait for the end of a launch.
            limits = ["--timeout", str(time_limit), "--timeout-method", "thread"]
            events = folder / "outcomes"
            limits += ["-s", "-v", "--full", "--outcomes", str(events)]
            process = subprocess.run(
                [
                    *(sys.executable, *pytest(self.device_class), *limits),
                    f"@{arguments}",
                ],
                cwd=ROOT,
                env=environment(self.device_class, folder),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            output = process.stdout
            if log.exists():
                self.add_reports(log.read_text(errors="replace"))
            lines = events.read_text() if events.exists() else ""
        self.kernels.update(launched(output))
        late = f"not done in {time_limit} seconds" if "+ Timeout +" in output else ""
        found = outcomes(lines, late, output[-500:])
        found = [outcome for outcome in found if outcome.test in ids]
        return found or [Outcome(ids[0], "failed", output[-500:])]

    def add_reports(self, text: str) -> None:
        known = {_mistake(report) for report in self.reports}
        for report in re.split(r"\n\s*\n", text):
            if "Kernel:" in report and _mistake(report) not in known:
                known.add(_mistake(report))
                self.reports.append(report.strip("\n"))


def _mistake(report: str) -> str:
    """Without addresses, work-items and values, which differ from one to the next."""
    lines = re.sub(r"0x[0-9a-f]+|\([\d,]+\)", "", report.strip()).splitlines()
    return "\n".join(line for line in lines if not line.startswith("\t  "))


def launched(output: str) -> set[str]:
    """file:kernel of the launches, as cases.kernels() names them."""
    return {f"{text}:{name}" for text, name in _LAUNCH.findall(output)}


def outcomes(lines: str, late: str, end: str) -> list[Outcome]:
    """Of what outcome_file.py wrote. The test that was running when the process ended
    is `stopped`, for the reason `late`, or failed where that is empty: `end` is then
    the end of the output."""
    found: dict[str, Outcome] = {}
    running, start = "", 0.0
    for line in lines.splitlines():
        event = json.loads(line)
        test, word = event["test"], event["event"]
        if word == "started":
            running, start = test, event["time"]
        elif word == "ended":
            running = ""
            if test in found:
                found[test].seconds = event["time"] - start
        elif test not in found or word == "failed":
            found[test] = Outcome(test, word, event["reason"])
    if running:
        ended = Outcome(running, "stopped", late) if late else None
        found[running] = ended or Outcome(running, "failed", end)
        found[running].seconds = time.time() - start
    return list(found.values())
