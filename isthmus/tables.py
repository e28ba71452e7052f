"""Tables and texts that several reports share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.table import Table

from federation.planning.availability import Availability, show_part

JsonObject = dict[str, Any]
MOST_NAMES = 3
"""Names listed before the rest is counted."""
MOST_ROWS = 40
"""Rows of a table without `--all`."""
MOST_OF_ALL = 2000
"""Rows of a table with `--all`; more is for programs."""


def table_of(title: str, *headings: str) -> Table:
    """Return an empty table; headings that begin with `>` are right-aligned figures."""
    table = Table(title=escape(title), title_justify="left")
    for heading in headings:
        side: JustifyMethod = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=side, overflow="fold")
    return table


def fill(
    table: Table, items: Sequence[JsonObject], row: Callable[[JsonObject], list[str]], most: int
) -> RenderableType:
    """Add a row for each item, and a line that counts the omitted rows."""
    for item in items[:most]:
        table.add_row(*map(escape, row(item)))
    left = len(items) - most
    if left <= 0:
        return table
    return Group(table, f"and {left:,} more rows: {more(most)}")


def more(most: int) -> str:
    """Return the option that shows the omitted rows."""
    return "--json has them" if most == MOST_OF_ALL else "--all"


def ends(row: JsonObject) -> str:
    """Return `a → b`, `a ↔ b` or `among a`."""
    if row["from"] == row["to"]:
        return f"among {row['from']}"
    return f"{row['from']} {'↔' if row['both_ways'] else '→'} {row['to']}"


def few(names: Sequence[str]) -> str:
    """Return `a, b, c and 4 more`."""
    text = ", ".join(names[:MOST_NAMES])
    left = len(names) - MOST_NAMES
    return f"{text} and {left:,} more" if left > 0 else text


def availability_of(report: JsonObject) -> Availability:
    """Read an availability out of a report."""
    return Availability(report["part"], report["standard_error"])


def span_text(report: JsonObject) -> str:
    """Return `98 % … 99 %`, or one figure if both are equal."""
    least, most = show_part(report["least"]), show_part(report["most"])
    return least if least == most else f"{least} … {most}"


def about(seconds: float) -> str:
    """Return a duration in three digits: `3.2 d`."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
