"""What a sanitizer wrote into its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEADS = (
    re.compile(r"ERROR: (?P<kind>AddressSanitizer: [\w-]+)"),
    re.compile(r"WARNING: (?P<kind>ThreadSanitizer: [^(\n]+?) \(pid"),
    re.compile(r"(?P<place>\S+): (?P<kind>runtime error: [^\n]+)"),
)
# A frame in our module: "#1 0x... in name /path/file.cpp:12" or "#1 name /path:12".
_FRAME = re.compile(
    r"#\d+ (?:0x[0-9a-f]+ in )?(?P<name>.+?) (?P<place>\S+/(?:cpp|backend)/\S+:\d+)"
)


@dataclass(frozen=True)
class Report:
    kind: str
    function: str
    place: str

    def __str__(self) -> str:
        where = f" in {self.function}" if self.function else ""
        return f"{self.kind}{where} ({self.place})"


def read(text: str) -> list[Report]:
    """The reports of a file, each with the first frame in this project's code."""
    starts = sorted(
        (match.start(), match) for head in _HEADS for match in head.finditer(text)
    )
    found = []
    for index, (start, match) in enumerate(starts):
        end = starts[index + 1][0] if index + 1 < len(starts) else len(text)
        frame = _FRAME.search(text, start, end)
        place = match.groupdict().get("place") or (frame and frame["place"])
        function = frame["name"] if frame else ""
        found.append(Report(match["kind"], function, place or "outside of our code"))
    return found


def collect(folder: Path) -> dict[Report, int]:
    """Reports of all files in a folder, and how often each was made."""
    counts: dict[Report, int] = {}
    for file in sorted(folder.glob("report.*")):
        for report in read(file.read_text(errors="replace")):
            counts[report] = counts.get(report, 0) + 1
    return counts
