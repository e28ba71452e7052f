"""How far something slow is, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

QUIET_S = 1.0
"""What takes less than this shows nothing."""

_T = TypeVar("_T")


def shown(items: Sequence[_T], what: str, console: Console | None = None) -> Iterable[_T]:
    """Hands out the items, and says on standard error how many are done if it is a terminal."""
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
def saying(what: str, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Shows on standard error, if it is a terminal, what it was told last, until it is left."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(what) as line:
        yield lambda told: line.update(escape(told))
