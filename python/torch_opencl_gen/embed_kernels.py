"""Kernel files into C++ string literals, their includes expanded."""

from __future__ import annotations

import re
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s+"(.+)"\s*$')
_LITERAL_LIMIT = 15000  # bytes: some compilers limit a string literal to 64 KiB


def expand(path: Path, include_dirs: list[Path], seen: set[Path]) -> str:
    """The file's text with every ``#include "..."`` replaced, once each.

    ``#line`` directives keep compiler messages pointing at the real file and
    line.

    Raises:
        FileNotFoundError: an included file is in none of the directories.
    """
    seen.add(path)
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = _INCLUDE.match(line)
        if match is None:
            lines.append(line)
            continue
        for directory in (path.parent, *include_dirs):
            included = directory / match.group(1)
            if included.exists():
                break
        else:
            raise FileNotFoundError(f"{path}:{number}: no {match.group(1)}")
        if included not in seen:
            lines.append(expand(included, include_dirs, seen))
        lines.append(f'#line {number + 1} "{path.name}"')
    return "\n".join(lines)


def _literal(text: str) -> str:
    pieces = [
        text[start : start + _LITERAL_LIMIT]
        for start in range(0, len(text), _LITERAL_LIMIT)
    ]
    return "\n".join(f'    R"opencl({piece})opencl"' for piece in pieces)


def write_kernels(root: Path, out: Path) -> None:
    """Writes ``kernel_sources.{h,cpp}``: one KernelSource a ``.cl`` file.

    Shared headers that generated kernels start from are embedded as well,
    under their stem. Stems are unique. What only Inductor's kernels use
    (``compiled_*.clh``) is in ``compiled_sources.{h,cpp}``.

    Raises:
        ValueError: two files have the same stem.
    """
    common, backend = root / "backend/common", root / "backend"
    files = [*sorted(common.glob("*.clh")), *sorted(backend.glob("*/*.cl"))]
    _write_sources(files, common, out / "kernel_sources")
    files = sorted(backend.glob("*/compiled_*.clh"))
    _write_sources(files, common, out / "compiled_sources")


def _write_sources(files: list[Path], common: Path, out: Path) -> None:
    stems = [path.stem for path in files]
    repeated = {stem for stem in stems if stems.count(stem) > 1}
    if repeated:
        raise ValueError(f"kernel files share a stem: {sorted(repeated)}")
    declarations, definitions = [], []
    for path in files:
        # A header that follows types.clh in a generated text must not repeat it.
        seen = {common / "types.clh"} if path.suffix == ".clh" else set()
        text = expand(path, [common], seen) + "\n"
        declarations.append(f"extern const runtime::KernelSource {path.stem};")
        definitions.append(
            f'const runtime::KernelSource {path.stem} = {{"{path.name}",\n'
            f"{_literal(text)}}};"
        )
    begin = "namespace torch_opencl::sources {\n\n"
    end = "\n\n}  // namespace torch_opencl::sources\n"
    write_if_changed(
        out.with_suffix(".h"),
        '#pragma once\n\n#include "cpp/runtime/program_cache.h"\n\n'
        + begin
        + "\n".join(declarations)
        + end,
    )
    write_if_changed(
        out.with_suffix(".cpp"),
        f'#include "{out.name}.h"\n\n' + begin + "\n\n".join(definitions) + end,
    )


def write_if_changed(path: Path, text: str) -> None:
    """Keeps the time stamp of a file that has this text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
