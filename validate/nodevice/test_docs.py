"""The pages say what the source says, and say it in short sentences.

python validate/nodevice/test_docs.py    prints the table of variables
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LONGEST_SENTENCE = 40
LONGEST_README = 150
PAGES = sorted(DOCS.rglob("*.md"))
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
    page = (DOCS / "environment.md").read_text()
    assert [row for row in rows if table_row(*row) not in page] == []


def test_the_readme_stays_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= LONGEST_README


def anchors(page: Path) -> set[str]:
    """Of headings, as GitHub and MkDocs make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.strip().replace(" ", "-"))
    return found


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def test_links_point_to_files_and_headings() -> None:
    dead = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES):
        for target in re.findall(r"\]\(([^)]+)\)", without_code(page.read_text())):
            name, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = page.parent / name if name else page
            missing = not file.exists() or (anchor and anchor not in anchors(file))
            if missing:
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []


def sentences(text: str) -> list[str]:
    """Of the prose: without code, headings and directives. A paragraph, an item of a
    list and a cell of a table end a sentence; a link counts as its text."""
    text = re.sub(r"<!--.*?-->", "", without_code(text), flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    paragraphs = [[]]
    for line in text.splitlines():
        if re.match(r"\s*\|", line):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            paragraphs += [*([cell.strip()] for cell in cells), []]
            continue
        if re.match(r"\s*(#|:::|</?\w)", line) or not line.strip():
            paragraphs.append([])
            continue
        if re.match(r"\s*([-*]|\d+\.)\s", line):
            paragraphs.append([])
            line = re.sub(r"^\s*([-*]|\d+\.)\s+", "", line)
        paragraphs[-1].append(line.strip())
    joined = (" ".join(lines) for lines in paragraphs if lines)
    return [
        sentence
        for paragraph in joined
        for sentence in re.split(
            r"(?<=[.!?])[*)\"]*\s+(?=[\"(*`]*[A-Z0-9`])", paragraph
        )
    ]


def words(sentence: str) -> int:
    return len(re.findall(r"[^\s]*\w[^\s]*", sentence))


def test_sentences_are_told_apart() -> None:
    text = "One `a. B` two.\nThree four: five.\n\n- Six\n- Seven\n\n| a b. C | d |\n"
    assert [words(sentence) for sentence in sentences(text)] == [3, 3, 1, 1, 2, 1, 1]
    long = "Word" + " word" * LONGEST_SENTENCE + "."
    assert words(sentences(f"Short. {long} Short.")[1]) > LONGEST_SENTENCE


@pytest.mark.parametrize(
    "page",
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *PAGES,
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_no_sentence_is_long(page: Path) -> None:
    long = [
        sentence
        for sentence in sentences(page.read_text())
        if words(sentence) > LONGEST_SENTENCE
    ]
    assert long == []


def docstrings(page: Path) -> Iterator[str]:
    """Of the modules that a page of docs/api renders, an argument a paragraph."""
    for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE):
        module = ROOT / "python" / name.replace(".", "/")
        file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                yield re.sub(r"(?m)^( +\*?\w+:|\w+:$)", r"\n\n\1\n\n", text)


@pytest.mark.parametrize("page", sorted(DOCS.glob("api/*.md")), ids=lambda p: p.stem)
def test_no_sentence_of_a_docstring_is_long(page: Path) -> None:
    found = [s for text in docstrings(page) for s in sentences(text)]
    assert found
    assert [s for s in found if words(s) > LONGEST_SENTENCE] == []


# Of PyTorch and OpenCL, in the walks.
FOREIGN = {
    "abs", "at", "conv2d", "PrivateUse1", "TensorIterator", "clEnqueueNDRangeKernel",
    "Adam", "model", "optim", "parameters", "step", "torch",
    "conv_output_size", "with_32bit_indexing", "opencl", "cpu", "True",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{3,}")


def source_text(*files: Path) -> str:
    """Of the files, and of those that share their stems: a header's .cpp and .cl."""
    beside = {path for file in files for path in file.parent.glob(f"{file.stem}.*")}
    return "\n".join(path.read_text() for path in sorted(beside))


@pytest.mark.parametrize(
    "page", sorted((DOCS / "walks").glob("*.md")), ids=lambda page: page.name
)
def test_names_in_walks_exist(page: Path) -> None:
    """In one of the files that the page links to."""
    text = page.read_text()
    body = text.split("\n", 1)[1]
    linked = [
        (page.parent / target).resolve()
        for target in re.findall(r"\]\((\.\./[^)#]+)", text)
    ]
    assert len(linked) >= 4
    words_of_sources = set(_NAME.findall(source_text(*linked)))
    named = {
        name
        for code in re.findall(r"`([^`\n]+)`", body)
        for name in _NAME.findall(code)
    }
    assert len(named) >= 15
    # The source names an op by its header: ATen/ops/_softmax_ops.h.
    ops = {name for name in named if f"{name.strip('_')}_ops" in source_text(*linked)}
    assert sorted(named - words_of_sources - ops - FOREIGN) == []


if __name__ == "__main__":
    print(*(table_row(*row) for row in variables()), sep="\n")
