"""What kernels are compiled for, and how the compilers' output is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """A compiler's target and the limits of its processor.

    Attributes:
        family: amd, nvidia or intel: the compiler.
        waves: that a SIMD of AMD or a multiprocessor of NVIDIA holds at most.
        registers: of a multiprocessor (NVIDIA).
        local_memory: bytes of a multiprocessor (NVIDIA), whose groups need
            1 KiB each beside their own from sm_80.
    """

    family: str
    cards: str
    waves: int = 0
    registers: int = 0
    local_memory: int = 0


TARGETS = {
    "gfx906": Target("amd", "Radeon VII", waves=10),
    "gfx1030": Target("amd", "RX 6000", waves=16),
    "gfx1100": Target("amd", "RX 7000", waves=16),
    "gfx1201": Target("amd", "RX 9000", waves=16),
    "sm_75": Target("nvidia", "RTX 20", 32, 65536, 64 << 10),
    "sm_86": Target("nvidia", "RTX 30", 48, 65536, 100 << 10),
    "sm_90": Target("nvidia", "H100", 64, 65536, 227 << 10),
    "dg2": Target("intel", "Arc A"),
}


# What the recorder says of itself, by family, where kernels are chosen by it: an Arc
# A770's vendor, version (12.55.8), execution units and local memory.
RECORDED = {
    "": {},
    "intel": {
        "RECORDER_VENDOR": "Intel(R) Corporation",
        "RECORDER_INTEL_VERSION": str(12 << 22 | 55 << 14 | 8),
        "RECORDER_COMPUTE_UNITS": "512",
        "RECORDER_LOCAL_MEMORY": "65536",
        "RECORDER_GROUP_SIZE": "1024",
    },
}


def recorded_as(target: str) -> str:
    """The key of RECORDED whose traces hold for a target."""
    family = TARGETS[target].family
    return family if family in RECORDED else ""


@dataclass
class Argument:
    """Of a kernel: `type` as it is written, `is_const` of what is pointed to."""

    name: str
    type: str
    is_buffer: bool
    is_const: bool


@dataclass
class Kernel:
    """What a compiler made of a kernel.

    Attributes:
        registers: of a work-item (AMD: vector registers; NVIDIA), of a thread of
            `simd` lanes (Intel: of the file).
        spills: bytes, or vector registers on AMD, whose scalar registers spill to
            lanes of vector registers.
        private: bytes of a work-item's private memory that are no spills.
        local: bytes of a work-group.
        occupancy: share of the waves that can be resident; None where the
            compiler decides it (Intel: by its register file, always whole).
        simd: lanes of a wave.
        group: work-items of the work-group it asks for, 0 for any.
        arguments: only from AMD's compiler, which writes them down.
    """

    name: str
    registers: int = 0
    spills: int = 0
    private: int = 0
    local: int = 0
    occupancy: float | None = None
    simd: int = 0
    group: int = 0
    arguments: list[Argument] = field(default_factory=list)


def _number(text: str, key: str, otherwise: int = 0) -> int:
    match = re.search(rf"\b{key}:\s+(\d+)", text)
    return int(match[1]) if match else otherwise


def read_amd(assembly: str, target: str) -> list[Kernel]:
    """Kernels of an assembly text of clang's."""
    start = assembly.rfind("amdhsa.kernels:")
    if start < 0:
        raise ValueError(f"no metadata of kernels in the assembly for {target}")
    kernels = []
    # An entry is a list item at the indentation of two; it begins with any key.
    entries = re.split(r"\namdhsa\.|\n\.\.\.", assembly[start:])[0]
    for entry in re.split(r"\n  - ", entries)[1:]:
        name = re.search(r"(?:^|\n    )\.name:\s+'?([\w.]+)'?", entry)
        if name is None:
            raise ValueError(f"a kernel without a name for {target}")
        of_kernel = assembly.find(f"\n{name[1]}:")
        occupancy = re.search(r"; Occupancy: (\d+)", assembly[of_kernel:])
        if of_kernel < 0 or occupancy is None:
            raise ValueError(f"{name[1]}: no occupancy for {target}")
        group = re.search(
            r"\.reqd_workgroup_size:\s+- (\d+)\s+- (\d+)\s+- (\d+)", entry
        )
        spills = _number(entry, "vgpr_spill_count")
        kernels.append(
            Kernel(
                name[1],
                registers=_number(entry, "vgpr_count"),
                spills=spills,
                private=max(
                    0, _number(entry, "private_segment_fixed_size") - 4 * spills
                ),
                local=_number(entry, "group_segment_fixed_size"),
                occupancy=int(occupancy[1]) / TARGETS[target].waves,
                simd=_number(entry, "wavefront_size", 64),
                group=int(group[1]) * int(group[2]) * int(group[3]) if group else 0,
                arguments=_amd_arguments(entry),
            )
        )
    return kernels


def _amd_arguments(entry: str) -> list[Argument]:
    begin = entry.find(".args:")
    if begin < 0:
        return []
    text = re.split(r"\n    \.\w", entry[begin:])[0]
    arguments = []
    for item in re.split(r"\n      - ", text)[1:]:
        kind = re.search(r"\.value_kind:\s+(\w+)", item)
        if kind is None or kind[1].startswith("hidden"):
            continue
        name = re.search(r"\.name:\s+'?([\w.]+)'?", item)
        type_name = re.search(r"\.type_name:\s+'?([^'\n]+)'?", item)
        arguments.append(
            Argument(
                name[1] if name else "",
                type_name[1].strip() if type_name else "",
                kind[1] in ("global_buffer", "dynamic_shared_pointer"),
                re.search(r"\.is_const:\s+true", item) is not None,
            )
        )
    return arguments


def read_nvidia(log: str, target: str, groups: dict[str, int]) -> list[Kernel]:
    """Kernels of what `ptxas -v` says.

    Args:
        groups: work-items of a kernel's group, which ptxas does not repeat.
    """
    kernels = []
    pieces = re.split(r"Compiling entry function '", log)[1:]
    for piece in pieces:
        name = piece[: piece.index("'")]
        stack = re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
            r"(\d+) bytes spill loads",
            piece,
        )
        used = re.search(r"Used (\d+) registers", piece)
        if stack is None or used is None:
            raise ValueError(f"{name}: no registers in ptxas' output for {target}")
        spills = int(stack[2])
        whole = re.search(r"(\d+) bytes cumulative stack size", piece)
        local = re.search(r"(\d+) bytes smem", piece)
        kernel = Kernel(
            name,
            registers=int(used[1]),
            spills=spills,
            private=max(0, int(whole[1] if whole else stack[1]) - spills),
            local=int(local[1]) if local else 0,
            simd=32,
            group=groups.get(name, 0),
        )
        kernel.occupancy = nvidia_occupancy(kernel, TARGETS[target])
        kernels.append(kernel)
    return kernels


def nvidia_occupancy(kernel: Kernel, target: Target) -> float:
    """Resident waves over those a multiprocessor can hold, by registers, local
    memory and groups."""
    waves = -(-(kernel.group or 256) // 32)
    registers = -(-kernel.registers * 32 // 256) * 256
    limits = [target.waves // waves, 16]
    if registers:
        limits.append(target.registers // registers // waves)
    limits.append(target.local_memory // (kernel.local + 1024))
    return min(limits) * waves / target.waves


def read_intel(text: str) -> list[Kernel]:
    """Kernels of a binary's `.ze_info`."""
    start = text.find("kernels:")
    if start < 0:
        raise ValueError("no .ze_info in Intel's binary")
    kernels = []
    for entry in re.split(r"\n  - name:", text[start:])[1:]:
        if "simd_size" not in entry:
            continue  # of debug information
        name = entry.split("\n")[0].strip(" '\"")
        group = re.search(
            r"required_work_group_size:\s+\[ (\d+), (\d+), (\d+) \]", entry
        )
        memory = re.findall(
            r"type:\s+(\w+)\s+usage:\s+(\w+)\s+size:\s+(\d+)",
            entry.partition("per_thread_memory_buffers:")[2],
        )
        simd = _number(entry, "simd_size")
        spills = _number(entry, "spill_size")
        # Buffers are those of a thread; scratch holds spills and private memory.
        private = sum(int(size) for *_, size in memory) - spills
        kernels.append(
            Kernel(
                name,
                registers=_number(entry, "grf_count"),
                spills=spills,
                private=max(0, private) // max(simd, 1),
                local=_number(entry, "slm_size"),
                simd=simd,
                group=int(group[1]) * int(group[2]) * int(group[3]) if group else 0,
            )
        )
    return kernels
