"""README.md says what the source says.

python validate/nodevice/test_readme.py    prints the table of variables
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def variables() -> list[tuple[str, str, str]]:
    """(name, default, description) of the entries in config.cpp."""
    source = (ROOT / "cpp/runtime/config.cpp").read_text()
    table = source.split("config_entries() {", 1)[1].split("};\n", 1)[0]
    entries = re.findall(r'\{("TORCH_OPENCL_.*?"\s*)\}', table, re.DOTALL)
    rows = []
    for entry in entries:
        # Adjacent literals are one string; commas between literals part them.
        fields = re.split(r'(?<="),\s*(?=")', entry)
        name, default, description = (
            "".join(_STRING.findall(field)).replace('\\"', '"') for field in fields
        )
        rows.append((name, default, description))
    return rows


def table_row(name: str, default: str, description: str) -> str:
    return f"| `{name}` | {f'`{default}`' if default else ''} | {description} |"


def test_every_variable_is_in_the_table() -> None:
    rows = variables()
    assert len(rows) >= 8
    readme = (ROOT / "README.md").read_text()
    assert [row for row in rows if table_row(*row) not in readme] == []


def test_links_point_to_files() -> None:
    dead = []
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                dead.append(f"{page.name}: {target}")
    assert dead == []


if __name__ == "__main__":
    print(*(table_row(*row) for row in variables()), sep="\n")
