"""Runs tests with the extension built by address, undefined-behaviour and thread
sanitizers.

    python validate/run_sanitizers.py
    python validate/run_sanitizers.py --with thread --tests validate/runtime/test_threads.py
    python validate/run_sanitizers.py --with address --no-build --json

Builds into build/sanitize-*; the first time takes as long as a build of the
extension. The files of tests are those of the runtime: threads, allocator, pending
launches, caches, packed weights, streams, graphs. Prints the reports with the first frame in this
project's code, and which tests failed; the sanitizers' own texts are in
build/sanitize-*/reports. Ahead of the tests, it checks that faults made on purpose are
reported. Reports about drivers and torch, which are not built
with sanitizers, are left out by validate/sanitizing/*.supp, each with a reason.
Exits with 0 without a report and a failed test, 1 with one, 2 where arguments are
wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from sanitizing import build, reports

ROOT = build.ROOT
TESTS = (
    "allocator",
    "graphs",
    "pending_launches",
    "program_cache",
    "pyopencl",
    "reports",
    "streams_events",
    "threads",
    "freed_storage",
    "generator",
    "host_memory",
    "memory_history",
    "pinned_dataloader",
    "user_kernel_arguments",
    "waits",
)
FILES = [
    *(ROOT / f"validate/runtime/test_{name}.py" for name in TESTS),
    ROOT / "validate/ops/test_packed_weights.py",
]
# Functions of sanitizing/known_faults.cpp, and what is reported of each.
KNOWN_FAULTS = {
    "address": {
        "heap_overflow": "AddressSanitizer: heap-buffer-overflow",
        "signed_overflow": "runtime error: signed integer overflow",
    },
    "thread": {"race": "ThreadSanitizer: data race"},
}
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.*)$", re.MULTILINE)
_PASSED = re.compile(r"(\d+) passed")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--with",
        dest="sanitizers",
        nargs="+",
        default=list(build.SANITIZERS),
        choices=build.SANITIZERS,
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        type=Path,
        metavar="FILE",
        default=FILES,
    )
    parser.add_argument("--select", metavar="EXPRESSION", help="as pytest's -k")
    parser.add_argument("--no-build", action="store_true", help="it is built already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="the reports on stdout")
    options = parser.parse_args(arguments)
    for file in options.tests:
        if not file.exists():
            parser.error(f"--tests: {file} does not exist")
    return options


def environment(sanitizer: str) -> dict[str, str]:
    where = build.folder(sanitizer)
    log = f"log_path={where}/reports/report"
    suppressions = Path(__file__).parent / "sanitizing"
    # Python and the drivers keep what they allocate until the process ends.
    address = f"{log}:detect_leaks=0:alloc_dealloc_mismatch=0:verify_asan_link_order=0"
    undefined = f"print_stacktrace=1:suppressions={suppressions}/undefined.supp"
    # What is not built with it has no reports of its own: Python, torch, drivers.
    thread = (
        f"{log}:ignore_noninstrumented_modules=1:report_signal_unsafe=0"
        f":history_size=4:exitcode=0:suppressions={suppressions}/thread.supp"
    )
    paths = [str(where / "package"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "LD_PRELOAD": " ".join(build.preloaded(sanitizer)),
        "ASAN_OPTIONS": address,
        "UBSAN_OPTIONS": undefined,
        "TSAN_OPTIONS": thread,
        "TORCH_OPENCL_SANITIZER": sanitizer,
        # Not the file of the address sanitizer, which may report in the same process.
        "TORCH_OPENCL_UBSAN_REPORTS": f"{where}/reports/report.undefined",
    }


def fixed_addresses() -> list[str]:
    """Address space layout randomisation leaves the thread sanitizer no room."""
    return ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []


def empty_reports(sanitizer: str) -> Path:
    folder = build.folder(sanitizer) / "reports"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def unreported_faults(sanitizer: str) -> list[str]:
    """Of the known faults: a run without reports means nothing where there are some."""
    library = build.known_faults(sanitizer)
    unreported = []
    for name, kind in KNOWN_FAULTS[sanitizer].items():
        folder = empty_reports(sanitizer)
        call = f"import ctypes; ctypes.CDLL({str(library)!r}).{name}(1000)"
        command = [*fixed_addresses(), sys.executable, "-c", call]
        subprocess.run(command, env=environment(sanitizer), capture_output=True)
        found = reports.collect(folder)
        if not any(
            report.kind.startswith(kind) and "known/cpp/" in report.place
            for report in found
        ):
            unreported.append(f"{name}: {list(map(str, found))}")
    return unreported


def run(sanitizer: str, options: argparse.Namespace, console: Console) -> dict:
    """Counts of tests and reports of a run."""
    folder = empty_reports(sanitizer)
    command = [*fixed_addresses(), sys.executable, "-m", "pytest"]
    command += ["-p", "no:cacheprovider", "-v", "--timeout", "1200"]
    command += ["-k", options.select] if options.select else []
    command += map(str, options.tests)
    result = subprocess.Popen(
        command,
        env=environment(sanitizer),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in result.stdout:
        lines.append(line)
        if not options.json:
            console.print(escape(line.rstrip()), highlight=False, soft_wrap=True)
    output = "".join(lines)
    result.wait()
    passed = _PASSED.search(output)
    return {
        "sanitizer": sanitizer,
        "exit_status": result.returncode,
        "passed": int(passed[1]) if passed else 0,
        "failed": _FAILED.findall(output),
        "reports": {
            str(report): count for report, count in reports.collect(folder).items()
        },
    }


def main() -> int:
    options = parse()
    console = Console(stderr=options.json)
    runs = []
    for sanitizer in options.sanitizers:
        if not options.no_build:
            build.build(sanitizer, options.jobs)
        if unreported := unreported_faults(sanitizer):
            raise SystemExit(f"{sanitizer}: known faults not reported: {unreported}")
        runs.append(run(sanitizer, options, console))
    for result in runs:
        for text, count in result["reports"].items():
            console.print(escape(f"{result['sanitizer']}: {count} x {text}"))
        for text in result["failed"]:
            console.print(escape(f"{result['sanitizer']} failed: {text}"))
        console.print(
            f"{result['sanitizer']}: {result['passed']} tests passed, "
            f"{len(result['failed'])} failed, {len(result['reports'])} reports"
        )
    if options.json:
        print(json.dumps(runs, indent=1))
    bad = any(r["reports"] or r["failed"] or r["exit_status"] for r in runs)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
