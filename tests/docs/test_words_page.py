"""docs/words.md: each word once, in a whole sentence, with a class or module that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parents[2]
PRODUCT = ("relay", "dedup", "federation", "isthmus", "wan_proxy", "simulation", "spark_audit")


class Row(NamedTuple):
    word: str
    meaning: str
    code: tuple[str, ...]


def rows() -> list[Row]:
    """Rows of all tables of the page, without their headings."""
    found = []
    for line in (TOP / "docs" / "words.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] != "word" and not cells[0].startswith("---"):
            found.append(Row(cells[0], cells[1], tuple(re.findall(r"`([^`]+)`", cells[2]))))
    return found


@cache
def classes() -> frozenset[str]:
    return frozenset(
        node.name
        for package in PRODUCT
        for file in (TOP / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.word)
def test_the_class_or_module_of_a_word_exists(row: Row) -> None:
    assert row.code, "name the class, or the module, in backquotes"
    for name in row.code:
        exists = (TOP / name).is_file() if name.endswith(".py") else name in classes()
        assert exists, f"{name} is gone: name its successor in docs/words.md"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.word)
def test_the_meaning_of_a_word_is_a_whole_sentence(row: Row) -> None:
    assert re.match(r"[A-Z]", row.meaning)
    assert row.meaning.endswith(".")


def test_a_word_stands_once_on_the_page() -> None:
    words = [row.word for row in rows()]
    assert len(words) > 60
    assert sorted(words) == sorted(set(words))
