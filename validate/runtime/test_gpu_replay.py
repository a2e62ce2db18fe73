"""benchmarks/gpu/replay.py: a trace's launches are timed on a device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

cl = pytest.importorskip("pyopencl")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SOURCE = """
kernel void fill(global float *to, const ulong from, const int value) {
  to[from + get_global_id(0)] = value * FACTOR;
}
"""
TRACE = {
    "network": "none",
    "mode": "train",
    "batch": 1,
    "buffers": {"3": 4096},
    "programs": {"7": {"options": "-D FACTOR=2", "text": SOURCE}},
    "launches": [
        {"command": "write", "bytes": 4},
        {
            "launch": "fill",
            "of": 7,
            "global": [512, 1, 1],
            "local": [64, 1, 1],
            "arguments": [
                {"buffer": 3, "offset": 512, "blocks": {}},
                {"hex": "0002000000000000"},
                {"hex": "05000000"},
            ],
        },
    ],
}


@pytest.fixture
def replay(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu import replay

    try:
        platforms = cl.get_platforms()
    except cl.Error:
        platforms = []
    if not any(platform.get_devices() for platform in platforms):
        pytest.skip("pyopencl finds no device: Intel's driver is not the loader's")
    return replay


@pytest.mark.parametrize("defines, expected", [([], 10.0), (["FACTOR=3"], 15.0)])
def test_a_launch_runs_with_its_arguments(replay, defines, expected):
    import numpy

    played = replay.Replay(TRACE, replay.find_device(""), defines)
    timed = played.time(1, rounds=2)
    assert (timed.index, timed.kernel, timed.groups) == (1, "fill", 8)
    assert timed.microseconds > 0
    found = numpy.empty(1024, numpy.float32)
    cl.enqueue_copy(played.queue, found, played.buffers[3])
    assert (found[512:] == expected).all() and (found[:512] != expected).any()


def test_options_are_replaced_by_name(replay):
    options = "-cl-std=CL1.2 -D STEP=16 -DUNROLL=4 -D STEPS=2"
    replaced = replay.with_defines(options, ["STEP=8", "UNROLL=1"])
    assert replaced == "-cl-std=CL1.2 -D STEP=8 -DUNROLL=1 -D STEPS=2"


def test_the_command_line(replay, tmp_path, monkeypatch, capsys):
    trace, result = tmp_path / "trace.json", tmp_path / "result.json"
    trace.write_text(json.dumps(TRACE))
    arguments = ["replay", str(trace), "--kernels", "fill", "--json", str(result)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert replay.main() == 0
    assert "1 launches, 1 left out" in " ".join(capsys.readouterr().out.split())
    (launch,) = json.loads(result.read_text())["launches"]
    assert launch["kernel"] == "fill"
    monkeypatch.setattr(sys, "argv", [*arguments[:2], "--kernels", "nothing"])
    with pytest.raises(SystemExit, match="no kernel matches 'nothing'"):
        replay.main()
    launch = TRACE["launches"][1]
    wrong = {**launch, "arguments": [*launch["arguments"][:2], {"hex": "05"}]}
    trace.write_text(json.dumps({**TRACE, "launches": [launch, wrong]}))
    monkeypatch.setattr(sys, "argv", arguments)
    assert replay.main() == 0
    output = capsys.readouterr()
    assert "1 launches, 1 left out" in " ".join(output.out.split())
    assert "left out: fill: " in output.err
    trace.write_text(json.dumps({**TRACE, "launches": [wrong]}))
    with pytest.raises(SystemExit, match="refuses all"):
        replay.main()
    trace.write_text(json.dumps({k: v for k, v in TRACE.items() if k != "buffers"}))
    with pytest.raises(SystemExit, match="it has no buffers"):
        replay.main()
    with pytest.raises(SystemExit, match="no OpenCL device matches 'nobody'"):
        replay.find_device("nobody")
