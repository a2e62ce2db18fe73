"""The rules of the source's layers, which no compiler checks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_FILE = 500

# What each part may include of the others.
MAY_INCLUDE = {
    "cpp/runtime": {"cpp/runtime"},
    "cpp/device": {"cpp/device", "cpp/runtime"},
    "cpp/aten": {"cpp/aten", "cpp/device", "cpp/runtime"},
    "cpp/distributed": {"cpp/distributed"},
    "cpp/bindings": {
        "cpp/bindings",
        "cpp/distributed",
        "cpp/aten",
        "cpp/device",
        "cpp/runtime",
    },
    "backend": {"backend", "cpp/aten", "cpp/device", "cpp/runtime"},
}

_LINE_COMMENT = re.compile(r"//.*$")
_OPENCL_CALL = re.compile(r"\bcl[A-Z]\w*\s*\(")
_TORCH_INCLUDE = re.compile(r'#\s*include\s*[<"](torch|ATen|c10)/')
_REGULAR_EXPRESSION = re.compile(
    r"\bstd::(w?[sc]?regex|basic_regex)|#\s*include\s*<regex>"
)
# Ahead of the body of a function that may not throw, and what may. Destructors may not.
_NOEXCEPT = re.compile(
    r"(\bnoexcept|~\w+\(\))( noexcept| override| final)*\s*(:[^;{}]*)?\{"
)
_ALLOCATES = re.compile(
    r"\b(push_back|(try_)?emplace\w*|insert|make_unique|make_shared|to_string"
    r"|resize|reserve|assign|append|OPENCL_CHECK|TORCH_CHECK\w*|throw\w*)\s*[(<]"
    r"|\b(new|throw) \w"
)
# Ops that autocast computes in half types, out variants left out.
_CAST_CALL = re.compile(
    r"\bat::(mm|bmm|matmul|linear|linalg_vecdot|addmm|addmv|mv|baddbmm|addbmm|conv\w*"
    r"|prelu|scaled_dot_product_attention)(?<!_out)\("
)
_OWN_INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')


def files(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    found = [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in suffixes
    ]
    assert found, f"no {suffixes} file in {folders}: the test looks in the wrong place"
    return found


def host_files(*folders: str) -> list[Path]:
    return files(*folders, suffixes=(".cpp", ".h"))


def code_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line without its comment)."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        yield f"{path.relative_to(ROOT)}:{number}", _LINE_COMMENT.sub("", line)


def places(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{place}: {line.strip()}"
        for path in paths
        for place, line in code_lines(path)
        if pattern.search(line)
    ]


def part_of(path: Path) -> str:
    first, *rest = path.relative_to(ROOT).parts
    return first if first == "backend" else f"{first}/{rest[0]}"


def noexcept_bodies(text: str) -> Iterator[tuple[int, str]]:
    """(line, body between its braces)"""
    for match in _NOEXCEPT.finditer(text):
        end, depth = match.end(), 1
        while depth > 0:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield text.count("\n", 0, match.start()) + 1, text[match.end() : end - 1]


def test_opencl_is_called_by_the_runtime_only() -> None:
    others = [
        path for path in host_files("cpp", "backend") if "runtime" not in path.parts
    ]
    assert places(others, _OPENCL_CALL) == []


def test_the_runtime_does_not_know_torch() -> None:
    assert places(host_files("cpp/runtime"), _TORCH_INCLUDE) == []


@pytest.mark.parametrize("part", MAY_INCLUDE)
def test_includes_point_one_way(part: str) -> None:
    wrong = []
    for path in host_files(part):
        for place, line in code_lines(path):
            match = _OWN_INCLUDE.search(line)
            if match is None:
                continue
            for base in (path.parent, ROOT):
                included = (base / match[1]).resolve()
                if included.exists():
                    if part_of(included) not in MAY_INCLUDE[part]:
                        wrong.append(f"{place}: {line.strip()}")
                    break
    assert wrong == []


def test_the_environment_is_read_in_one_place() -> None:
    others = [
        path for path in host_files("cpp", "backend") if path.name != "config.cpp"
    ]
    assert places(others, re.compile(r"\b(secure_)?getenv\s*\(")) == []


def test_kernels_are_enqueued_in_one_place() -> None:
    calls = places(
        host_files("cpp", "backend"), re.compile(r"\bclEnqueueNDRangeKernel\s*\(")
    )
    assert len(calls) == 1, calls


def wrong_in_noexcept(text: str) -> list[int]:
    return [
        line
        for line, body in noexcept_bodies(text)
        if _ALLOCATES.search(body) and "catch (" not in body
    ]


def test_what_may_not_throw_does_not_allocate() -> None:
    """Unless it catches: an exception would end the process."""
    names = "void f() noexcept {", "  int f() const noexcept override {", "  ~A() {"
    for name in (*names, "A::A(A&& a) noexcept\n    : x(a.x) {"):
        assert wrong_in_noexcept(f"{name}\nif (x) {{ y(); }}\nz.push_back(1); }}")
        assert not wrong_in_noexcept(
            f"{name} try {{ z.push_back(1); }} catch (X) {{}} }}"
        )
        assert not wrong_in_noexcept(f"{name} y(); }}\nvoid g() {{ z.push_back(1); }}")
    paths = host_files("cpp", "backend")
    assert any(list(noexcept_bodies(path.read_text())) for path in paths)
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in paths
        for line in wrong_in_noexcept(path.read_text())
    ]
    assert wrong == []


def test_no_regular_expressions_in_the_host_code() -> None:
    """std::regex recurses by the character: a long line ends the process."""
    assert places(host_files("cpp", "backend"), _REGULAR_EXPRESSION) == []


def test_layout_copies_say_why() -> None:
    """``// copy: <reason>`` on the line, or close by where the statement is wrapped."""
    silent = []
    for path in host_files("backend"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            near = "\n".join(lines[max(0, number - 2) : number + 2])
            if ".contiguous(" in line and not re.search(r"// copy: \S", near):
                silent.append(f"{path.relative_to(ROOT)}:{number + 1}: {line.strip()}")
    assert silent == []


def test_kernels_are_not_cast_again() -> None:
    leaking = [
        place
        for place in places(host_files("backend"), _CAST_CALL)
        if "NoAutocast" not in (ROOT / place.split(":")[0]).read_text()
    ]
    assert leaking == []


def test_files_stay_short() -> None:
    long = {}
    for path in files(
        *("backend", "cpp", "python", "validate", "tools", "examples", "benchmarks"),
        suffixes=(".cpp", ".h", ".cl", ".clh", ".py"),
    ):
        count = len(path.read_text().splitlines())
        if count > LONGEST_FILE:
            long[str(path.relative_to(ROOT))] = count
    assert long == {}


def test_every_kernel_file_says_what_it_does() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files("backend", suffixes=(".cl", ".clh"))
        if not path.read_text().startswith("//")
    ]
    assert silent == []


def test_generated_files_are_not_committed() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "build", "python/torch_opencl/_generated"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    assert tracked.stdout == ""
