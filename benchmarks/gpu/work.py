"""What a launch of a trace has to do: operations, bytes, work-groups."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from .compile import Program
from .targets import Argument, Kernel

_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
_C_SIZES = {"char": 1, "short": 2, "half": 2, "int": 4, "float": 4, "long": 8}


@dataclass
class Work:
    """
    Attributes:
        kernel: program's file and kernel's name.
        program: number in the trace; -1 of copies and fills.
        flops: that are executed, padding included; 0 where there are few.
        useful: without the padding.
        bytes: that have to be moved: each block it touches once.
        requested: bytes that it asks the caches for; more than `bytes` where
            tiles read the same lines.
        groups, items: of the launch.
        op: the op that launched it.
    """

    kernel: str
    program: int
    flops: float
    bytes: float
    requested: float
    groups: int
    items: int
    op: str
    useful: float = 0.0


def element_size(type_name: str, dtype: str) -> int:
    """Bytes of what a pointer argument points to.

    Args:
        type_name: as in the kernel, e.g. "storage_t*".
        dtype: the program's DTYPE.
    """
    name = type_name.rstrip("*").strip()
    if name in ("storage_t", "value_t", "compute_t"):
        is_half = "16" in dtype and "float" in dtype
        name = "float" if is_half and name != "storage_t" else f"storage_{dtype}"
    if match := re.match(r"storage_[a-z]+?(8|16|32|64)$", name):
        return _SIZES[match[1]]
    if match := re.match(r"u?(char|short|half|int|float|long|double)$", name):
        return 8 if match[1] == "double" else _C_SIZES[match[1]]
    return 1 if name == "storage_bool" else 4


def dtype_of(program: Program) -> str:
    match = re.search(r"\bDTYPE[= ](\w+)", program.options) or re.search(
        r"#define DTYPE (\w+)", program.text
    )
    return match[1] if match else "float32"


def value(argument: dict[str, Any]) -> int:
    return int.from_bytes(bytes.fromhex(argument.get("hex", "")), "little", signed=True)


def _values(launch: dict[str, Any], kernel: Kernel) -> dict[str, int]:
    """Plain integer arguments, by name."""
    pairs = zip(kernel.arguments, launch["arguments"], strict=True)
    return {a.name: value(raw) for a, raw in pairs if 0 < len(raw.get("hex", "")) <= 16}


def _defines(program: Program) -> dict[str, int]:
    """Of the build options, those that are numbers."""
    found = re.findall(r"-D\s*(\w+)=(\d+)\b", program.options)
    return {name: int(value) for name, value in found}


def _product_gpu(
    launch: dict[str, Any], values: dict[str, int], defines: dict[str, int]
) -> tuple[float, float, float]:
    # Whole tiles and steps; each work-group has a part of the depth.
    rows, columns, step = (defines[n] for n in ("TILE_ROWS", "TILE_COLUMNS", "STEP"))
    part = min(values["depth_of_part"], -(-values["depth"] // step) * step)
    lines = _groups(launch) * part
    sizes = (values[n] for n in ("rows", "columns", "depth", "batches"))
    useful = 2.0 * prod(sizes)
    return 2.0 * lines * rows * columns, useful, 4.0 * lines * (rows + columns)


# Operations, useful ones and requested bytes by what a kernel's arguments and its program's
# options say. A dense kernel that is not here gets the operations of its op's
# definition.
EXECUTED: dict[
    str,
    Callable[
        [dict[str, Any], dict[str, int], dict[str, int]],
        tuple[float, float, float],
    ],
] = {
    "product_gpu": _product_gpu,
}
DENSE = re.compile(
    r"gemm|product_few|attention_(?!delta)|depthwise|direct|tall_skinny|local_conv"
)


def is_dense(kernel: str) -> bool:
    return kernel in EXECUTED or DENSE.search(kernel) is not None


def _groups(launch: dict[str, Any]) -> int:
    pairs = zip(launch["global"], launch["local"], strict=True)
    return prod(-(-whole // group) for whole, group in pairs)


def _touched(
    launch: dict[str, Any], arguments: list[Argument], dtype: str, values: dict
) -> float | None:
    """Bytes of the blocks that the buffers point into, from there to their ends;
    None where a buffer points nowhere."""
    # By block and direction, the smallest offset.
    begins: dict[tuple[int, int, bool], int] = {}
    ends: dict[tuple[int, int, bool], int] = {}
    for argument, raw in zip(arguments, launch["arguments"], strict=True):
        if "buffer" not in raw:
            continue
        if argument.name == "self_memory" and values.get("beta") == 0:
            continue  # products pass something there
        size = element_size(argument.type, dtype)
        block = raw["blocks"].get(str(size))
        if block is None:
            return None
        key = (raw["buffer"], block[0], argument.is_const)
        begin = raw["offset"] * size
        begins[key] = min(begin, begins.get(key, begin))
        ends[key] = block[0] + block[1]
    return float(sum(ends[key] - begins[key] for key in begins))


def _grouped_bytes(launch: dict[str, Any], program: Program) -> float:
    """Of the launches of _foreach_ ops: tensors are in a table by value."""
    scalars = re.search(r"compute_t scalar\[(\d+)\]", program.text)
    chunks = re.search(r"uint first_chunk\[(\d+)\]", program.text)
    count = re.search(r"uint elements\[(\d+)\]", program.text)
    if chunks is None or count is None:
        raise ValueError("the table of a grouped launch is not as it was")
    raw = bytes.fromhex(launch["arguments"][0]["hex"])
    size = 8 if dtype_of(program) == "float64" else 4
    begin = (int(scalars[1]) if scalars else 0) * size + int(chunks[1]) * 4
    text = raw[begin : begin + int(count[1]) * 4]
    elements = sum(
        int.from_bytes(text[i : i + 4], "little") for i in range(0, len(text), 4)
    )
    body = program.text[program.text.rfind("void multi_tensor(") :]
    moves = re.findall(r"\b(?:load|store)_(\w+?)\(\w+_at", body)
    return float(elements * sum(element_size(f"storage_{m}", m) for m in moves))


def programs_of(trace: dict[str, Any]) -> dict[int, Program]:
    """A trace's programs, by number."""
    return {
        int(number): Program(entry["text"], entry["options"])
        for number, entry in trace["programs"].items()
    }


def works_of(
    trace: dict[str, Any], kernels: dict[tuple[int, str], Kernel]
) -> list[Work]:
    """One a command of the trace.

    Args:
        kernels: by program and name, from the compiler that knows arguments.
    """
    programs = programs_of(trace)
    ops: dict[int, dict[str, Any]] = {}
    for op in trace["ops"]:
        for index in range(op["begin"], op["end"]):
            ops.setdefault(index, op)
    works = []
    unknown: dict[int, list[Work]] = defaultdict(list)
    for index, launch in enumerate(trace["launches"]):
        op = ops.get(index)
        name = op["name"] if op else "(deferred)"
        if "command" in launch:
            moved = launch["bytes"] * (2.0 if launch["command"] == "copy" else 1.0)
            works.append(Work(launch["command"], -1, 0, moved, moved, 1, 1, name))
            continue
        program = programs[launch["of"]]
        kernel = kernels[launch["of"], launch["launch"]]
        values = _values(launch, kernel)
        if launch["launch"] == "multi_tensor":
            touched = _grouped_bytes(launch, program)
        else:
            found = _touched(launch, kernel.arguments, dtype_of(program), values)
            touched = found or 0.0
        is_alone = op and op["end"] - op["begin"] == 1
        if is_alone and op["bytes"] and "define HAS_EPILOGUE" not in program.text:
            # A view's block may be larger than the view.
            touched = min(touched, op["bytes"]) if touched else op["bytes"]
        work = Work(
            f"{program.name}:{launch['launch']}",
            launch["of"],
            0,
            touched,
            touched,
            _groups(launch),
            prod(launch["global"]),
            name,
        )
        if launch["launch"] in EXECUTED:
            work.flops, work.useful, requested = EXECUTED[launch["launch"]](
                launch, values, _defines(program)
            )
            work.requested = max(touched, requested)
        elif DENSE.search(launch["launch"]) and op:
            unknown[id(op)].append(work)
            work.flops = op["flops"]
        works.append(work)
    for same in unknown.values():
        for work in same:
            work.flops /= len(same)
            work.useful = work.flops
    return works
