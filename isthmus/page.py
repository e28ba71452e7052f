"""Where tables are printed: a terminal as wide as it is, or a page for a file or a pipe."""

from __future__ import annotations

from rich.console import Console

PAGE_COLUMNS = 160


def page() -> Console:
    """On standard output."""
    console = Console()
    return console if console.is_terminal else Console(width=PAGE_COLUMNS)
