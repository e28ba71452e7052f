"""Driver of one link's receiver: its machine, its connection, and the appends to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from relay import crash_points
from relay.batches.batch import BatchHeader, BatchName
from relay.links.receiver.actions import Append, Learn, LogFacts, Quarantine, ReceiverAction
from relay.links.receiver.machine import LinkReceiver
from relay.links.transport.connection import MOST_WAIT_S, RESTING_WAIT_S, LinkConnection, LinkParts
from relay.links.transport.link_end import Carried, LinkEnd
from relay.links.wire import Send
from relay.log.run import Appended
from relay.log.site_log import LogRefused

log = logging.getLogger(__name__)


class LinkReceiverTask:
    """Driver of a link's receiver; runs until cancelled."""

    def __init__(
        self,
        parts: LinkParts,
        machine: LinkReceiver,
        quarantine: Callable[[bytes, str], None],
        on_linked: Callable[[Sequence[BatchHeader]], None],
        learn: Callable[[str, bytes], None] = lambda revision, sites: None,
    ) -> None:
        """`learn` keeps a revision's sites, or logs an error and keeps nothing."""
        self.name = parts.name
        self.machine = machine
        self._connection = LinkConnection(f"{parts.name}, receiving", parts)
        self._writer = parts.writer
        self._quarantine = quarantine
        self._on_linked = on_linked
        self._learn = learn
        self._linked: list[BatchHeader] = []
        self._is_over = False
        self._clock = parts.clock
        self._closed: str | None = None
        self._wake = self._connection.wake
        self._run_id = b""

    @property
    def blocked(self) -> bool:
        """True while the meeting broker takes no publishes on this end's connection."""
        return self._connection.blocked

    def mesh_changed(self) -> None:
        """Inform the machine that `check` may decide otherwise from now on."""
        self._do(self.machine.mesh_changed())

    def has_otherwise(self, names: Iterable[BatchName], *, by_group: bool) -> None:
        """Inform the machine of batches that the log has got otherwise; `by_group`: by the mesh's
        group, just now.
        """
        now, wall_ms = self._clock.now(), self._clock.wall_ms()
        for name in names:
            self._do(self.machine.has_otherwise(name, now, wall_ms, by_group=by_group))
        self._connection.wake_by(self.machine.wakeup())

    async def run(self) -> None:
        """Connect, and reconnect whenever the connection goes."""
        try:
            await self._connection.keep(self._one_connection, self._not_connected)
        finally:
            self._is_over = True
            self._report_linked()
            self._do(self.machine.closing())
            await self._connection.close()

    async def _not_connected(self, reason: str) -> None:
        self._do(self.machine.disconnected(reason))

    async def _one_connection(self, end: LinkEnd) -> str:
        machine, clock = self.machine, self._clock
        self._closed = None
        end.listen(self)
        self._look_at_log()
        self._do(machine.connected(clock.now()))
        try:
            while self._closed is None:
                self._wake.clear()
                self._look_at_log()
                self._do(machine.tick(clock.now(), clock.wall_ms()))
                most_s = RESTING_WAIT_S if self._run_id else MOST_WAIT_S
                await self._connection.nap(machine.wakeup(), most_s)
        finally:
            await end.close()
        self._do(machine.disconnected(self._closed))
        return self._closed

    def _look_at_log(self) -> None:
        """Inform the machine of a new run of the log, or of its absence."""
        run = self._writer.run
        if run is None:
            if self._run_id:
                self._run_id = b""
                self._do(self.machine.log_lost("this site's log is away"))
            return
        if run.id != self._run_id:
            self._run_id = run.id
            run.ended.add_done_callback(lambda _: self._wake.set())
            facts = LogFacts(run.id, run.log_id, self._writer.encoded_names)
            self._do(self.machine.log_opened(facts, self._clock.now()))

    def _do(self, actions: Sequence[ReceiverAction]) -> None:
        for action in actions:
            match action:
                case Send(frame):
                    self._report_linked()  # before the acknowledgement
                    self._connection.send(frame)
                    crash_points.reach("link.answered")
                case Append(header, data, _, _):
                    appending = self._writer.append_nowait(header, data)
                    piece = header.fragment
                    more = piece is not None and piece.piece + 1 < piece.pieces
                    crash_points.reach("link.piece" if more else "link.appending")
                    appending.add_done_callback(partial(self._appended, action))
                case Learn(revision, sites):
                    self._learn(revision, sites)
                case Quarantine(data, reason):
                    log.error(
                        "link %s: quarantined: %s",
                        self.name,
                        reason,
                        extra={"event": "batch-quarantined", "link": self.name},
                    )
                    self._quarantine(data, reason)

    def _appended(self, append: Append, appending: asyncio.Future[Appended]) -> None:
        if appending.cancelled():
            return
        clock = self._clock
        error = appending.exception()
        if isinstance(error, LogRefused):
            # The batch will never fit this log: keep it for a person, and let the link go on.
            now, wall_ms = clock.now(), clock.wall_ms()
            self._do(self.machine.refused(append, str(error), now, wall_ms))
        elif error is None:
            crash_points.reach("link.appended")
            known = appending.result() is Appended.ALREADY_LOGGED
            if not known:
                self._linked.append(append.header)
                if self._is_over:  # the link ended first; the log has the batch all the same
                    self._report_linked()
            session, number = append.session, append.number
            self._do(self.machine.appended(session, number, known, clock.now(), clock.wall_ms()))
        else:  # the log's connection is gone: `_look_at_log` ends the session
            self._wake.set()
        self._connection.wake_by(self.machine.wakeup())

    def _report_linked(self) -> None:
        if self._linked:
            linked, self._linked = self._linked, []
            self._on_linked(linked)

    # -- LinkListener ------------------------------------------------------------------------

    def on_frames(self, frames: Sequence[Carried]) -> None:
        clock = self._clock
        self._look_at_log()
        for sender, frame in frames:
            self._do(self.machine.frame(sender, frame, clock.now(), clock.wall_ms()))
        self._connection.wake_by(self.machine.wakeup())

    def on_returned(self, head: bytes) -> None:
        """Ignore the call: acks are not mandatory, so none is returned."""

    def on_closed(self, reason: str) -> None:
        self._closed = reason
        self._wake.set()
