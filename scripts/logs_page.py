"""Write docs/logs.md from the calls that log, and from the meanings of their events."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isthmus.log_events import FIELDS, LOG_EVENTS

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs" / "logs.md"
PACKAGES = ("dedup", "federation", "relay", "isthmus/up")
"""Packages whose code runs in a node, or beside it."""
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
BEFORE = """\
# Logs

<!-- Made by scripts/logs_page.py; a test says when it is out of date. -->

A node logs to standard error: text on a terminal, otherwise one JSON object a line.

| key | |
|---|---|
| `time` | UTC, with milliseconds |
| `level` | `INFO`, `WARNING` or `ERROR` |
| `event` | kind of the line, of the table below; lines of libraries have none |
| `logger` | module that writes |
| `message` | text for people, which may change with every version |
| `site`, `link`, `batch` | what the line is about, at events that have these keys |
| `trace_id` | the batch's trace, at lines with `batch` while [traces](traces.md) are on |
| `exception` | trace of a failure |

An event keeps its name, its keys and its meaning from version to version. For alerts take
[metrics and `isthmus status`](operations.md#seeing), which say how things are; a log says what
happened.

| event | level | keys | meaning |
|---|---|---|---|
"""


class LogCall(NamedTuple):
    """Call that logs a line."""

    path: str
    line: int
    level: str
    extra: tuple[str, ...]
    event: str | None
    """Name of the event; None if the call gives none."""


def log_calls() -> Iterator[LogCall]:
    """Yield the calls that log, in the order of files and lines."""
    for package in PACKAGES:
        for path in sorted((TOP / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            calls = [node for node in ast.walk(tree) if _logs(node)]
            for call in sorted(calls, key=lambda node: node.lineno):
                yield _log_call(call, str(path.relative_to(TOP)))


def _logs(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name("log"), attr=level)):
            return level in LEVELS
    return False


def _log_call(call: ast.Call, path: str) -> LogCall:
    (extra,) = [one.value for one in call.keywords if one.arg == "extra"] or [ast.Dict([], [])]
    keys = [one.value for one in extra.keys if isinstance(one, ast.Constant)]
    values = dict(zip(keys, extra.values, strict=True))
    event = values.get("event")
    name = event.value if isinstance(event, ast.Constant) else None
    return LogCall(path, call.lineno, call.func.attr, tuple(keys), name)


def page() -> str:
    """Return the page."""
    levels: dict[str, set[str]] = {}
    keys: dict[str, set[str]] = {}
    for call in log_calls():
        level = "error" if call.level == "exception" else call.level
        levels.setdefault(call.event or "", set()).add(level)
        keys.setdefault(call.event or "", set()).update(call.extra)
    rows = []
    for event, meaning in sorted(LOG_EVENTS.items()):
        own = ", ".join(f"`{key}`" for key in FIELDS[1:] if key in keys.get(event, ()))
        rows.append(
            f"| `{event}` | {', '.join(sorted(levels.get(event, ())))} | {own} | {meaning} |"
        )
    return BEFORE + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
