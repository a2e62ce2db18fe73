"""The facts as text for an issue: short, and without the user's directories."""

from __future__ import annotations

from pathlib import Path

from .problems import Facts, Problem

_GIB = 2**30


def _device_line(device: Facts) -> str:
    kind = "GPU" if device["is_gpu"] else "CPU"
    return (
        f"{device['device']}: {device['name']}; {kind}, {device['device_class']} "
        f"kernels; {device['platform_version']}; driver {device['driver_version']}; "
        f"{device['version']}; {device['total_memory'] / _GIB:.1f} GiB, fp16 "
        f"{device['has_fp16']}, fp64 {device['has_fp64']}, subgroups "
        f"{device['has_subgroups']}, denormals {device['has_denormals']}; smoke test: "
        f"{device['smoke_test']}"
    )


def report(facts: Facts, problems: list[Problem]) -> str:
    """A block to paste into an issue."""
    lines = [
        f"system: {facts['system']}",
        f"python: {facts['python']}",
        f"torch: {facts['torch']}, torch_opencl built for {facts['built_for_torch']}",
        *map(_device_line, facts["devices"]),
    ]
    lines += [
        f"{variable['name']}={variable['value']}"
        for variable in facts["environment"]
        if variable["value"] is not None
    ]
    lines += [f"{row['name']} {row['version']}" for row in facts["libraries"]]
    lines += [f"problem: {problem.what}" for problem in problems] or [
        "no problem found"
    ]
    if not facts["devices"]:
        lines += [f"search: {line}" for line in facts["discovery"]]
    text = "\n".join(["```", *lines, "```"])
    return text.replace(str(Path.home()), "~")
