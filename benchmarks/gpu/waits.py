"""Whether a kernel waits for what it has loaded ahead, before it multiplies.

A product loads its next step while it multiplies the step before. Any use of a
load, such as a conversion, waits for it, and the multiplication with it. AMD's
instructions say where a kernel waits.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

_LOAD = re.compile(r"(?:global|flat|buffer)_load")
_WAIT = re.compile(r"s_waitcnt.*\bvmcnt|s_wait_loadcnt")
_MULTIPLY = re.compile(r"v_(?:dual_)?(?:pk_)?(?:fma|fmac|mac|mad)_f32|v_wmma|v_mfma")
_BARRIER = re.compile(r"s_barrier")
_BRANCH = re.compile(r"s_c?branch\w*\s+(\S+)")
_LEAVES = re.compile(r"s_branch|s_endpgm|s_setpc")


@dataclass
class _Code:
    """A function's instructions, and where its labels are."""

    lines: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def following(self) -> list[list[int]]:
        result = []
        for at, line in enumerate(self.lines):
            next_ones = [] if _LEAVES.match(line) else [at + 1]
            if branch := _BRANCH.match(line):
                next_ones.append(self.labels[branch[1]])
            result.append([n for n in next_ones if n < len(self.lines)])
        return result

    def all_of(self, pattern: re.Pattern[str]) -> list[int]:
        return [at for at, line in enumerate(self.lines) if pattern.match(line)]

    def multiplications(self) -> list[int]:
        """Those of the block that has most: an epilogue has some, too."""
        ends = sorted({*self.labels.values(), *(n + 1 for n in self.all_of(_BRANCH))})
        blocks: dict[int, list[int]] = {}
        for at in self.all_of(_MULTIPLY):
            blocks.setdefault(bisect_right(ends, at), []).append(at)
        return max(blocks.values(), key=len, default=[])


def _functions(assembly: str) -> dict[str, _Code]:
    result: dict[str, _Code] = {}
    code: _Code | None = None
    for line in assembly.splitlines():
        if match := re.match(r"([A-Za-z_][\w.$]*):\s+; @", line):
            code = result[match[1]] = _Code()
        elif line.startswith(".Lfunc_end"):
            code = None
        elif code is None:
            continue
        elif match := re.match(r"(\.LBB\w+):", line):
            code.labels[match[1]] = len(code.lines)
        elif match := re.match(r"\t([a-z]\w*.*?)\s*(?:;.*)?$", line):
            code.lines.append(match[1])
    return result


def _reached(
    begin: list[int], following: list[list[int]], ends: Callable[[int], bool]
) -> set[int]:
    """What `begin` leads to without passing an instruction that ends a path."""
    found: set[int] = set()
    todo = [n for at in begin for n in following[at]]
    while todo:
        at = todo.pop()
        if at not in found and not ends(at):
            found.add(at)
            todo += following[at]
    return found


def amd_waits(assembly: str, kernel: str) -> int | None:
    """Waits for loads that lie between a load and the multiplications that follow it
    with no barrier between, in the kernel's block of most multiplications.

    Args:
        assembly: clang's text.

    Returns:
        None where the kernel loads nothing ahead of a multiplication.
    """
    code = _functions(assembly).get(kernel)
    if code is None:
        return None
    following = code.following()
    preceding: list[list[int]] = [[] for _ in code.lines]
    for at, next_ones in enumerate(following):
        for n in next_ones:
            preceding[n].append(at)

    def ends(at: int) -> bool:
        return bool(_BARRIER.match(code.lines[at]))

    before = _reached(code.multiplications(), preceding, ends)
    loads = [at for at in code.all_of(_LOAD) if at in before]
    if not loads:
        return None
    after = _reached(loads, following, ends)
    return sum(at in after and at in before for at in code.all_of(_WAIT))
