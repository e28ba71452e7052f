"""Knowledge of what the neighbours' logs certainly have, which the packer asks and the links
provide.

A site that acknowledges only batches in a neighbour's log too (`acks: remote`) loses nothing when a
power cut of its whole broker takes the end of its own log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from relay.batches.batch import BatchName

HasLogged: TypeAlias = Callable[[BatchName], bool]
"""Function that returns True if the link's receiver is known to have the batch."""


class NeighbourLogs:
    """Logs of all neighbours of a site, shared by its links and its packer."""

    def __init__(self) -> None:
        self.on_news: Callable[[], None] | None = None
        """Callback, once for many batches: a link knows more than before."""
        self._links: dict[str, HasLogged] = {}
        self._last_hit = ""

    def link(self, name: str, has_logged: HasLogged) -> None:
        """Ask this link from now on, in place of a former one of the same name."""
        self._links[name] = has_logged

    def unlink(self, name: str) -> None:
        """Ask the link no more."""
        self._links.pop(name, None)

    def news(self) -> None:
        """Report that a receiver has logged batches, or has announced anew which it has."""
        if self.on_news is not None:
            self.on_news()

    def has(self, name: BatchName) -> bool:
        """Return True if any neighbour's log has the batch."""
        last = self._links.get(self._last_hit)
        if last is not None and last(name):
            return True
        for link, has_logged in self._links.items():
            if has_logged(name):
                self._last_hit = link
                return True
        return False
