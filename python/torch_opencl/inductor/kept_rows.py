"""Values of a row that one loop computes and a later loop would compute again.

The loops over a reduced axis are generated one by one, so what a norm or a softmax is
taken of is written in each of them. Where that takes more than a few plain operations,
the first loop keeps the row in private memory, which stays in cache."""

from __future__ import annotations

import re

_DEFINITION = re.compile(r"\s*const (\w+) (\w+) = (.*);$")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_SLOW = re.compile(
    r"\b(whole_\w+|erfc|erfc_scaled|exp2|expm1|log\w*|pow|\w*sin\w*|\w*cos\w*|\w*tan\w*"
    r"|random_\w+)\("
)
_MOST_ARRAYS = 2
KEPT_TYPE = "float16"


def _definitions(lines: list[str]) -> dict[int, tuple[str, str, str]]:
    """Type, name and value of the lines that define one and are in no block."""
    found, depth = {}, 0
    for number, line in enumerate(lines):
        match = _DEFINITION.match(line)
        if match and depth == 0:
            found[number] = match.groups()
        depth += line.count("{") - line.count("}")
    return found


def keep_rows(loops: list[list[str]], place: str) -> list[str]:
    """Changes the lines of ``loops``, which run over the same elements.

    Args:
        loops: the statements of each, in order.
        place: the index of a step's first element.

    Returns:
        Names of the arrays that they need, one element each of the row.
    """
    home: dict[tuple[str, str], str] = {}  # type and value: the first name
    slow: set[str] = set()
    arrays: list[str] = []
    for current, lines in enumerate(loops):
        definitions = _definitions(lines)
        renamed: dict[str, str] = {}
        repeated: dict[str, int] = {}
        for number, (kind, name, value) in definitions.items():
            text = _WORD.sub(lambda m: renamed.get(m[0], m[0]), value)  # noqa: B023
            first = home.setdefault((kind, text), name)
            if first != name:
                renamed[name] = first
                repeated[name] = number
            elif _SLOW.search(text) or slow & set(_WORD.findall(text)):
                slow.add(name)
        again = set(repeated.values())
        used = {
            word
            for number, line in enumerate(lines)
            if number not in again
            for word in _WORD.findall(line)
        }
        for name, number in repeated.items():
            first = renamed[name]
            kind = definitions[number][0]
            if name not in used or first not in slow or kind != KEPT_TYPE:
                continue
            if first not in arrays:
                if len(arrays) == _MOST_ARRAYS:
                    continue
                arrays.append(first)
                _store(loops[:current], first, place)
            lines[number] = f"const {kind} {name} = vload16(0, {first}_row + {place});"
        _drop_unused(lines, again)
    return arrays


def _store(loops: list[list[str]], name: str, place: str) -> None:
    for lines in loops:
        for number, (_, defined, _) in _definitions(lines).items():
            if defined == name:
                lines[number] += f" vstore16({name}, 0, {name}_row + {place});"
                return


def _drop_unused(lines: list[str], candidates: set[int]) -> None:
    for number in sorted(candidates, reverse=True):
        name = _DEFINITION.match(lines[number])[2]
        rest = lines[number + 1 :]
        if not any(re.search(rf"\b{name}\b", line) for line in rest):
            lines[number] = ""
