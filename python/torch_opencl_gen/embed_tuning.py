"""What is known of devices, from backend/tuning into C++."""

from __future__ import annotations

import json
from pathlib import Path

from .embed_kernels import write_if_changed


def _literal(value: str | float) -> str:
    return json.dumps(value, ensure_ascii=False)


def _pairs(rows: dict[str, float] | dict[str, str]) -> str:
    texts = [f"{{{_literal(k)}, {_literal(v)}}}" for k, v in sorted(rows.items())]
    return "{" + ", ".join(texts) + "}"


def write_tuning(root: Path, out: Path) -> None:
    """Writes ``tuning_entries.cpp``: an entry a file of ``backend/tuning``.

    Raises:
        KeyError: a file lacks its level, or the name of what it is for.
    """
    entries = []
    for path in sorted((root / "backend/tuning").glob("*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        name = "" if entry["level"] == "all" else entry["name"]
        numbers, choices = entry.get("numbers", {}), entry.get("choices", {})
        entries.append(
            f"      // {path.name}\n"
            f"      {{tuning_level({_literal(entry['level'])}), {_literal(name)},\n"
            f"       {_pairs(numbers)},\n       {_pairs(choices)}}},\n"
        )
    write_if_changed(
        out / "tuning_entries.cpp",
        '#include "cpp/runtime/tuning.h"\n\n'
        "namespace torch_opencl::runtime {\n\n"
        "std::vector<TuningEntry> shipped_tuning() {\n  return {\n"
        + "".join(entries)
        + "  };\n}\n\n}  // namespace torch_opencl::runtime\n",
    )
