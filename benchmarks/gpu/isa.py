"""What the instructions of a kernel's hottest loop are.

A dense kernel spends its time in one basic block, the one with the most fused
multiply-adds. What counts there is how many of the issued instructions are
such, and how many words of local memory one costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Of a function: its basic blocks, each a list of instructions.
Blocks = dict[str, list[list[str]]]


@dataclass
class Loop:
    """Instructions of a block; a pair that is issued together counts once.

    Attributes:
        issued: without those that only wait.
        fma: float32 multiply-adds, the halves of a pair and of packed ones apart.
        local_words: 32-bit words of local memory, read and written by a lane.
        loads: of global memory, and stores.
        private: loads and stores of private memory: spills, indexed arrays.
    """

    issued: int
    fma: int
    local_words: int
    loads: int
    private: int

    @property
    def fma_per_issue(self) -> float:
        return self.fma / self.issued if self.issued else 0.0

    @property
    def words_per_fma(self) -> float:
        return self.local_words / self.fma if self.fma else 0.0


Classify = Callable[[str], tuple[int, int, int, int, int]]

_AMD_FMA = re.compile(r"\bv_(?:dual_)?(?:pk_)?(?:fma|fmac|fmaak|fmamk|mac|mad)_f32")
_AMD_WAIT = re.compile(r"s_(?:wait|delay|clause|nop|inst_prefetch|set_inst)")


def _amd(line: str) -> tuple[int, int, int, int, int]:
    name = line.split()[0]
    if _AMD_WAIT.match(name):
        return 0, 0, 0, 0, 0
    fma = len(_AMD_FMA.findall(line)) * (2 if "_pk_" in line else 1)
    words = 0
    if name.startswith("ds_"):
        width = re.search(r"_b(\d+)", name)
        words = int(width[1]) // 32 if width else 1
        if re.search(r"(?:read|write|load|store)_?2", name) or "_2addr_" in name:
            words *= 2
    is_global = name.startswith(("global_", "flat_", "buffer_"))
    return 1, fma, words, int(is_global), int(name.startswith("scratch_"))


_WIDTHS = {"64": 2, "128": 4}


def _nvidia(line: str) -> tuple[int, int, int, int, int]:
    name = re.sub(r"^@!?U?P\w+\s+", "", line).split()[0].rstrip(";")
    kind, _, rest = name.partition(".")
    if kind in ("NOP", "WARPSYNC"):
        return 0, 0, 0, 0, 0
    words = 0
    if kind in ("LDS", "STS", "LDSM"):
        words = next((_WIDTHS[w] for w in rest.split(".") if w in _WIDTHS), 1)
    fma = {"FFMA": 1, "FFMA2": 2}.get(kind, 0)
    is_global = kind in ("LDG", "STG", "LD", "ST")
    return 1, fma, words, int(is_global), int(kind in ("LDL", "STL"))


AMD: Classify = _amd
NVIDIA: Classify = _nvidia


def loop_of(block: Iterable[str], classify: Classify) -> Loop:
    sums = [0, 0, 0, 0, 0]
    for line in block:
        for index, value in enumerate(classify(line)):
            sums[index] += value
    return Loop(*sums)


def functions_of(kernel: str, blocks: Blocks) -> list[list[list[str]]]:
    """clang 22 compiles a kernel's text to a function that the kernel calls where
    it is not inlined; it is the kernel's as well."""
    names = (kernel, f"__clang_ocl_kern_imp_{kernel}")
    found = {name.split("$")[-1]: own for name, own in blocks.items()}
    return [found[name] for name in names if name in found]


def instructions(
    kernels: Iterable, blocks: Blocks, classify: Classify
) -> dict[str, int]:
    """Issued by one work-item that takes every path once."""
    return {
        kernel.name: max(
            (
                sum(loop_of(block, classify).issued for block in own)
                for own in functions_of(kernel.name, blocks)
            ),
            default=0,
        )
        for kernel in kernels
    }


def hottest(kernels: Iterable, blocks: Blocks, classify: Classify) -> dict[str, Loop]:
    """The block of most multiply-adds of each kernel that has any."""
    result = {}
    for kernel in kernels:
        # The kernel's own blocks first: a function that was inlined into it is left
        # over, and without its accesses to local memory.
        for own in functions_of(kernel.name, blocks):
            loops = [loop_of(block, classify) for block in own]
            # Of equal blocks the one that does less besides.
            best = max(loops, key=lambda loop: (loop.fma, -loop.issued), default=None)
            if best is not None and best.fma:
                result[kernel.name] = best
                break
    return result


def amd_blocks(assembly: str) -> Blocks:
    """By function, of clang's assembly text."""
    result: Blocks = {}
    current: list[list[str]] | None = None
    for line in assembly.splitlines():
        if re.match(r"\.Lfunc_end", line):
            current = None
        elif match := re.match(r"([A-Za-z_][\w.$]*):\s+; @", line):
            current = result.setdefault(match[1], [[]])
        elif current is None:
            continue
        elif re.match(r"\.LBB\w+:|; %bb\.\d+", line):
            current.append([])
        elif match := re.match(r"\t([a-z]\w*.*?)\s*(?:;.*)?$", line):
            current[-1].append(match[1])
    return result


def nvidia_blocks(disassembly: str) -> Blocks:
    """By function, of nvdisasm's text. A branch ends a block, too."""
    result: Blocks = {}
    current: list[list[str]] | None = None
    for line in disassembly.splitlines():
        if match := re.match(r"([A-Za-z_$][\w$.]*):", line):
            current = result.setdefault(match[1], [[]])
        elif current is None:
            continue
        elif re.match(r"\.L_\w+:", line):
            current.append([])
        elif match := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.+?)\s*;", line):
            current[-1].append(match[1])
            if re.search(r"\b(?:BRA|EXIT|RET)\b", match[1]):
                current.append([])
    return result
