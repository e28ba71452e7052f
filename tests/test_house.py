"""Sizes and names of the product's code: what keeps a stranger from getting lost."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

TOP = Path(__file__).resolve().parent.parent
PRODUCT = ("relay", "dedup", "federation", "isthmus", "wan_proxy", "simulation", "spark_audit")
MOST_LINES = 600
"""Number of lines that a file may have."""
MOST_PARAMETERS = 8
COMMANDS = TOP / "isthmus" / "commands"
"""Functions there have a parameter for each option."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PRODUCT:
        for file in sorted((TOP / package).rglob("*.py")):
            yield file, ast.parse(file.read_text())


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_file_is_longer_than_one_reads_at_a_sitting() -> None:
    long = {
        str(file.relative_to(TOP)): lines
        for file, _ in modules()
        if (lines := len(file.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def test_no_public_class_has_the_name_of_another() -> None:
    places = defaultdict(list)
    for file, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(TOP)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_function_takes_more_parameters_than_a_reader_can_hold() -> None:
    found = {
        f"{file.relative_to(TOP)}:{function.lineno} {function.name}": count
        for file, tree in modules()
        if COMMANDS not in file.parents
        for function in functions(tree)
        if (count := _parameters(function)) > MOST_PARAMETERS
    }
    assert not found


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_functions_stay_small() -> None:
    lengths = sorted(
        (function.end_lineno or function.lineno) - function.lineno + 1
        for _, tree in modules()
        for function in functions(tree)
    )
    assert median(lengths) <= 8
    assert lengths[len(lengths) * 9 // 10] <= 25
