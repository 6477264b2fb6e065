# SPDX-License-Identifier: Apache-2.0
"""Links between pages lead to files and headings that exist, and the lists of pages are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FOLDERS = [each for each in ROOT.glob("[a-z]*/") if each.name not in ("build", "docs")]
READMES = sorted(page for folder in FOLDERS for page in folder.rglob("README.md"))
CHECKED = [*PAGES, *sorted(ROOT.glob("*.md")), *READMES]
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    text = re.sub(r"^(```|~~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda found: "" if "](" in found[0] else found[0], text)


def anchors(page: Path) -> set[str]:
    """As GitHub and the site make them of headings; the second of two equal ones has a number behind it."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip()))
    return found


@pytest.mark.parametrize("page", CHECKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize(("name", "most"), [("README.md", 150), ("CHANGELOG.md", 60)])
def test_the_front_pages_stay_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= most


def test_the_list_of_pages_names_every_page() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    text += (DOCS / "decisions/README.md").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.name if page.parent.name == "decisions" else str(page.relative_to(DOCS))
        assert f"({name})" in text or page.name == "README.md", f"docs/README.md does not name {name}"


def test_the_site_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for page in PAGES:
        assert str(page.relative_to(DOCS)) in nav, f"mkdocs.yml does not name {page.relative_to(DOCS)}"
