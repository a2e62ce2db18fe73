"""Runs small launches of the kernels in a simulator that counts sectors.

oclgrind executes every work-item; sectors.cpp, its plugin, groups what a wave
asks for at once. Sizes are the smallest that show a kernel's pattern of access.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import tools

ICD = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
BYTES = 32  # of a sector


@dataclass
class Use:
    """Requests of a kernel in a case.

    Attributes:
        global_share: useful sectors of those that were taken, None without any.
        bank_share: cycles of local memory without conflicts over those with them.
    """

    case: str
    kernel: str
    global_share: float | None
    read_share: float | None
    write_share: float | None
    bank_share: float | None


def share(*totals: list[int]) -> float | None:
    """Of [requests, taken, least, missed] the least over those taken."""
    taken = sum(total[1] for total in totals)
    return sum(total[2] for total in totals) / taken if taken else None


def read(lines: str) -> list[Use]:
    """What the plugin wrote, with a line {"case": name} ahead of each case."""
    uses, case = [], ""
    for line in lines.splitlines():
        record = json.loads(line)
        if "case" in record:
            case = record["case"]
            continue
        reads, writes = record["global reads"], record["global writes"]
        uses.append(
            Use(
                case,
                record["kernel"],
                share(reads, writes),
                share(reads),
                share(writes),
                share(record["local reads"], record["local writes"]),
            )
        )
    return uses


def worst(uses: list[Use]) -> dict[str, float]:
    """Useful share of sectors by kernel: of the case where it is the lowest."""
    result: dict[str, float] = {}
    for use in uses:
        if use.global_share is not None:
            result[use.kernel] = min(use.global_share, result.get(use.kernel, 1.0))
    return result


def environment(folder: Path, **values: str) -> dict[str, str]:
    """Of a process whose only OpenCL device is the simulator, with the plugin; it
    adds lines to sectors.jsonl in the folder, which is empty at first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "oclgrind.icd").write_text(ICD + "\n")
    lines = folder / "sectors.jsonl"
    lines.write_text("")
    return tools.environment(
        OCL_ICD_VENDORS=str(folder),
        OCLGRIND_PLUGINS=str(tools.build_plugin()),
        SECTORS_FILE=str(lines),
        **values,
    )


def simulate(folder: Path, timeout: float = 900) -> list[Use]:
    """All cases, in a process on the simulator."""
    settings = environment(
        folder,
        TORCH_OPENCL_DEVICES="oclgrind",
        TORCH_OPENCL_DEVICE_CLASS="gpu",
        TORCH_OPENCL_CACHE_SIZE_MIB="0",
    )
    command = [sys.executable, "-m", "gpu.sectors"]
    tools.checked(command, "oclgrind", timeout=timeout, env=settings)
    text = (folder / "sectors.jsonl").read_text()
    uses = read(text)
    began = [json.loads(line).get("case") for line in text.splitlines()]
    silent = {case for case in began if case} - {use.case for use in uses}
    if silent or not uses:
        raise RuntimeError(
            f"the plugin saw no kernel of {sorted(silent) or 'any case'}"
        )
    return uses


def cases() -> dict[str, Callable[[], object]]:
    """What is run, by name: the kernels that most of a step's bytes go through."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(0)

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes).to("opencl")

    def backward(module: nn.Module, *sizes: int) -> None:
        module = module.to("opencl")
        module(random(*sizes).requires_grad_()).sum().backward()

    square = random(64, 64)
    wide = random(64, 32)
    image = random(2, 16, 16, 16)

    def attention(backwards: bool) -> None:
        query = random(1, 1, 64, 64).requires_grad_(backwards)
        out = functional.scaled_dot_product_attention(query, query, query)
        if backwards:
            out.sum().backward()

    def adam() -> None:
        weight = nn.Parameter(random(64, 64))
        optimizer = torch.optim.Adam([weight])
        weight.grad = square
        optimizer.step()

    return {
        "a @ b": lambda: wide @ wide.t().contiguous(),
        "linear": lambda: functional.linear(wide, square[:, :32].contiguous()),
        "conv 1x1, training": lambda: backward(nn.Conv2d(16, 32, 1), 2, 16, 8, 8),
        "conv 3x3, training": lambda: backward(
            nn.Conv2d(16, 16, 3, padding=1), 2, 16, 16, 16
        ),
        "conv 3x3 stride 2, training": lambda: backward(
            nn.Conv2d(8, 8, 3, stride=2, padding=1), 1, 8, 10, 10
        ),
        "depthwise, training": lambda: backward(
            nn.Conv2d(16, 16, 3, padding=1, groups=16), 1, 16, 16, 16
        ),
        "batch norm, training": lambda: backward(nn.BatchNorm2d(4), 2, 4, 8, 8),
        "group norm, training": lambda: backward(nn.GroupNorm(4, 8), 2, 8, 8, 8),
        "layer norm, training": lambda: backward(nn.LayerNorm(64), 8, 64),
        "softmax, long rows": lambda: random(4, 256).softmax(-1),
        "softmax, short rows": lambda: random(32, 16).softmax(-1),
        "attention": lambda: attention(False),
        "attention, training": lambda: attention(True),
        "add": lambda: square + square,
        "transposed copy": lambda: square.t().contiguous(),
        "sum of rows": lambda: square.sum(1),
        "sum of columns": lambda: square.sum(0),
        "max pool": lambda: functional.max_pool2d(image, 3, 2, 1),
        "cumsum of rows": lambda: square.cumsum(1),
        "cumsum of columns": lambda: square.cumsum(0),
        "embedding": lambda: functional.embedding(torch.arange(16).to("opencl"), wide),
        "sort": lambda: random(4, 64).sort(-1),
        "Adam": adam,
        "LSTM step": lambda: nn.LSTM(32, 32).to("opencl")(random(2, 4, 32)),
    }


def run_cases() -> None:
    import torch

    for name, case in cases().items():
        torch.opencl.synchronize()
        with open(os.environ["SECTORS_FILE"], "a") as file:
            file.write(json.dumps({"case": name}) + "\n")
        case()
        torch.opencl.synchronize()


if __name__ == "__main__":
    run_cases()
