"""docs/clients.md names, in each row of its tables, a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "clients.md").read_text()
SECTIONS = PAGE.split("\n## ")
FOR_A_TABLE = re.compile(r"^All rows of the next table: `test_\w+`\.$", re.MULTILINE)
NOTHING_TO_TEST = ("Where to log in",)
"""Sections whose rows each test needs to do anything at all."""


def tables(section: str) -> list[list[str]]:
    """Rows of each table of a section, without its two lines of headings."""
    found = re.findall(r"(?:^\|.*\n)+", section + "\n", re.MULTILINE)
    return [table.splitlines()[2:] for table in found]


def journeys_of(folder: Path) -> set[str]:
    """Names of the journeys in a folder, and below."""
    return {
        name
        for file in folder.rglob("test_*.py")
        for name in re.findall(r"^async def (test_\w+)", file.read_text(), re.MULTILINE)
    }


def test_each_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 15
    assert named <= journeys_of(TOP / "tests" / "journeys")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0])
def test_each_row_names_its_test(section: str) -> None:
    if section.startswith(NOTHING_TO_TEST):
        return
    found = tables(section)[1:] if FOR_A_TABLE.search(section) else tables(section)
    assert [row for table in found for row in table if "`test_" not in row] == []


def test_the_page_names_each_test_of_the_clients() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert journeys_of(TOP / "tests" / "journeys" / "clients") <= named


def test_the_page_is_led_to() -> None:
    assert "(docs/clients.md)" in (TOP / "README.md").read_text()
