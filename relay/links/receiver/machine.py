"""Receiving end of a link: a state machine without socket, clock or log.

Events go in as calls with the time; the work to be done comes out as a list of actions, in order.
`wakeup` returns when to call `tick`.

Sessions are opened here: the sender asks, the WELCOME offers, and the first PULSE or BATCH with the
offered nonce begins the session. (Not the ASK: a late ASK, from a connection long gone, must not
end the session that followed.) Within a session only the next number is taken. A number counts as
logged when the log has confirmed the batch, or had it already; the ACK is cumulative.

A damaged batch ends the session, so that it comes again. Only a batch that the sender marks as
called bad before is refused: quarantined, its name *not* taken (the good copy may come by another
path), and acknowledged, so that the link does not wait for ever. A batch that is intact but not the
neighbour's to send, or not of the origin it claims, is refused at once: another copy would be no
better. Where only a newer mesh file can decide the origin, nothing is taken from that batch on, for
some hours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relay.batches.batch import BatchHeader, BatchKind, BatchName
from relay.batches.format import BadBatch, UnknownFormat, append_to_path
from relay.batches.known_formats import KNOWN, Formats
from relay.batches.name_set import NameSet
from relay.batches.signature import NotAuthentic, OriginUnknown
from relay.links.metrics import LinkState, ReceiverCounters
from relay.links.receiver.actions import Append, Learn, LogFacts, Quarantine, ReceiverAction
from relay.links.receiver.admission import (
    Damaged,
    RefusalBudget,
    UndecidedOrigins,
    intact_header,
    refuse_if_not_ours,
)
from relay.links.receiver.session import ReceiverSession, SessionNonces
from relay.links.settings import LinkSettings
from relay.links.wire import (
    NO_RUN,
    WITH_HAVE,
    Ask,
    BadFrame,
    BatchFrame,
    Cause,
    FrameKind,
    Measured,
    Members,
    OtherVersion,
    Pulse,
    Send,
    decode_frame,
    encode_hello,
    encode_over,
)


class LinkReceiver:
    """State machine of one link's receiver. `own` and `neighbour` are cluster IDs; the carrier must
    vouch for `sender_user`; `formats` are those this node knows. `knows` returns True if the sites
    of a revision are kept, given the wall clock: no batch is taken before its revision's sites.
    `check` raises NotAuthentic and OriginUnknown for a batch.
    """

    def __init__(
        self,
        *,
        own: str,
        neighbour: str,
        sender_user: str,
        knows: Callable[[str, int], bool] = lambda revision, wall_ms: True,
        check: Callable[[BatchHeader, memoryview], None] = lambda header, batch: None,
        settings: LinkSettings | None = None,
        counters: ReceiverCounters | None = None,
        formats: Formats = KNOWN,
    ) -> None:
        self.counters = counters or ReceiverCounters()
        self.measured: Measured | None = None
        """Our clock as the sender has measured it; None before."""
        self._own = own
        self._neighbour = neighbour
        self._sender_user = sender_user
        self._knows = knows
        self._check = check
        self._settings = settings or LinkSettings()
        self._connected = False
        self._log: LogFacts | None = None
        self._session: ReceiverSession | None = None
        self._session_number = 0
        self._formats = formats
        self._nonces = SessionNonces()
        self._refusals = RefusalBudget(self._settings)
        self._unsure = UndecidedOrigins(self._settings.unsure_most_s)
        self._ack_at: float | None = None
        self._reason = ""
        self._no_common = ""
        self._unread = ""

    @property
    def state(self) -> LinkState:
        if self._session is not None:
            return LinkState.RUNNING
        return LinkState.DOWN if self._reason else LinkState.STARTING

    @property
    def reason(self) -> str:
        """Reason why there is no session; empty if nothing is known to be wrong."""
        return self._reason

    @property
    def not_understood(self) -> str:
        """Reason why nothing is taken: the neighbour's version or batch is unknown to this node.
        The neighbour, which is informed, may not try again, so the reason stays until a batch is
        taken.
        """
        return self._no_common or self._unread

    def wakeup(self) -> float | None:
        """Return the latest time at which `tick` is due, or None."""
        return self._ack_at

    # Events

    def connected(self, now: float) -> list[ReceiverAction]:
        """Take up a new connection, whose queue is declared."""
        self._connected = True
        return [] if self._log is None else [self._hello(self._log)]

    def disconnected(self, reason: str) -> list[ReceiverAction]:
        """Note that the connection is gone, and with it the content of its queue."""
        self._connected = False
        self._nonces.forget_offers()
        self._forget(reason)
        return []

    def log_opened(self, facts: LogFacts, now: float) -> list[ReceiverAction]:
        """Take up a connection to the log, with a new run: all losses of the log are known."""
        actions = self._end_all(Cause.LOG_AWAY, "log opened anew")
        self._log = facts
        self._nonces.forget_ends()
        if self._connected:
            actions.append(self._hello(facts))
        return actions

    def log_lost(self, reason: str) -> list[ReceiverAction]:
        """Note that the connection to the log is gone: appends under way are in doubt."""
        actions = self._end_all(Cause.LOG_AWAY, reason)
        self._log = None
        return actions

    def mesh_changed(self) -> list[ReceiverAction]:
        """Invite a waiting sender to ask at once: refused batches may be taken now."""
        if self._log is None or self._session is not None or not self._connected:
            return []
        return [self._hello(self._log)]

    def closing(self) -> list[ReceiverAction]:
        """End the session, because the node stops."""
        return self._end_all(Cause.CLOSING, "")

    def frame(self, sender: str, frame: bytes, now: float, wall_ms: int) -> list[ReceiverAction]:
        """Take in a frame from the user whom the carrier vouches for."""
        if sender != self._sender_user:
            return self._drop("from a stranger")
        try:
            message = decode_frame(frame, self._formats)
        except OtherVersion as error:
            return self._on_other_version(error)
        except BadFrame as error:
            return self._drop(error.reason)
        if isinstance(message, Ask):
            return self._on_ask(message, wall_ms)
        if not isinstance(message, BatchFrame | Pulse | Members):
            return self._drop("not for a receiver")
        session = self._session
        if session is None or message.nonce != session.nonce:
            session = self._begin(message, frame[0], now)
            if session is None:
                return self._on_unknown(message, frame[0])
        if isinstance(message, BatchFrame):
            return self._on_batch(session, message, frame, now, wall_ms)
        if isinstance(message, Members):
            return [Learn(message.revision, message.sites)]
        return self._on_pulse(session, message, now, wall_ms)

    def appended(
        self, session_number: int, number: int, known: bool, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        """Note that the log has the batch of an Append; `known`: the log had the batch before."""
        self.counters.appended(known=known)
        session = self._session
        if session is None or session.number != session_number:
            return []
        session.done(number)
        return self._ack_if_due(session, now, wall_ms)

    def refused(
        self, append: Append, reason: str, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        """Note that the log will never take the batch of an Append (too large)."""
        actions = self._put_aside(append.data, reason, now)
        session = self._session
        if session is None or session.number != append.session:
            return actions
        return actions + self._send_refused(session, append.number, reason, now, wall_ms)

    def tick(self, now: float, wall_ms: int) -> list[ReceiverAction]:
        """Send the acknowledgement that is due, or a sign of life."""
        session = self._session
        if session is None or self._ack_at is None or now < self._ack_at:
            return []
        return self._ack(session, now, wall_ms)

    # Sessions

    def _on_ask(self, ask: Ask, wall_ms: int) -> list[ReceiverAction]:
        if self._log is None:
            return self._drop("asked while the log is away")
        if self._nonces.has_ended(ask.nonce):
            return self._drop("asked with an old nonce")
        version = self._formats.common_link_version(ask.offer)
        if version is None:
            return self._have_no_common(ask.nonce, ask.offer.newest_link)
        if self._session is None or self._session.nonce != ask.nonce:
            self._nonces.offer(ask.nonce)
        return [Send(self._log.welcome(ask, self._formats, version, wall_ms))]

    def _on_other_version(self, error: OtherVersion) -> list[ReceiverAction]:
        dropped = self._drop(error.reason)
        if error.kind != FrameKind.ASK:
            return dropped  # of a session never welcomed: its ASK was answered
        return self._have_no_common(error.nonce, error.version)

    def _have_no_common(self, nonce: bytes, version: int) -> list[ReceiverAction]:
        own = self._formats
        self._no_common = (
            f"{self._neighbour} speaks link version {version}, {self._own} "
            f"{own.oldest_link} to {own.newest_link}: upgrade the older node"
        )
        run = self._log.run if self._log is not None else NO_RUN
        cause = Cause.NO_COMMON_VERSION
        return [Send(encode_over(own.newest_link, nonce, run, cause, 0, self._no_common))]

    def _hello(self, facts: LogFacts) -> Send:
        return Send(encode_hello(facts.run, self._formats))

    def _begin(
        self, message: BatchFrame | Pulse | Members, version: int, now: float
    ) -> ReceiverSession | None:
        if (
            self._log is None
            or message.run != self._log.run
            or not self._nonces.take_up(message.nonce)
        ):
            return None
        if self._session is not None:
            self.counters.ends["the sender asked anew"] += 1
            # Frames of the former session get no answer: only a replaced sender still sends them.
            self._nonces.end(self._session.nonce, b"")
        self._session_number += 1
        self._session = ReceiverSession(
            self._session_number, message.nonce, self._log.run, version, acked_at=now - 1e9
        )
        self._ack_at = now + self._settings.pulse_s
        self.counters.sessions += 1
        self._reason = self._no_common = ""
        return self._session

    def _on_unknown(
        self, message: BatchFrame | Pulse | Members, version: int
    ) -> list[ReceiverAction]:
        self.counters.dropped["of another session"] += 1
        if not self._nonces.has_ended(message.nonce):
            cause = Cause.LOG_AWAY if self._log is None else Cause.UNKNOWN_SESSION
            over = encode_over(version, message.nonce, message.run, cause, 0, "")
            self._nonces.end(message.nonce, over)
            return [Send(over)]
        # The OVER may be lost: each further PULSE of the session gets it again.
        over = self._nonces.over_of(message.nonce)
        return [Send(over)] if over and isinstance(message, Pulse) else []

    def _on_pulse(
        self, session: ReceiverSession, pulse: Pulse, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        if pulse.number > session.arrived:
            return self._end(session, Cause.GAP, session.arrived + 1, "")
        if pulse.measured is not None:
            self.measured = pulse.measured
            self.counters.clock_ahead_ms = pulse.measured.ahead_ms
        session.echo_ms = pulse.wall_ms
        return self._ack(session, now, wall_ms)

    # Batches

    def _on_batch(
        self, session: ReceiverSession, message: BatchFrame, frame: bytes, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        if message.run != session.run:
            return self._drop("of another run")
        number = message.number
        if number <= session.arrived:
            return self._drop("repeated")
        if number != session.arrived + 1:
            return self._end(session, Cause.GAP, session.arrived + 1, "")
        batch = message.batch
        try:
            header = intact_header(message, frame, self._formats)
            refuse_if_not_ours(header, self._own, self._neighbour)
            self._check(header, batch)
            passed_on = append_to_path(batch, self._own)
        except UnknownFormat as error:
            self._unread = (
                f"{self._neighbour} has a batch that {self._own} cannot read: {error.reason};"
                f" upgrade the node of {self._own}"
            )
            return self._end(session, Cause.NEWER_FORMAT, number, self._unread)
        except OriginUnknown as error:
            # A mark has no messages, and later batches bear the same facts.
            if header.kind is BatchKind.MARK or self._unsure.is_over(error.reason, now):
                return self._refuse(session, batch, error.reason, now, wall_ms)
            self._unread = f"{error.reason}: does {self._own} have the newest mesh file?"
            return self._end(session, Cause.ORIGIN_UNKNOWN, number, self._unread)
        except Damaged as error:
            self.counters.dropped["damaged"] += 1
            if not message.suspect:
                return self._end(session, Cause.BAD_BATCH, number, error.reason)
            return self._refuse(session, batch, error.reason, now, wall_ms)
        except BadBatch as error:
            self.counters.not_authentic += isinstance(error, NotAuthentic)
            return self._refuse(session, batch, error.reason, now, wall_ms)
        if message.members_sent and not self._knows(header.revision, wall_ms):
            # The MEMBERS was lost on the way, or could not be kept: send all of it again.
            reason = f"the sites of revision {header.revision} are not known"
            return self._end(session, Cause.GAP, number, reason)
        session.note_arrival(len(batch))
        self._unread = ""
        self.counters.note_arrival(header.entry_count, len(batch))
        ours = replace(header, path=(*header.path, self._own))
        return [Append(ours, passed_on, session.number, number)]

    def _refuse(
        self, session: ReceiverSession, batch: memoryview, reason: str, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        session.note_arrival(len(batch))
        actions = self._put_aside(bytes(batch), reason, now)
        return actions + self._send_refused(session, session.arrived, reason, now, wall_ms)

    def _put_aside(self, batch: bytes, reason: str, now: float) -> list[ReceiverAction]:
        self.counters.refused += 1
        if not self._refusals.keeps(len(batch), now):
            self.counters.refused_unkept += 1
            return []
        return [Quarantine(batch, reason)]

    def _send_refused(
        self, session: ReceiverSession, number: int, reason: str, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        refusal = Send(session.refused(number, reason))
        session.done(number)
        return [refusal, *self._ack_if_due(session, now, wall_ms)]

    def has_otherwise(
        self, name: BatchName, now: float, wall_ms: int, *, by_group: bool
    ) -> list[ReceiverAction]:
        """Note a batch that the log has got otherwise than by this link; `by_group`: by the mesh's
        group, just now. The sender is informed with the next acknowledgement, as soon as if the
        batch had come by the link.
        """
        session = self._session
        if session is None or session.version < WITH_HAVE:
            return []
        session.otherwise.setdefault(by_group, NameSet()).add(name)
        return self._ack_if_due(session, now, wall_ms)

    # Acks

    def _ack_if_due(
        self, session: ReceiverSession, now: float, wall_ms: int
    ) -> list[ReceiverAction]:
        settings = self._settings
        unacked = session.logged - session.acked
        if not unacked and not session.otherwise:
            return []
        if (
            unacked >= settings.ack_batches
            or session.unacked_bytes >= settings.ack_bytes
            or now - session.acked_at >= settings.ack_delay_s
        ):
            return self._ack(session, now, wall_ms)
        due = session.acked_at + settings.ack_delay_s
        if self._ack_at is None or self._ack_at > due:
            self._ack_at = due
        return []

    def _ack(self, session: ReceiverSession, now: float, wall_ms: int) -> list[ReceiverAction]:
        actions: list[ReceiverAction] = [Send(frame) for frame in session.have()]
        actions.append(Send(session.ack(now, wall_ms)))
        self._ack_at = now + self._settings.pulse_s
        self.counters.acks += 1
        return actions

    # Ends

    def _end(
        self, session: ReceiverSession, cause: Cause, number: int, reason: str
    ) -> list[ReceiverAction]:
        over = session.over(cause, number, reason)
        self._nonces.end(session.nonce, over)
        words = cause.name.lower().replace("_", " ")
        self.counters.ends[words] += 1
        self._forget(f"{words}: {reason}" if reason else words)
        return [Send(over)]

    def _end_all(self, cause: Cause, reason: str) -> list[ReceiverAction]:
        session = self._session
        actions = [] if session is None else self._end(session, cause, 0, reason)
        self._nonces.forget_offers()
        self._forget(reason)
        return actions

    def _forget(self, reason: str) -> None:
        self._session = None
        self._ack_at = None
        self._reason = reason

    def _drop(self, why: str) -> list[ReceiverAction]:
        self.counters.dropped[why] += 1
        return []
