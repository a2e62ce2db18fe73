"""Compiles programs for GPUs that are not there."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from . import isa, targets, tools
from .targets import TARGETS, Argument, Kernel
from .waits import amd_waits

# To be changed with what is read of the compilers' output.
FORMAT = 2


@dataclass(frozen=True)
class Program:
    """An OpenCL text with its build options."""

    text: str
    options: str

    @property
    def key(self) -> str:
        whole = f"{self.options}\n{self.text}".encode()
        return hashlib.sha256(whole).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The file that it is mostly of; generated texts have a line of that, too."""
        files = re.findall(r'^#line 1 "([\w.]+)\.cl"', self.text, re.MULTILINE)
        return files[0] if files else "generated"


@dataclass
class Compiled:
    """A program's kernels for a target, or the compiler's error."""

    target: str
    program: str
    kernels: list[Kernel]
    loops: dict[str, isa.Loop]  # the hottest of each kernel
    instructions: dict[str, int]  # of each kernel, every path once
    waits: dict[str, int]  # for loads ahead of multiplications (waits.py); AMD's only
    error: str = ""


class Compilers:
    """Compiles once a program and target; results are kept in a folder.

    The compilers' versions are part of the key.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or tools.BUILD / "compiled"
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp = json.dumps([FORMAT, tools.versions()])
        self._stamp = hashlib.sha256(stamp.encode()).hexdigest()[:8]

    def compile(
        self,
        programs: Iterable[Program],
        names: Iterable[str],
        progress: Callable[[str], None] = lambda text: None,
        jobs: int = 1,
    ) -> list[Compiled]:
        """Every program for every target; a program's are made one by one."""

        def compile_one(numbered: tuple[int, Program]) -> list[Compiled]:
            number, program = numbered
            result = []
            for target in names:
                progress(f"{number} {program.name} {target}")
                result.append(self._once(program, target))
            return result

        names = list(names)
        with ThreadPoolExecutor(jobs) as pool:
            found = list(pool.map(compile_one, enumerate(programs)))
        return [compiled for each in found for compiled in each]

    def _once(self, program: Program, target: str) -> Compiled:
        kept = self.folder / f"{program.key}.{target}.{self._stamp}.json"
        if kept.exists():
            return _from_json(json.loads(kept.read_text()))
        compiled = self._compile(program, target)
        if not compiled.error:  # which may be the machine's
            kept.write_text(json.dumps(asdict(compiled)))
        return compiled

    def _compile(self, program: Program, target: str) -> Compiled:
        source = self.folder / f"{program.key}.cl"
        source.write_text(program.text + "\n")
        compile_for = {"amd": self._amd, "nvidia": self._nvidia, "intel": self._intel}
        try:
            compiler = compile_for[TARGETS[target].family]
            return Compiled(target, program.key, *compiler(program, source, target))
        except tools.Missing:
            raise
        except (RuntimeError, ValueError) as error:
            return Compiled(target, program.key, [], {}, {}, {}, str(error))

    def _clang(self, program: Program, source: Path, *options: str | Path) -> None:
        # clang wants -DX=1 in one word, drivers take both.
        words = re.sub(r"-D\s+(\S+)", r"-D\1", program.options).split()
        own = [word for word in words if not word.startswith("-cl-intel-")]
        bitcode = [option for option in options if str(option).endswith(".bc")]
        link = [
            word
            for path in bitcode
            for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", path)
        ]
        others = [option for option in options if option not in bitcode]
        command = [tools.clang(), "-x", "cl", *own, "-O3", "-cl-kernel-arg-info"]
        tools.checked([*command, *others, *link, "-S", source], program.name)

    def _amd(self, program: Program, source: Path, target: str):
        assembly = source.with_suffix(f".{target}.s")
        library = tools.libclc("amdgcn-amd-amdhsa", "amdgcn--amdhsa")
        options = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib"]
        self._clang(program, source, *options, library, "-o", assembly)
        text = assembly.read_text()
        kernels = targets.read_amd(text, target)
        waits = {k.name: amd_waits(text, k.name) for k in kernels}
        waits = {name: number for name, number in waits.items() if number is not None}
        return kernels, *_loops(kernels, isa.amd_blocks(text), isa.AMD), waits

    def _ptx(self, program: Program, source: Path) -> Path:
        """One text for all processors that can run it, which ptxas translates."""
        ptx = source.with_suffix(".ptx")
        if not ptx.exists():
            units = re.search(r"-D\s*MATRIX_UNITS=3\b", program.options)
            processor = "sm_80" if units else "sm_75"
            options = ["-target", "nvptx64--nvidiacl", "-Xclang", "-target-cpu"]
            options += ["-Xclang", processor, tools.libclc("nvptx64--nvidiacl")]
            self._clang(program, source, *options, tools.libdevice(), "-o", ptx)
        return ptx

    def _nvidia(self, program: Program, source: Path, target: str):
        ptx = self._ptx(program, source)
        # clang leaves the size of the groups out of PTX.
        groups = {k.name: k.group for k in self._once(program, "gfx1030").kernels}
        binary = source.with_suffix(f".{target}.cubin")
        command = [tools.ptxas(), f"-arch={target}", "-v", ptx, "-o", binary]
        log = tools.checked(command, program.name)
        kernels = targets.read_nvidia(log, target, groups)
        disassembler = tools.nvdisasm()
        if disassembler is None:
            return kernels, {}, {}, {}
        text = tools.checked([disassembler, "-c", binary], "nvdisasm")
        return kernels, *_loops(kernels, isa.nvidia_blocks(text), isa.NVIDIA), {}

    def _intel(self, program: Program, source: Path, target: str):
        name = source.with_suffix(f".{target}").name
        binary = self.folder / name
        command = [tools.ocloc(), "compile", "-file", source, "-device", target]
        command += ["-options", program.options, "-out_dir", self.folder]
        command += ["-internal_options", "-ze-allow-zebin"]
        command += ["-output", name, "-output_no_suffix"]
        log = tools.checked(command, program.name)
        if not binary.exists():  # newer versions add a suffix all the same
            binary = binary.with_suffix(f".{target}.bin")
        if not binary.exists():
            raise RuntimeError(f"{program.name}: {log[-1000:]}")
        return targets.read_intel(binary.read_bytes().decode("latin1")), {}, {}, {}


def _loops(kernels: list[Kernel], blocks: isa.Blocks, classify: isa.Classify):
    return (
        isa.hottest(kernels, blocks, classify),
        isa.instructions(kernels, blocks, classify),
    )


def _from_json(record: dict) -> Compiled:
    kernels = []
    for kernel in record["kernels"]:
        kernel["arguments"] = [Argument(**entry) for entry in kernel["arguments"]]
        kernels.append(Kernel(**kernel))
    loops = {name: isa.Loop(**loop) for name, loop in record["loops"].items()}
    return Compiled(**{**record, "kernels": kernels, "loops": loops})
