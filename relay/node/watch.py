"""What a node looks at now and then beside its stages: whether its log has room, and whether a site
that is to leave has anything left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from federation.mesh import LogLimit, WhenLogIsFull
from relay import ticks
from relay.node.stages import Stages
from relay.operator.holds import mark_drained
from relay.operator.leave import Leave, Leaving

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Where a log has a limit, or a site is to leave."""
IDLE_EVERY_S = 3.0
"""Elsewhere: only to see that neither has come about."""


class NodeWatch:
    """One site's."""

    def __init__(self, site: str, folder: Path) -> None:
        self.leave = Leave()
        """How far the site is with leaving the mesh."""
        self.room = LogRoom()
        self.room_said = ""
        """What is to be said of the log's room; empty while there is enough."""
        self._site = site
        self._folder = folder
        self._marked: bool | None = None
        """What the folder says of whether the site is drained; None: not looked yet."""

    async def run(
        self,
        stages: Stages,
        limit: Callable[[], LogLimit],
        egress: Callable[[], int],
        drains: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        """For ever. `egress`: messages that wait there, -1 if nobody knows. `drains`: is the site
        to leave? `changed` is called when the stages are to work otherwise.
        """
        self.leave = Leave()
        while True:
            watched = limit().max_bytes is not None or drains()
            every_s = LOOK_EVERY_S if watched else IDLE_EVERY_S
            await asyncio.sleep(ticks.about(every_s, asyncio.get_running_loop().time()))
            is_closed = self.leave.is_closed
            self.leave = self.leave.after(_leaving(stages, egress()) if drains() else None)
            self._leave_word()
            blocks_now = self._look_at_room(stages, limit())
            if blocks_now or self.leave.is_closed != is_closed:
                changed()

    def _leave_word(self) -> None:
        """So that it can still be told when the site is out of the file and the node has ended."""
        if self.leave.is_drained == self._marked:
            return
        try:
            mark_drained(self._folder, self.leave.is_drained)
        except OSError as error:
            log.warning("%s: whether it is drained cannot be noted: %s", self._site, error)
        else:
            self._marked = self.leave.is_drained

    def _look_at_room(self, stages: Stages, limit: LogLimit) -> bool:
        """Whether it has changed if the packer may take anything."""
        if limit.max_bytes is None:
            self.room_said = ""
            return self.room.look(limit, 0.0)  # without adding up what hundreds of links lack
        whose, needed = stages.links.most_lagging()
        undelivered = stages.undelivered.bytes
        if undelivered > needed:
            whose, needed = "delivery here", undelivered
        counts = stages.writer.counts
        # As it lies on the disk: lags are told in bytes before compression.
        shrunk = counts.stored_bytes / counts.appended_bytes if counts.appended_bytes else 1.0
        has_changed = self.room.look(limit, needed * min(1.0, shrunk))
        self.room_said = self.room.report_line(whose)
        if has_changed:
            log.warning("%s: %s", self._site, self.room_said or "the log has room")
        return has_changed


def _leaving(stages: Stages, egress: int) -> Leaving:
    """What is still here."""
    return Leaving(
        egress=egress,
        in_hand=stages.packer.metrics.in_hand_messages,
        undelivered=stages.undelivered.messages,
        unsent={link["to"]: link["lag_messages"] for link in stages.links.reports()},
        appending=stages.links.is_receiving,
    )


WARN_AT = 0.8
BLOCK_AT = 0.9
GO_ON_BELOW = 0.7
"""Well below, so that the packer does not stop and start with every batch."""


class LogRoom:
    """Part of the disk space of a site's log that is taken by batches still needed: `fill`, 0
    without a limit. Pure.

    Needed is what some neighbour's log, or the site's own delivery, does not have yet. The broker
    frees the oldest segments when the log reaches `max_bytes`, needed or not. So with `on_full:
    block` the packer stops taking messages before that, and publishers feel it once the egress
    queues are full; batches of neighbours are still taken into the rest of the room: sites that
    each waited for the other's room would wait for ever.
    """

    def __init__(self) -> None:
        self.fill = 0.0
        self.blocks = False
        """True if the packer is to take nothing."""

    def look(self, limit: LogLimit, needed_bytes: float) -> bool:
        """Note the bytes needed; return True if `blocks` has changed."""
        before = self.blocks
        self.fill = needed_bytes / limit.max_bytes if limit.max_bytes else 0.0
        may_block = limit.max_bytes is not None and limit.on_full is WhenLogIsFull.BLOCK
        self.blocks = may_block and self.fill >= (GO_ON_BELOW if before else BLOCK_AT)
        return self.blocks != before

    def report_line(self, waiting_for: str) -> str:
        """Sentence for people, from WARN_AT on; empty below. `waiting_for` names who lacks the
        most.
        """
        if self.fill < WARN_AT and not self.blocks:
            return ""
        return f"{self.fill:.0%} of the log's max_bytes wait for {waiting_for}"
