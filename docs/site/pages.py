# SPDX-License-Identifier: Apache-2.0
"""MkDocs hooks: pages that are generated when the site is built, and pages for files outside of docs.

docs/ has links to sources, examples and READMEs of the repository. Each of these gets a page of its own
under files/, so that the site needs no other host.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import reference

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".c": "c", ".toml": "toml", ".json": "json"}
IN_PAGE = 200_000  # a larger file is copied and not shown


def on_files(files: Files, config: Any) -> Files:
    generated = reference.pages(ROOT)
    outside: dict[str, str] = {}
    waiting = [
        (posixpath.join("docs", file.src_uri), Path(file.abs_src_path).read_text(encoding="utf-8"))
        for file in files.documentation_pages()
    ]
    while waiting:
        source, text = waiting.pop()
        for target in _targets(source, text):
            if target.startswith("docs/") or target in outside:
                continue
            path = ROOT / target
            outside[target] = _page_of(path)
            if path.suffix == ".md":
                waiting.append((target, outside[target]))
    for target, text in outside.items():
        generated[f"files/{target.removesuffix('.md')}.md"] = text
    for uri, text in generated.items():
        files.append(File.generated(config, uri, content=text))
    config["spillway_outside"] = frozenset(outside)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links that leave docs lead to the pages of those files. Broken links of these are plain text here: the
    site answers for docs alone."""
    uri = page.file.src_uri
    source = uri.removeprefix("files/") if uri.startswith("files/") else posixpath.join("docs", uri)

    def moved(found: re.Match[str]) -> str:
        target = _inside(source, found[2])
        if target is None:
            is_broken = uri.startswith("files/") and "://" not in found[2]
            return found[1].removesuffix("](").lstrip("![") if is_broken else found[0]
        if target.startswith("docs/"):
            wanted = target.removeprefix("docs/")
        elif target in config["spillway_outside"]:
            wanted = f"files/{target.removesuffix('.md')}.md"
        else:
            return found[0]
        relative = posixpath.relpath(wanted, posixpath.dirname(uri) or ".")
        return f"{found[1]}{relative}{found[3] or ''})"

    return _outside_of_code(markdown, lambda text: LINK.sub(moved, text))


def _targets(source: str, text: str) -> list[str]:
    found: list[str] = []

    def note(part: str) -> str:
        found.extend(filter(None, (_inside(source, link[2]) for link in LINK.finditer(part))))
        return part

    _outside_of_code(text, note)
    return found


def _inside(source: str, link: str) -> str | None:
    """The file of the repository that a link in `source` leads to; of a folder its README. Otherwise None."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    path = ROOT / target
    if path.is_dir() and (path / "README.md").exists():
        return f"{target}/README.md"
    return target if target == "README.md" or path.exists() else None


def _page_of(path: Path) -> str:
    name = os.path.relpath(path, ROOT)
    if path.is_dir():
        rows = "\n".join(f"* `{each.name}`" for each in sorted(path.iterdir()))
        return f"# {name}\n\nA folder of the repository:\n\n{rows}\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if len(text) > IN_PAGE:
        return f"# {name}\n\nA file of the repository, too large to be shown here.\n"
    return f"# {name}\n\n~~~~{LANGUAGES.get(path.suffix, 'text')}\n{text}\n~~~~\n"


def _outside_of_code(text: str, change: Any) -> str:
    parts = re.split(r"(^(?:```|~~~~).*?^(?:```|~~~~)\s*?$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))
