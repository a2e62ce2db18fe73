"""What is read of the texts of sanitizers."""

from pathlib import Path

import pytest
from sanitizing import build, reports

SUPPRESSIONS = sorted(Path(build.__file__).parent.glob("*.supp"))

_ADDRESS = """
=================================================================
==17==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000050
READ of size 8 at 0x602000000050 thread T0
    #0 0x7f01 in memcpy (/usr/lib/libasan.so.8+0x3a1)
    #1 0x7f02 in torch_opencl::runtime::Queue::wait() /work/x/cpp/runtime/queue.cpp:311
    #2 0x7f03 in main /work/x/cpp/bindings/module.cpp:12
SUMMARY: AddressSanitizer: heap-use-after-free
"""
_THREAD = """
==================
WARNING: ThreadSanitizer: data race (pid=99)
  Write of size 8 at 0x7b04 by thread T3:
    #0 torch_opencl::runtime::forget(int) /work/x/cpp/runtime/host_wait.cpp:90 (_C.so+0x12)
  Previous read of size 8 at 0x7b04 by main thread:
    #0 torch_opencl::other() /work/x/cpp/runtime/queue.cpp:7 (_C.so+0x13)
==================
"""
_UNDEFINED = """
../../cpp/aten/launch.h:55:12: runtime error: signed integer overflow: 1 + 2
    #0 0x7f02 in torch_opencl::aten::range(long) /work/x/cpp/aten/launch.h:55
"""


@pytest.mark.parametrize(
    "text, kind, function, place",
    [
        (
            _ADDRESS,
            "AddressSanitizer: heap-use-after-free",
            "torch_opencl::runtime::Queue::wait()",
            "/work/x/cpp/runtime/queue.cpp:311",
        ),
        (
            _THREAD,
            "ThreadSanitizer: data race",
            "torch_opencl::runtime::forget(int)",
            "/work/x/cpp/runtime/host_wait.cpp:90",
        ),
        (
            _UNDEFINED,
            "runtime error: signed integer overflow: 1 + 2",
            "torch_opencl::aten::range(long)",
            "../../cpp/aten/launch.h:55:12",
        ),
    ],
)
def test_first_frame_of_ours_names_a_report(text, kind, function, place):
    assert reports.read(text) == [reports.Report(kind, function, place)]


def test_reports_of_all_files_are_counted(tmp_path):
    (tmp_path / "report.1").write_text(_ADDRESS + _UNDEFINED)
    (tmp_path / "report.2").write_text(_UNDEFINED + _THREAD)
    (tmp_path / "other").write_text(_ADDRESS)
    counts = reports.collect(tmp_path)
    assert sorted(counts.values()) == [1, 1, 2]


def test_a_report_outside_of_our_code_is_kept():
    text = "==1==ERROR: AddressSanitizer: SEGV on unknown address\n #0 0x1 in f (/lib/x.so)\n"
    assert [report.place for report in reports.read(text)] == ["outside of our code"]


def without_reason(text: str) -> list[str]:
    """Entries with no comment right above them; the first line is the file's."""
    above = ""
    found = []
    for line in text.splitlines()[1:]:
        if line and not line.startswith("#") and not above.lstrip("# "):
            found.append(line)
        above = line if line.startswith("#") else ""
    return found


def test_every_suppression_says_why():
    assert without_reason("# head\nrace:f") == ["race:f"]
    assert without_reason("# head\n# why\nrace:f\nrace:g\n#\nrace:h") == [
        "race:g",
        "race:h",
    ]
    assert SUPPRESSIONS
    for file in SUPPRESSIONS:
        text = file.read_text()
        assert text.startswith("#"), file
        assert without_reason(text) == [], file
