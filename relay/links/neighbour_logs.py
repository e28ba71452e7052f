"""What this site's neighbours certainly have in their logs: the packer asks, the links answer.

A site that acknowledges only what a neighbour's log has too (`acks: remote`) does not lose what a
power cut of its whole broker takes out of its own log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from relay.batches.batch import BatchName

HasLogged: TypeAlias = Callable[[BatchName], bool]
"""Does the link's receiver have it, as far as its present session has told? Without one: no."""


class NeighbourLogs:
    """One site's, shared by its links and its packer."""

    def __init__(self) -> None:
        self.on_news: Callable[[], None] | None = None
        """Called when a link knows more than before: once for many batches."""
        self._links: dict[str, HasLogged] = {}
        self._last_hit = ""

    def link(self, name: str, has_logged: HasLogged) -> None:
        """Ask this link from now on, instead of a former one of that name."""
        self._links[name] = has_logged

    def unlink(self, name: str) -> None:
        """The link is no more."""
        self._links.pop(name, None)

    def news(self) -> None:
        """A link's receiver has logged something, or has told anew what it has."""
        if self.on_news is not None:
            self.on_news()

    def has(self, name: BatchName) -> bool:
        """Whether any neighbour's log has the batch."""
        last = self._links.get(self._last_hit)
        if last is not None and last(name):
            return True
        for link, has_logged in self._links.items():
            if has_logged(name):
                self._last_hit = link
                return True
        return False
