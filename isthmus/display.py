"""Consoles of commands, pages and progress, and the tables and texts that reports share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from federation.planning.availability import Availability, show_part

PAGE_COLUMNS = 160


def page() -> Console:
    """Return standard output's console: the terminal's width, or a wide page for a file or pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=PAGE_COLUMNS)


def key_progress(site: str, every: int) -> Callable[[int], None]:
    """Return a callback that prints on standard error how many keys of a site have moved, after
    each `every` of them.
    """
    shown = 0

    def progress(keys: int) -> None:
        nonlocal shown
        if keys - shown >= every:
            shown = keys
            typer.echo(f"{site}: {keys} keys", err=True)

    return progress


QUIET_S = 1.0
"""Seconds before progress is shown."""

_T = TypeVar("_T")


def tracked(items: Sequence[_T], what: str, console: Console | None = None) -> Iterable[_T]:
    """Yield the items and, on a terminal, show on standard error how many are done."""
    console = console or Console(stderr=True)
    return _tracked(items, what, console) if console.is_terminal else items


def _tracked(items: Sequence[_T], what: str, console: Console) -> Iterator[_T]:
    began = time.monotonic()
    with Progress(console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task(what, total=len(items), visible=False)
        for item in items:
            yield item
            progress.advance(task)
            if time.monotonic() - began > QUIET_S:
                progress.update(task, visible=True, refresh=True)


@contextmanager
def status_line(what: str, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a status text on standard error, if it is a terminal."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(what) as line:
        yield lambda text: line.update(escape(text))


JsonObject = dict[str, Any]
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
