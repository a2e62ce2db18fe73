"""Writes docs/operators.md and docs/operators.json: where every aten operator runs.

    python validate/run_opinfo.py --device opencl:0 --dtypes all --out opinfo-0.json
    python validate/run_opinfo.py --device opencl:1 --dtypes all --out opinfo-1.json
    python validate/write_operators.py opinfo-0.json opinfo-1.json

The operators are those that the installed torch registers; the results are those
of runs of run_opinfo.py, a column each. The page has the operators that are native,
on the CPU on purpose, or missing; operators.json has all, composite ones included.
--keep-results takes the results from the operators.json that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
import torch_opencl
from conformance.cases import DTYPES, op_name
from torch.testing._internal.common_methods_invocations import op_db

_ROOT = Path(__file__).resolve().parents[1]
_SHORT = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}
_STATUSES = {
    "native": "kernels of this project; with the forms that PyTorch derives from one",
    "composite": "made of other operators by PyTorch",
    "on purpose": "runs on the CPU, quietly: no inner loop needs it",
    "missing": "runs on the CPU, with a warning",
}
_SECTIONS = {
    "missing": "Missing",
    "on purpose": "On the CPU, on purpose",
    "native": "Native",
}
# Of a structured operator: it calls the kernel of the out= form.
_DERIVED = "CompositeExplicitAutogradNonFunctional"
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", _DERIVED)
_SPARSE = ("SparsePrivateUse1", "SparseCsrPrivateUse1")


def registered(key: str) -> set[str]:
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::")}


def _family(overload: str) -> str:
    """Without the underscore of its in-place form."""
    name = overload.partition(".")[0]
    return name if name.startswith("__") else name.rstrip("_")


def statuses() -> dict[str, str]:
    """Overload -> status, for every overload that the CPU has too. The functional and
    in-place forms of a structured operator are native with its out= form: dispatchers
    of other devices list them so."""
    native, cpu = registered("PrivateUse1"), registered("CPU")
    composite = set().union(*map(registered, _COMPOSITE))
    native_families = set(map(_family, native))
    native |= {
        name for name in cpu & registered(_DERIVED) if _family(name) in native_families
    }
    on_purpose = {
        name.removeprefix("aten::") for name in torch_opencl._C._cpu_on_purpose()
    }
    found = {}
    for name in native | cpu | composite:
        if name.partition(".")[0] in on_purpose:
            found[name] = "on purpose"
        elif name in native:
            found[name] = "native"
        elif name in composite:
            found[name] = "composite"
        else:
            found[name] = "missing"
    return found


def families(overloads: dict[str, str]) -> dict[str, dict[str, list[str]]]:
    """Family -> status -> overloads."""
    grouped: dict = defaultdict(lambda: defaultdict(list))
    for name, status in sorted(overloads.items()):
        family, _, overload = name.partition(".")
        grouped[family][status].append(overload or "(default)")
    return grouped


@dataclass
class Run:
    """What a run of run_opinfo.py says."""

    device: str
    dtypes: list[str]  # that it asked for
    by_family: dict[str, str]


def results(path: Path) -> Run:
    document = json.loads(path.read_text())
    by_name: dict = defaultdict(lambda: defaultdict(list))
    for outcome in document["outcomes"]:
        database, name, _, dtype = outcome["case"].split("/")
        if database == "op" and outcome["status"] != "skip":
            by_name[name][dtype].append(outcome["status"] == "pass")
    by_family: dict = defaultdict(lambda: defaultdict(list))
    for op in op_db:
        for dtype, passed in by_name.get(op_name(op), {}).items():
            by_family[op.aten_name][dtype] += passed
    asked = {dtype for by_dtype in by_name.values() for dtype in by_dtype}
    return Run(
        document["device"],
        [name for name in DTYPES if name in asked],
        {family: _result(by_dtype) for family, by_dtype in by_family.items()},
    )


def _result(by_dtype: dict[str, list[bool]]) -> str:
    passed = [_SHORT[name] for name in DTYPES if all(by_dtype.get(name, [False]))]
    failed = [name for name in DTYPES if not all(by_dtype.get(name, [True]))]
    text = " ".join(passed)
    if failed:
        text += " **not** " + " ".join(_SHORT[name] for name in failed)
    return text.strip()


def kept_results(path: Path) -> list[Run]:
    """The runs whose results an operators.json has."""
    document = json.loads(path.read_text())
    return [
        Run(
            run["device"],
            run["dtypes"],
            {
                family: entry["results"][run["device"]]
                for family, entry in document["operators"].items()
                if run["device"] in entry["results"]
            },
        )
        for run in document["runs"]
    ]


def as_json(grouped: dict[str, dict[str, list[str]]], runs: list[Run]) -> str:
    """A line a family."""
    families = []
    for family, by_status in sorted(grouped.items()):
        results = {r.device: r.by_family[family] for r in runs if family in r.by_family}
        entry = json.dumps({**by_status, "results": results})
        families.append(f"  {json.dumps(family)}: {entry}")
    return (
        f'{{\n "torch": {json.dumps(torch.__version__)},\n "runs": '
        + json.dumps([{"device": run.device, "dtypes": run.dtypes} for run in runs])
        + ',\n "operators": {\n'
        + ",\n".join(families)
        + "\n }\n}\n"
    )


def document(
    overloads: dict[str, str],
    grouped: dict[str, dict[str, list[str]]],
    runs: list[Run],
) -> str:
    devices = [run.device for run in runs]
    native = {name for name, status in overloads.items() if status == "native"}
    sparse = set().union(*map(registered, _SPARSE))
    lines = [
        "# Operators",
        "",
        "Where every aten operator runs that has a kernel on the CPU or is composite.",
        "Composite ones need nothing of their own; [operators.json](operators.json) "
        "lists them, too.",
        "",
        "| status | overloads | families | |",
        "|---|---|---|---|",
    ]
    for status, meaning in _STATUSES.items():
        count = sum(value == status for value in overloads.values())
        some = sum(status in family for family in grouped.values())
        lines.append(f"| {status} | {count} | {some} | {meaning} |")
    lines += [
        "",
        f"For sparse layouts {len(sparse)} overloads have kernels; {len(native | sparse)} "
        "have some kernel of this project.",
    ]
    if runs:
        asked = " ".join(_SHORT[name] for name in runs[0].dtypes)
        lines += [
            "",
            "The last columns are the dtypes in which all that "
            "`validate/run_opinfo.py` asks is as on the CPU.",
            f"It asked in {asked}. An empty cell means that torch's databases have no "
            "sample for that operator.",
        ]
    for status, heading in _SECTIONS.items():
        lines += [
            "",
            f"## {heading}",
            "",
            "| family | " + " | ".join(("overloads", *devices)) + " |",
            "|---" * (2 + len(devices)) + "|",
        ]
        for family, by_status in sorted(grouped.items()):
            if status in by_status:
                cells = [run.by_family.get(family, "") for run in runs]
                row = (f"`{family}`", ", ".join(by_status[status]), *cells)
                lines.append("| " + " | ".join(row) + " |")
    lines += [
        "",
        f"Written by `validate/write_operators.py` for torch {torch.__version__}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, help="of run_opinfo.py --out")
    parser.add_argument("--keep-results", action="store_true")
    parser.add_argument(
        "--out",
        type=Path,
        default=_ROOT / "docs" / "operators.md",
        metavar="FILE",
        help="the page; the JSON lies beside it. Default: docs/operators.md",
    )
    options = parser.parse_args()
    whole = options.out.with_suffix(".json")
    kept = kept_results(whole) if options.keep_results else []
    runs = kept or [results(path) for path in options.runs]
    overloads = statuses()
    grouped = families(overloads)
    whole.write_text(as_json(grouped, runs))
    options.out.write_text(document(overloads, grouped, runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
