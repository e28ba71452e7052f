"""How the demo's messages ask to be lost; the nodes that do it are `isthmus.lossy_nodes`."""

from __future__ import annotations

from enum import StrEnum

HEADER = "x-demo-lose"
PROGRAM = "isthmus.lossy_nodes"


class Loss(StrEnum):
    """Where a message is lost."""

    LINK = "link"
    BEFORE = "before"
    AFTER = "after"

    def at(self, site: str) -> str:
        """The header's value."""
        return f"{self.value}@{site}"
