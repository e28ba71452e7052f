"""docs/promises.md names tests that exist, and leaves no scenario without an answer."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "promises.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[^`]*\.py)::([^`]*)`", PAGE)))
SCENARIOS = re.findall(r"^\| (\d\.\d+) \|(.*)\|$", PAGE, re.MULTILINE)


@cache
def names_in(path: str) -> frozenset[str]:
    """What pytest would find there: functions, and those of classes by the function's name too."""
    tree = ast.parse((TOP / path).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_each_test_that_it_names_exists(path: str) -> None:
    assert (TOP / path).exists(), f"{path} is not there"
    gone = {name for where, name in NAMED if where == path} - names_in(path)
    assert not gone, f"{path} has no {', '.join(sorted(gone))}"


def test_nothing_that_looks_like_a_test_s_name_escapes_the_look() -> None:
    assert len(NAMED) > 100
    names = [code for code in re.findall(r"`([^`]*)`", PAGE) if "test_" in code]
    assert sorted(set(names)) == [f"{path}::{name}" for path, name in NAMED]


def test_every_scenario_stands_there_once_with_a_test_or_why_there_is_none() -> None:
    numbers = [number for number, _ in SCENARIOS]
    assert numbers == [f"1.{n}" for n in range(1, 29)] + [f"2.{n}" for n in range(1, 61)]
    for number, row in SCENARIOS:
        *_, answer, test = (cell.strip() for cell in row.split("|"))
        if test == "none needed":
            assert answer.startswith("Cannot happen, because"), number
        elif test == "not tested":
            assert "not promised" in answer, number
        else:
            assert "::" in test, number


def test_the_page_is_led_to() -> None:
    assert "(docs/promises.md)" in (TOP / "README.md").read_text()
