"""Names of code in docstrings and docs: each that stands in backquotes exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from relay.admin.metrics.catalogue import CATALOGUE

TOP = Path(__file__).parents[2]
PRODUCT = ("relay", "federation", "dedup", "isthmus", "wan_proxy", "simulation", "spark_audit")
CODE = (*PRODUCT, "tests", "benchmarks", "scripts")
PAGES = [
    *sorted((TOP / "docs").rglob("*.md")),
    *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")),
]
ELSEWHERES = {
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "auth_mechanisms",
    "basic.reject",
    "consumer_disconnected_timeout",
    "consumer_timeout",
    "isthmus.MESH.link.NEIGHBOUR",
    "neato",
    "net.core.rmem_max",
    "node_textfile_mtime_seconds",
    "parentbased_always_on",
    "rabbit_fifo_client.erl",
    "twopi",
}
"""Names of RabbitMQ's, Graphviz's, node exporter's, OpenTelemetry's, the kernel's and of queues."""
A_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?|[\w/]+\.py")


def files_of(packages: tuple[str, ...]) -> list[Path]:
    return [file for package in packages for file in sorted((TOP / package).rglob("*.py"))]


@cache
def modules() -> frozenset[str]:
    """Every way to write a module: its file, dotted from any folder on, or as a file's path."""
    found = set()
    for file in files_of(CODE):
        parts = file.relative_to(TOP).with_suffix("").parts
        for start in range(len(parts)):
            found |= {".".join(parts[start:]), "/".join(parts[start:]) + ".py"}
            found |= {".".join(parts[start:end]) for end in range(start + 1, len(parts))}
    return frozenset(found)


@cache
def words() -> frozenset[str]:
    """Whatever the code calls something: definitions, parameters, attributes, and keys."""
    found: set[str] = set()
    for file in files_of(CODE):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    found.add(node.name)
                case ast.Name():
                    found.add(node.id)
                case ast.Attribute():
                    found.add(node.attr)
                case ast.arg() | ast.keyword():
                    found.add(node.arg or "")
                case ast.alias():
                    found.add(node.name.rpartition(".")[2])
                case ast.Constant(value=str(text)):
                    found.add(text)
                    found.update(re.findall(r"\b(?:AS )(\w+)", text))  # columns of SQL
                case _:
                    pass
    for file in (TOP / "core" / "src").glob("*.rs"):  # the native core's, in Rust
        found |= {file.name, *re.findall(r"\b(?:fn|struct|enum) (\w+)", file.read_text())}
    metrics = {name for metric in CATALOGUE for name in (metric.name, metric.old)}
    return frozenset(found | metrics | set(_values()) | {"isthmus_core"})


def _values() -> Iterator[str]:
    """Yield the keys of the Helm chart's values, and those one below, with a dot."""
    values = yaml.safe_load((TOP / "deploy/helm/isthmus/values.yaml").read_text())
    for key, value in values.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{below}" for below in value)


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Docstrings of a module and of whatever it defines, and those of constants."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass


def exists(name: str) -> bool:
    """True if the code has what this names; for `owner.name`, an owner and that name."""
    owner, _, last = name.removesuffix("()").rpartition(".")
    if name in modules() or name in words() or (TOP / name).exists():
        return True
    if not owner:
        return last in words()
    return last in words() and (owner in modules() or owner in words() or exists(owner))


def unknown(text: str) -> set[str]:
    """Names in backquotes that nothing has."""
    quoted = {code.partition("::")[0] for code in re.findall(r"`([^`\n]+)`", text)}
    return {
        code
        for code in quoted - ELSEWHERES
        if A_NAME.fullmatch(code) and ("_" in code or "." in code or code.lower() != code)
        if not exists(code)
    }


@pytest.mark.parametrize("package", PRODUCT)
def test_each_name_in_a_docstring_exists(package: str) -> None:
    found = {
        f"{file.relative_to(TOP)}:{line}: {name}"
        for file in files_of((package,))
        for line, text in docstrings(file)
        for name in unknown(text)
    }
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_each_name_on_a_page_exists(page: Path) -> None:
    assert not unknown(page.read_text())


def test_a_name_that_nothing_has_is_found() -> None:
    gone = "log_" + "check"
    assert unknown(
        f"see `{gone}` and `{gone}.LogWriter` and `LogWriter.{gone}()`, `LogWriter`"
    ) == {
        gone,
        f"{gone}.LogWriter",
        f"LogWriter.{gone}()",
    }
