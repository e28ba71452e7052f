"""Consoles of commands: pages and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

PAGE_COLUMNS = 160


def page() -> Console:
    """Return standard output's console: the terminal's width, or a wide page for a file or pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=PAGE_COLUMNS)


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
