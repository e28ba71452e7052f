"""Header by which the demo's messages ask to be lost by the nodes of `isthmus.lossy_nodes`."""

from __future__ import annotations

from enum import StrEnum

HEADER = "x-demo-lose"
PROGRAM = "isthmus.lossy_nodes"


class Loss(StrEnum):
    """Place where a message is lost."""

    LINK = "link"
    BEFORE = "before"
    AFTER = "after"

    def at(self, site: str) -> str:
        """Return the header's value."""
        return f"{self.value}@{site}"
