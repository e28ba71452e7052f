"""Links between pages: each leads to a file and a heading; the menu of the site has every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = [
    *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
    *sorted((TOP / "docs").rglob("*.md")),
    *sorted((TOP / "examples").rglob("*.md")),
]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def headings(page: Path) -> set[str]:
    """Anchors that a page's headings have, on the site and on a forge alike."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path) if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor:
            assert anchor in headings(target), f"{page.name}: {path}#{anchor}"


def test_the_menu_of_the_site_has_each_page() -> None:
    listed = set(re.findall(r"([\w/.-]+\.md)$", (TOP / "mkdocs.yml").read_text(), re.MULTILINE))
    docs = TOP / "docs"
    assert {str(page.relative_to(docs)) for page in docs.rglob("*.md")} <= listed
