"""Shows the OpenCL devices of this machine, what is wrong and how to mend it.

Exits with 1 when no device computes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .facts import collect
from .problems import Facts, Problem, find_problems, works
from .report import report

_GIB = 2**30


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_opencl.diagnose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: TORCH_OPENCL_DEBUG=1 python -m torch_opencl.diagnose --json",
    )
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.add_argument(
        "--report", action="store_true", help="a text to paste into an issue"
    )
    return parser.parse_args()


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _versions(facts: Facts) -> Table:
    table = _grid()
    built = facts["built_for_torch"]
    state = f"built for torch {built}" if built else "did not load"
    table.add_row("system", escape(facts["system"]))
    table.add_row("python", escape(facts["python"]))
    table.add_row("torch", facts["torch"])
    table.add_row("torch_opencl", state)
    table.add_row("import torch loads it", _yes(facts["autoloads"]))
    return table


def _discovery(facts: Facts) -> Table:
    table = _grid()
    for icd in facts["icd_files"]:
        note = " (does not exist)" if icd["missing"] else ""
        table.add_row("driver file", escape(f"{icd['file']}: {icd['library']}{note}"))
    for line in facts["discovery"]:
        table.add_row("search", escape(line))
    for node in facts["render_nodes"]:
        state = "accessible" if node["accessible"] else "not accessible"
        table.add_row("GPU node", f"{node['node']}: {state}")
    return table


def _device(device: Facts) -> Table:
    kind = "GPU" if device["is_gpu"] else "CPU or accelerator"
    memory = f"{device['total_memory'] / _GIB:.1f} GiB"
    largest = f"{device['max_allocation'] / _GIB:.1f} GiB"
    numbers = [
        f"{name} {_yes(device[f'has_{name}'])}"
        for name in ("fp16", "fp64", "subgroups", "denormals")
    ]
    rows = {
        "name": device["name"],
        "platform": f"{device['platform']}, {device['platform_version']}",
        "driver": f"{device['driver_version']} {device['library']}",
        "version": device["version"],
        "type": f"{kind}, {device['device_class']}-class kernels",
        "memory": f"{memory}, largest allocation {largest}, "
        f"local {device['local_memory'] // 1024} KiB",
        "compute units": f"{device['multi_processor_count']} at {device['clock_mhz']} "
        f"MHz, work-groups of up to {device['max_work_group_size']}",
        "native types": ", ".join(numbers),
        "extensions": str(len(device["extensions"])),
        "smoke test": device["smoke_test"],
    }
    table = _grid()
    for name, value in rows.items():
        table.add_row(name, escape(value))
    return table


def _cache(facts: Facts) -> Table:
    cache = facts["cache"]
    table = _grid()
    table.add_row("directory", escape(cache["directory"]))
    table.add_row("programs", f"{cache['programs']}, {cache['bytes'] / 2**20:.1f} MiB")
    table.add_row("writable", _yes(cache["writable"]))
    return table


def _environment(facts: Facts) -> Table:
    table = _grid()
    for variable in facts["environment"]:
        value = variable["value"]
        default = f"(default {variable['default']!r})"
        table.add_row(variable["name"], escape(default if value is None else value))
    return table


def _libraries(facts: Facts) -> Table:
    table = _grid()
    for row in facts["libraries"]:
        table.add_row(f"{row['name']} {row['version']}", escape(row["how"]))
    return table


def _print(facts: Facts, problems: list[Problem], console: Console) -> None:
    sections = [("Versions", _versions(facts)), ("Drivers", _discovery(facts))]
    sections += [(device["device"], _device(device)) for device in facts["devices"]]
    if facts["cache"]:
        sections.append(("Cache of compiled programs", _cache(facts)))
    if facts["libraries"]:
        title = "Libraries that take the CPU unless told otherwise"
        sections.append((title, _libraries(facts)))
    sections.append(("Environment", _environment(facts)))
    for title, table in sections:
        console.print(f"[bold cyan]{title}[/]")
        console.print(table)
        console.print()
    if not problems:
        console.print("[bold green]No problem was found.[/]")
    for problem in problems:
        console.print(f"[bold red]problem[/]  {escape(problem.what)}")
        console.print(f"[bold]what to do[/]  {escape(problem.fix)}\n")


def main() -> int:
    options = _parse()
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    facts = collect()
    problems = find_problems(facts)
    if options.json:
        facts["problems"] = [asdict(problem) for problem in problems]
        print(json.dumps(facts, indent=1))
    elif options.report:
        print(report(facts, problems))
    else:
        _print(facts, problems, console)
    return 0 if works(facts) else 1


if __name__ == "__main__":
    sys.exit(main())
