"""Words and tables that the parts of a plan share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.table import Table

from federation.planning.availability import Availability, show_part

Told = dict[str, Any]
MOST_SAID = 3
"""Names or pairs that are said one by one before the rest is counted."""
MOST_ROWS = 40
"""Of a table, unless all are asked for."""
MOST_OF_ALL = 2000
"""Then too: what is more is for programs."""


def table_of(title: str, *headings: str) -> Table:
    """Headings that begin with `>` are of figures."""
    table = Table(title=escape(title), title_justify="left")
    for heading in headings:
        side: JustifyMethod = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=side, overflow="fold")
    return table


def fill(
    table: Table, items: Sequence[Told], row: Callable[[Told], list[str]], most: int
) -> RenderableType:
    """The table with a row an item, and how many are left out."""
    for item in items[:most]:
        table.add_row(*map(escape, row(item)))
    left = len(items) - most
    if left <= 0:
        return table
    return Group(table, f"and {left:,} more rows: {more(most)}")


def more(most: int) -> str:
    """Where what is left out can be had."""
    return "--json has them" if most == MOST_OF_ALL else "--all"


def ends(row: Told) -> str:
    """`a → b`, `a ↔ b`, or `among a`."""
    if row["from"] == row["to"]:
        return f"among {row['from']}"
    return f"{row['from']} {'↔' if row['both_ways'] else '→'} {row['to']}"


def few(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    said = ", ".join(names[:MOST_SAID])
    left = len(names) - MOST_SAID
    return f"{said} and {left:,} more" if left > 0 else said


def availability_of(told: Told) -> Availability:
    """What the report has of one."""
    return Availability(told["part"], told["standard_error"])


def said_span(told: Told) -> str:
    """`98 % … 99 %`, or the one if they are the same."""
    least, most = show_part(told["least"]), show_part(told["most"])
    return least if least == most else f"{least} … {most}"


def about(seconds: float) -> str:
    """A duration in one or two digits: `3.2 d`."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
