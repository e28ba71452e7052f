"""How much of the disk that a site's log may take is taken by what is still needed. Pure.

Needed is what some neighbour's log, or the site's own delivery, does not have yet. The broker frees
the oldest segments when the log reaches `max_bytes`, needed or not. So with `on_full: block` the
packer stops taking messages before that, and publishers feel it once the egress queues are full;
batches of neighbours are still taken, which is what the rest of the room is for: sites that each
waited for the other's room would wait for ever.
"""

from __future__ import annotations

from federation.mesh import LogLimit, WhenLogIsFull

WARN_AT = 0.8
BLOCK_AT = 0.9
GO_ON_BELOW = 0.7
"""Well below, so that the packer does not stop and start with every batch."""


class LogRoom:
    """One site's. `fill` is the part of `max_bytes` that is needed; 0 without a limit."""

    def __init__(self) -> None:
        self.fill = 0.0
        self.blocks = False
        """The packer is to take nothing."""

    def look(self, limit: LogLimit, needed_bytes: float) -> bool:
        """Take note of how much is needed; whether `blocks` has changed."""
        before = self.blocks
        self.fill = needed_bytes / limit.max_bytes if limit.max_bytes else 0.0
        may_block = limit.max_bytes is not None and limit.on_full is WhenLogIsFull.BLOCK
        self.blocks = may_block and self.fill >= (GO_ON_BELOW if before else BLOCK_AT)
        return self.blocks != before

    def said(self, waiting_for: str) -> str:
        """For people, from WARN_AT on; empty below. `waiting_for` names who lacks the most."""
        if self.fill < WARN_AT and not self.blocks:
            return ""
        return f"{self.fill:.0%} of the log's max_bytes wait for {waiting_for}"
