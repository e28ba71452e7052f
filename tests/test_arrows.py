"""Who may import whom among the packages: the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "wan_proxy": set[str](),
    "federation": set[str](),
    "dedup": set[str](),
    "relay": {"federation", "dedup"},
    "spark_audit": {"federation", "relay"},
    "simulation": {"federation", "dedup", "relay"},
    "isthmus": {"federation", "dedup", "relay", "spark_audit", "simulation", "wan_proxy"},
}
SPARK_AUDIT_SEES_OF_RELAY = {
    "relay.ledger.rows",
    "relay.ledger.columns",
    "relay.ledger.fingerprint",
}
ONLY_IMPORTERS = {
    "rstream": {"relay/log/stream_connection.py"},
    "rocksdict": {"dedup/rocksdb_store.py"},
}
"""A vendor's library behind a seam has one importer."""


def modules_of(file: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: a relative import"
            assert node.module is not None
            yield node.module


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    for file in sorted((TOP / package).rglob("*.py")):
        for module in modules_of(file):
            top = module.partition(".")[0]
            if top in MAY_IMPORT and top != package:
                assert top in MAY_IMPORT[package], f"{file} imports {module}"
            assert top not in {"tests", "benchmarks", "examples"}, f"{file} imports {module}"
            if package == "spark_audit" and top == "relay":
                assert module in SPARK_AUDIT_SEES_OF_RELAY, f"{file} imports {module}"


@pytest.mark.parametrize("library", ONLY_IMPORTERS)
def test_a_library_behind_a_seam_has_one_importer(library: str) -> None:
    importers = {
        str(file.relative_to(TOP))
        for package in MAY_IMPORT
        for file in (TOP / package).rglob("*.py")
        if library in {module.partition(".")[0] for module in modules_of(file)}
    }
    assert importers == ONLY_IMPORTERS[library]


def test_every_package_has_its_arrows_here() -> None:
    packages = {file.parent.name for file in TOP.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks", "examples"} == set(MAY_IMPORT)
