"""Hooks of mkdocs.yml: what the site has beyond docs/.

README.md, CONTRIBUTING.md and CHANGELOG.md become pages. A link from a page to a
file that is no page, such as a source, becomes the file's name: a site has no
sources to link to. A link to what does not exist is an error.

Pages with pictures load the package's mermaid.js from the site, so that they need no
other server.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

import mermaidx
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

_ROOT = Path(__file__).resolve().parents[1]
# File in the root -> page.
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "release-notes.md",
}
_MERMAID = "assets/mermaid.js"
_SOURCES = {page: source for source, page in _PAGES.items()}
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`(?!\]))", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files, config):
    for source, page in _PAGES.items():
        text = (_ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    script = Path(mermaidx.__file__).parent / _MERMAID
    files.append(File.generated(config, _MERMAID, abs_src_path=str(script)))
    return files


def on_page_markdown(markdown, page, config, files):
    name = page.file.src_uri
    source = _SOURCES.get(name, f"docs/{name}")

    def link(match: re.Match) -> str:
        text, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match[0]
        path, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (_ROOT / file).exists():
            raise PluginError(f"{source}: {target} does not exist")
        if file in _PAGES or file.startswith("docs/"):
            to = _PAGES.get(file, file.removeprefix("docs/"))
            to = os.path.relpath(to, posixpath.dirname(name) or ".")
            return f"[{text}]({to}{'#' if anchor else ''}{anchor})"
        shown = text.strip("`")
        return f"`{file}`" if shown in file else f"{text} (`{file}`)"

    # Every second part is code.
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(html, page, config, files):
    """Docstrings name others as :func:`name`."""
    html = re.sub(r":(?:func|class|meth|mod):(?=<code>)", "", html)
    if 'class="mermaid"' in html:
        script = files.get_file_from_path(_MERMAID).url_relative_to(page.file)
        html += f'<script src="{script}"></script>'
    return html
