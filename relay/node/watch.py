"""Watches beside a node's stages: room in its log, leave of the site, messages in its own queues,
callbacks of the event loop that fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dedup.journal.journal import SlotGone
from federation.mesh import LogLimit, WhenLogIsFull
from relay import ticks
from relay.bulk_amqp import BulkAmqpError, Channel, ChannelClosed, Connection
from relay.node.stages import Stages
from relay.operator.holds import Holds, Leave, Leaving, mark_drained
from relay.retry import reconnect_delay_s

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Interval where a log has a limit, or a site is to leave."""
IDLE_EVERY_S = 3.0
"""Interval elsewhere, just to notice a new limit or order to leave."""


class NodeWatch:
    """Watches the log's room and the leave of one site."""

    def __init__(self, site: str, folder: Path) -> None:
        self.leave = Leave()
        """Progress of the site's leave from the mesh."""
        self.room = LogRoom()
        self.room_note = ""
        """Text about the log's room; empty while there is enough."""
        self._site = site
        self._folder = folder
        self._marked: bool | None = None
        """Drained or not according to the folder; None before the first look."""

    def begin(self) -> None:
        """Forget the progress of an earlier run."""
        self.leave = Leave()

    async def run(
        self,
        stages: Stages,
        limit: Callable[[], LogLimit],
        egress: Callable[[], int],
        holds: Callable[[], Holds],
        changed: Callable[[], None],
    ) -> None:
        """Watch for ever. `egress` returns the messages waiting there, -1 if unknown; `holds` the
        orders in force; `changed` is called when the stages are to work otherwise.
        """
        while True:
            watched = limit().max_bytes is not None or holds().empties
            every_s = LOOK_EVERY_S if watched else IDLE_EVERY_S
            await asyncio.sleep(ticks.about(every_s, asyncio.get_running_loop().time()))
            is_closed = self.leave.is_closed
            self.leave = self.leave.after(_leaving(stages, egress(), holds()))
            self._leave_word()
            blocks_now = self._look_at_room(stages, limit())
            if blocks_now or self.leave.is_closed != is_closed:
                changed()

    def _leave_word(self) -> None:
        """Note in the folder if the site is drained, for commands after the end of the node."""
        if self.leave.is_drained == self._marked:
            return
        try:
            mark_drained(self._folder, self.leave.is_drained)
        except OSError as error:
            log.warning(
                "%s: whether it is drained cannot be noted: %s",
                self._site,
                error,
                extra={"event": "drain-not-noted", "site": self._site},
            )
        else:
            self._marked = self.leave.is_drained

    def _look_at_room(self, stages: Stages, limit: LogLimit) -> bool:
        """Return True if the packer may take messages now and could not before, or the reverse."""
        if limit.max_bytes is None:
            self.room_note = ""
            return self.room.look(limit, 0.0)  # spares the sum over hundreds of links
        whose, needed = stages.links.most_lagging()
        undelivered = stages.undelivered.bytes
        if undelivered > needed:
            whose, needed = "delivery here", undelivered
        counts = stages.writer.counts
        # Lags are in bytes before compression, the limit is in bytes on the disk.
        shrunk = counts.stored_bytes / counts.appended_bytes if counts.appended_bytes else 1.0
        has_changed = self.room.look(limit, needed * min(1.0, shrunk))
        self.room_note = self.room.report_line(whose)
        if has_changed:
            log.warning(
                "%s: %s",
                self._site,
                self.room_note or "the log has room",
                extra={"event": "log-room-changed", "site": self._site},
            )
        return has_changed


def _leaving(stages: Stages, egress: int, holds: Holds) -> Leaving | None:
    """Messages that are still at the site, or None if the site is not to become empty."""
    if not holds.empties:
        return None
    return Leaving(
        egress=egress,
        in_hand=stages.packer.metrics.in_hand_messages,
        undelivered=stages.undelivered.messages,
        unsent={link["to"]: link["lag_messages"] for link in stages.links.reports()},
        appending=stages.links.is_receiving or stages.group.is_receiving,
        keeps_egress=holds.quiescing,
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


ASK_EVERY_S = 2.0
"""Interval while messages wait in egress; twice as long while none do."""
LOOKS_BETWEEN = 8
"""Looks at egress between two looks at unchanged dead letters and quarantine."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Counts of messages; -1 if unknown."""

    egress: int = -1
    dead_letters: int = -1
    quarantine: int = -1


@dataclass(frozen=True, slots=True)
class GaugedQueues:
    """Queues to count. `stirred` returns another number after each message that this node has put
    aside or mended.
    """

    egress: Callable[[], Iterable[str]]
    dead_letters: str
    quarantine: str
    stirred: Callable[[], int]


async def watch_queues(
    connect: Callable[[], Awaitable[Connection]],
    queues: GaugedQueues,
    report: Callable[[Waiting], None],
    random: Callable[[], float],
    *,
    ask_every_s: float = ASK_EVERY_S,
) -> None:
    """Count for ever the messages in a site's own queues and report them; "unknown" while the
    broker cannot be asked.

    Egress queues are counted every two seconds, half as often while empty. Dead letters and
    quarantine are counted when this node has changed them, else at each eighth look: somebody else
    may empty them, and with hundreds of sites each question counts.
    """
    failures = 0
    while True:
        try:
            connection = await connect()
            try:
                failures = 0
                await _QueueCounts(connection, queues).report(report, ask_every_s)
            finally:
                await connection.close()
        except (BulkAmqpError, OSError):
            # The packer, which cannot reach the broker either, reports the error.
            report(Waiting())
            await asyncio.sleep(reconnect_delay_s(failures, random))
            failures += 1


class _QueueCounts:
    """Counts over one connection."""

    def __init__(self, connection: Connection, queues: GaugedQueues) -> None:
        self._connection = connection
        self._queues = queues
        self._channel: Channel | None = None

    async def report(self, report: Callable[[Waiting], None], every_s: float) -> None:
        queues = self._queues
        dead_letters = quarantine = 0
        stirred = -1
        looks_left = 0
        while True:
            egress = 0
            for queue in queues.egress():
                egress += await self._count(queue)
            was_stirred = queues.stirred() != stirred
            if was_stirred or looks_left == 0:
                stirred = queues.stirred()
                dead_letters = await self._count(queues.dead_letters)
                quarantine = await self._count(queues.quarantine)
                # The counter may be ahead of its message, which the next look then counts.
                looks_left = 1 if was_stirred else LOOKS_BETWEEN
            looks_left -= 1
            report(Waiting(egress, dead_letters, quarantine))
            wait_s = every_s if egress or was_stirred else 2 * every_s
            await asyncio.sleep(ticks.about(wait_s, asyncio.get_running_loop().time()))

    async def _count(self, queue: str) -> int:
        if self._channel is None:
            self._channel = await self._connection.channel()
        try:
            return (await self._channel.declare_queue(queue, passive=True)).message_count or 0
        except ChannelClosed:
            self._channel = None
            return 0  # not declared (yet): nothing waits in it


OURS = frozenset({"dedup", "federation", "isthmus", "relay"})
"""Packages whose callbacks matter. Libraries' own callbacks fail as their connections end, which is
noticed anyway.
"""


class LoopCallbackFailed(Exception):
    """A callback failed; `__cause__` is its exception."""


class CallbackWatch:
    """Catches the first of a loop's callbacks that fails in our code: the process must begin anew.

    asyncio logs the exception of a callback and goes on. Whatever the callback was to wake,
    acknowledge or append then stands for ever, unnoticed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._failed: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(self._handle)

    async def run(self) -> None:
        """Wait until a callback fails. Raises LoopCallbackFailed."""
        await self._failed

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, SlotGone):
            return  # the node's run ends for that, and what the callback has left undone with it
        loop.default_exception_handler(context)
        # Without a handle: a task that nobody awaits, or a transport, which closes anyway.
        if "handle" not in context or error is None or self._failed.done():
            return
        if _passes_through_ours(error.__traceback__):
            failed = LoopCallbackFailed(f"{context['message']}: {error!r}")
            failed.__cause__ = error
            self._failed.set_exception(failed)


def _passes_through_ours(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
            return True
        traceback = traceback.tb_next
    return False
