"""Sending end of a link: a state machine without socket, clock or log.

Events go in as calls with the time; the work to be done comes out as a list of actions, in order.
Afterwards the driver looks at `wakeup` (when to call `tick`) and `room` (how much to read).

::

                 connected               WELCOME
    DISCONNECTED ----------> ASKING -----------------> RUNNING
         ^                    | ^   (reading the log)    |
         |    disconnected    | |   session over         |
         +--------------------+ +------------------------+
         +-----------------------------------------------+

The position moves only by an ACK of this session's nonce and run, and over batches skipped with
nothing under way. Everything here that looks over-careful answers a way in which a link lost,
repeated or wedged: acks of another session, endless resends, returns that come late.

`outgoing` chooses and encodes the batches, `progress` keeps how far the link has got, `session`
what is under way, `timing` the waits and clocks. The rest is the protocol, long and in one piece:
every event may end the session, and the cause of its end decides when and how to ask for the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.batches.batch import BatchHeader, BatchName, LoggedBatch, Place
from relay.batches.known_formats import KNOWN, Formats
from relay.batches.name_set import BadNameSet, NameSet
from relay.links.forwarding import Forwarding
from relay.links.metrics import LinkState, SenderCounters
from relay.links.position import LinkPosition, begin
from relay.links.sender.actions import (
    Disconnect,
    GaveUpOn,
    ReadFrom,
    Save,
    SenderAction,
    StopReading,
)
from relay.links.sender.outgoing import BatchChoice, OutgoingBatches
from relay.links.sender.parts import SenderParts
from relay.links.sender.progress import LinkProgress
from relay.links.sender.session import (
    MAX_WELCOME_BYTES,
    MOVES,
    IllegalMove,
    LinkWindow,
    SenderPhase,
    SenderSession,
    WindowSize,
    reason_of,
)
from relay.links.sender.timing import LinkEcho, Patience
from relay.links.settings import LinkSettings
from relay.links.transport.link_end import TransportStatus
from relay.links.wire import (
    HEAD_BYTES,
    NO_NONCE,
    NONCE_BYTES,
    Ack,
    BadFrame,
    Cause,
    Have,
    Hello,
    Measured,
    OtherVersion,
    Over,
    Refused,
    Send,
    Welcome,
    decode_frame,
    encode_ask,
    encode_pulse,
    read_nonce,
)
from relay.log.hot_tail import Wish
from relay.retry import Backoff


class LinkSender:
    """State machine of one link's sender, over all connections and sessions."""

    def __init__(
        self,
        *,
        forwarding: Forwarding,
        receiver_user: str,
        position: LinkPosition | None,
        parts: SenderParts,
        settings: LinkSettings | None = None,
        counters: SenderCounters | None = None,
        formats: Formats = KNOWN,
    ) -> None:
        self.counters = counters or SenderCounters()
        self._settings = settings or LinkSettings()
        self._receiver_user = receiver_user
        self._progress = LinkProgress(position, parts.safe_place, self._settings)
        self._random_bytes = parts.random_bytes
        self._choice = BatchChoice(forwarding, parts.is_void, self._progress, parts.comes_otherwise)
        self._outgoing = OutgoingBatches(
            self._choice, parts.members, self._settings.bad_copies, self.counters, parts.trace
        )
        self._formats = formats
        self._phase = SenderPhase.DISCONNECTED
        self._patience = Patience(self._settings)
        self._backoff = Backoff(self._settings.ask_first_s, self._settings.ask_most_s, parts.random)
        self._setbacks = 0
        self._asked = 0
        self._window_size = WindowSize(self._settings.window_bytes)
        self._session: SenderSession | None = None
        self._session_number = 0
        self._nonce = NO_NONCE
        self._ask_at = 0.0
        self._pulse_at = 0.0
        self._echo = LinkEcho()
        self._taken = 0
        self._blocked = False
        self._reason = ""

    # Read by the driver and by status

    @property
    def phase(self) -> SenderPhase:
        return self._phase

    @property
    def state(self) -> LinkState:
        if self._phase is SenderPhase.RUNNING and not self.reason:
            return LinkState.RUNNING
        return LinkState.DOWN if self.reason else LinkState.STARTING

    @property
    def reason(self) -> str:
        """Reason why the link is down, or why the last session ended; empty if nothing is known."""
        return self._reason if self._session is None else self._session.stands

    @property
    def receiver_formats(self) -> Formats | None:
        """Formats that the receiver reads, by its own account; None without a session."""
        return None if self._session is None else self._session.reads

    @property
    def position(self) -> LinkPosition | None:
        """Position up to which the receiver safely has all it should; None before any session."""
        return self._progress.position

    @property
    def place(self) -> Place | None:
        """Place of `position`, but up to date, and valid only as long as the session lasts."""
        return self._progress.place

    @property
    def outstanding(self) -> int:
        """Number of batches under way."""
        return self._session.window.outstanding if self._session else 0

    @property
    def outstanding_bytes(self) -> int:
        return self._session.window.outstanding_bytes if self._session else 0

    @property
    def window_bytes(self) -> int:
        """Bytes that may be under way: the size of the window, or less where the rate is low."""
        return self._window_size.present

    def receiver_has(self, name: BatchName) -> bool:
        """Return True if the receiver's log is known from this session to have the batch."""
        return self._session is not None and name in self._session.logged

    def is_held(self, header: BatchHeader, since: float, now: float) -> bool:
        """Return True while a batch read at `since` waits, as the receiver may get it otherwise."""
        session = self._session
        if session is None or not session.informed_until:
            return False
        hold_s = max(self._settings.hold_s, 4 * self._patience.round_trip_s)
        return self._choice.is_held(header, session, since + hold_s, now)

    @property
    def measured(self) -> Measured | None:
        """Receiver's clock by the quickest recent exchange, or None before any."""
        return self._echo.best

    @property
    def heard_at(self) -> float | None:
        """Time at which the receiver was last heard, or None without a session."""
        return None if self._session is None else self._session.heard_at

    @property
    def forwarding(self) -> Forwarding:
        """Filter by which batches are chosen at present."""
        return self._choice.forwarding

    @property
    def wish(self) -> Wish | None:
        """Batches that may be sent, or None if there are too many sites to list."""
        return self._choice.wish

    @property
    def lost(self) -> LoggedBatch | None:
        """Batch that the receiver lacks and whose content is gone here, once the receiver has all
        that it should have before; else None.
        """
        return self._session.lost if self._session is not None and self.rests else None

    @property
    def rests(self) -> bool:
        """True in a session with nothing under way."""
        return self._session is not None and not self._session.window.outstanding

    def room(self) -> int:
        """Return the bytes of batches to read and hand in now; a batch may exceed any room."""
        if self._session is None or self._session.stands:
            return 0
        return self._window_size.room(self._session.window)

    def limit_window(self, most: int | None) -> None:
        """Limit the bytes under way (None: by the settings only): more than the link's rate lets
        through in a round trip would wait elsewhere.
        """
        self._window_size.limit = most

    def wakeup(self) -> float | None:
        """Return the latest time at which `tick` is due, or None."""
        if self._phase is SenderPhase.ASKING:
            return self._ask_at
        session = self._session
        if session is None:
            return None
        due = min(self._pulse_at, session.heard_at + self._patience.silence())
        window = session.window
        if session.arrived < window.last_sent:
            due = min(due, self._progress_due(session))
        save_due = self._progress.save_due
        return due if save_due is None else min(due, save_due)

    # Events

    def connected(self, now: float, status: TransportStatus) -> list[SenderAction]:
        """Take up a new connection."""
        self._move(SenderPhase.ASKING)
        self._taken = status.bytes_taken
        self._begin_asking(now)
        return []

    def disconnected(self, now: float, reason: str) -> list[SenderAction]:
        """Note that the connection is gone, or could not be made."""
        if self._phase is SenderPhase.DISCONNECTED:
            self._reason = reason
            return []
        actions: list[SenderAction] = []
        self._end_session(now, reason, actions)
        self._move(SenderPhase.DISCONNECTED)
        self._reason = reason
        return actions

    def change(self, forwarding: Forwarding, now: float) -> list[SenderAction]:
        """Carry by a new filter after a change of the mesh. The session goes on unless batches
        passed over so far may be due now; then the next session looks through the log from its
        start.
        """
        if forwarding == self._choice.forwarding:
            return []
        self._choice.change(forwarding)
        stands = self._session is not None and self._session.stands
        if self._progress.goes_on_with(forwarding) and not stands:
            return []
        return self._give_up(now, "the mesh has changed")

    def log_failed(self, now: float, reason: str) -> list[SenderAction]:
        """End the session because our log cannot be read; the next begins at the position kept."""
        return self._give_up(now, reason)

    def sent_back(self, now: float) -> list[SenderAction]:
        """Go back because the log holds batches that were not read, somewhere among the last.

        The place reached may be past them. The session ends without saving that place, and the next
        begins at the last sample, which was certain; batches that the receiver has are skipped.
        """
        self._progress.back_to_certain()
        return self._give_up(now, "the log was read again from further back")

    def place_lost(self, now: float) -> list[SenderAction]:
        """Begin at the log's start, as the log lacks the session's first place. The receiver's
        names show which batches to skip.
        """
        self._progress.back_to_start(now)
        return self._give_up(now, "the log was read again from further back")

    def frame_returned(self, head: bytes, now: float) -> list[SenderAction]:
        """Take in the beginning of a frame that was returned for want of a receiver."""
        self.counters.returned += 1
        try:
            nonce = read_nonce(head[:HEAD_BYTES])
        except BadFrame as error:
            return self._drop(error.reason)
        if nonce != self._nonce:
            return self._drop("returned late")
        if self._phase is SenderPhase.RUNNING:
            return self._give_up(now, "nobody there")
        self._reason = "nobody there"
        return []

    def frame(self, sender: str, frame: bytes, now: float) -> list[SenderAction]:
        """Take in a frame from the user whom the carrier vouches for."""
        if sender != self._receiver_user:
            return self._drop("from a stranger")
        try:
            message = decode_frame(frame, self._formats)
        except OtherVersion as error:
            return self._on_other_version(error)
        except BadFrame as error:
            return self._drop(error.reason)
        if isinstance(message, Hello):
            return self._on_hello(now)
        if message.nonce != self._nonce:
            return self._drop("of another session")
        if isinstance(message, Welcome):
            return self._on_welcome(message, now)
        session = self._session
        if session is None and isinstance(message, Over):
            self._reason = reason_of(message)  # the answer to our ASK: no common version
            return []
        if session is None or message.run != session.run:
            return self._drop("of another run")
        session.heard_at = now
        if isinstance(message, Ack):
            return self._on_ack(session, message, now)
        if isinstance(message, Over):
            return self._on_over(session, message, now)
        if isinstance(message, Refused):
            return self._on_refused(session, message)
        if isinstance(message, Have):
            return [] if session.has_otherwise(message, now) else self._drop("bad set of names")
        return self._drop("not for a sender")

    def batches(
        self, batches: Sequence[LoggedBatch], session_number: int, now: float
    ) -> list[SenderAction]:
        """Send the batches read next. Batches read for a session that is over are ignored."""
        session = self._session
        if session is None or session_number != self._session_number:
            return []
        actions, moved = self._outgoing.frames(session, batches, now)
        if moved:
            self._position_moved(now, actions)
        return actions

    def tick(self, now: float, wall_ms: int, status: TransportStatus) -> list[SenderAction]:
        """Ask, pulse or give up, as the passage of time demands. `wall_ms` is the wall clock."""
        if self._phase is SenderPhase.ASKING:
            return self._ask(now, wall_ms, status)
        session = self._session
        if session is None:
            return []
        if status.bytes_taken > self._taken:
            self._taken = status.bytes_taken
            session.progress_at = now
        if status.blocked or self._blocked:
            # No time-out runs while the line is blocked; each begins anew afterwards.
            session.progress_at = session.heard_at = now
        self._blocked = status.blocked
        if status.held_back:
            # Our own rate holds us up; the receiver's signs of life show that the line is good.
            session.progress_at = now
        window = session.window
        if session.arrived < window.last_sent and now >= self._progress_due(session):
            return self._time_out(now, "no progress")
        if now >= session.heard_at + self._patience.silence():
            return self._time_out(now, "the receiver is silent")
        actions: list[SenderAction] = []
        if now >= self._pulse_at:
            self._pulse_at = now + self._settings.pulse_s
            if not status.blocked:
                self._echo.sent(wall_ms, now)
                best = self._echo.best
                pulse = encode_pulse(
                    session.version, self._nonce, session.run, window.last_sent, wall_ms, best
                )
                actions.append(Send(pulse))
        self._save_if_due(now, actions)
        return actions

    def stop(self, now: float) -> list[SenderAction]:
        """End the session and save what is known, because the node stops."""
        return self._give_up(now, "stopped")

    # The time is compared with sums of a time and a span, never with differences: an event due at
    # `wakeup` is then due in the tick at that time, whatever the rounding.

    def _progress_due(self, session: SenderSession) -> float:
        return session.progress_at + self._patience.time_out(session.window.outstanding_bytes)

    # Asking

    def _begin_asking(self, now: float) -> None:
        self._nonce = self._random_bytes(NONCE_BYTES)
        self._asked = 0
        self._echo.forget()
        self._ask_at = now + self._backoff.delay_s(self._setbacks)

    def _ask(self, now: float, wall_ms: int, status: TransportStatus) -> list[SenderAction]:
        if now < self._ask_at:
            return []
        self._asked += 1
        self._ask_at = now + self._backoff.delay_s(self._asked)
        if status.blocked:
            self._reason = "the connection is blocked"
            return []
        if self._asked > 2 and not self._reason:
            self._reason = "no answer"
        self._echo.sent(wall_ms, now)
        return [Send(encode_ask(self._nonce, wall_ms, self._formats))]

    def _on_hello(self, now: float) -> list[SenderAction]:
        # A receiver that has just started has none of the batches under way.
        actions = self._give_up(now, "the receiver came anew")
        if self._phase is SenderPhase.ASKING:
            self._asked = 0
            wait = self._settings.ask_first_s if self._setbacks > 1 else 0.0
            self._ask_at = min(self._ask_at, now + wait)
        return actions

    def _on_welcome(self, welcome: Welcome, now: float) -> list[SenderAction]:
        if self._phase is not SenderPhase.ASKING:
            return self._drop("welcomed twice")
        if len(welcome.logged) > MAX_WELCOME_BYTES:
            self._reason = f"the receiver's names take {len(welcome.logged)} bytes"
            return self._drop("too many names")
        try:
            logged = NameSet.decode(welcome.logged)
        except BadNameSet:
            return self._drop("bad set of names")
        self._move(SenderPhase.RUNNING)
        beginning = begin(
            self._progress.position,
            welcome.log_id,
            welcome.run,
            self._choice.forwarding,
            now,
            lambda: self._progress.has_recent(logged),
        )
        window = LinkWindow(beginning.position.place)
        self._progress.session_begins(beginning, window)
        self._outgoing.begin_session(welcome.run)
        self._session = SenderSession(
            self._nonce, welcome.run, now, window, logged, now, now, welcome.version, welcome.offer
        )
        self._session_number += 1
        self.counters.sessions += 1
        self._measure(welcome.echo_ms, welcome.wall_ms, now)
        self._reason = ""
        self._pulse_at = now  # at once: the PULSE begins the session
        actions: list[SenderAction] = []
        self._save_if_due(now, actions)
        actions.append(ReadFrom(window.place, self._session_number, beginning.position.reached))
        return actions

    def _on_other_version(self, error: OtherVersion) -> list[SenderAction]:
        if self._session is None and error.nonce in (self._nonce, NO_NONCE):
            own = self._formats
            self._reason = (
                f"the receiver speaks link version {error.version}, this node {own.oldest_link} to"
                f" {own.newest_link}: upgrade the older one"
            )
        return self._drop(error.reason)

    # In a session

    def _on_ack(self, session: SenderSession, ack: Ack, now: float) -> list[SenderAction]:
        self._measure(ack.echo_ms, ack.wall_ms, now)
        window = session.window
        if session.arrived < ack.arrived <= window.last_sent:
            session.arrived = ack.arrived
            session.progress_at = now
        try:
            done = window.acknowledge(ack.logged)
        except ValueError:
            return self._drop("acknowledges what was not sent")
        if done is None:
            return []
        delay_s = now - done.first_sent_at
        self.counters.note_ack(done.batches, done.messages, done.bytes, delay_s)
        self._progress.acknowledged(done.headers, now)
        self._outgoing.acknowledged(done.headers)
        for header in done.headers:
            session.logged.add(header.name)
        since = max(done.first_sent_at, session.acked_at)
        self._patience.measured_transfer(done.bytes, now - since)
        session.progress_at = session.acked_at = now
        if not session.acked:
            session.acked = True
            self._patience.fruitless = 0
            self._setbacks = 0
        self._window_size.grow(done.bytes)
        actions: list[SenderAction] = []
        self._position_moved(now, actions)
        return actions

    def _on_refused(self, session: SenderSession, refused: Refused) -> list[SenderAction]:
        name = session.window.name_of(refused.number)
        if name is None:
            return self._drop("refuses what is not under way")
        self.counters.refused += 1
        self._outgoing.refused(name)
        return [GaveUpOn(name, refused.reason)]

    def _on_over(self, session: SenderSession, over: Over, now: float) -> list[SenderAction]:
        if over.cause is Cause.BAD_BATCH:
            name = session.window.name_of(over.number)
            if name is not None:
                self._outgoing.called_bad(name)
        elif over.cause is Cause.NEWER_FORMAT:
            name = session.window.name_of(over.number)
            if name is not None:
                self._outgoing.not_read(session.run, name, reason_of(over))
        actions = self._give_up(now, reason_of(over))
        if over.cause is Cause.ORIGIN_UNKNOWN:
            # A HELLO will announce that it has another mesh file; till then a thin line is spared.
            self._ask_at = now + self._settings.unsure_s
        return actions

    def _measure(self, echo_ms: int, wall_ms: int, now: float) -> None:
        seconds = self._echo.echoed(echo_ms, wall_ms, now)
        if seconds is None:
            return
        self._patience.measured_round_trip(seconds)
        self.counters.round_trip_s = self._patience.round_trip_s
        best = self._echo.best
        if best is not None:
            self.counters.clock_ahead_ms = best.ahead_ms

    def _position_moved(self, now: float, actions: list[SenderAction]) -> None:
        self._progress.moved(now)
        self._save_if_due(now, actions)

    def _save_if_due(self, now: float, actions: list[SenderAction], at_once: bool = False) -> None:
        keep = self._progress.pending_save(now, at_once)
        if keep is not None:
            actions.append(Save(*keep))

    # The end of a session

    def _time_out(self, now: float, reason: str) -> list[SenderAction]:
        # The session's bytes may long lie in the socket, ahead of the next session's.
        actions = self._give_up(now, reason)
        actions.append(Disconnect(reason))
        return actions

    def _give_up(self, now: float, reason: str) -> list[SenderAction]:
        """End the session, if there is one, and ask for the next."""
        actions: list[SenderAction] = []
        if self._phase is SenderPhase.RUNNING:
            self._end_session(now, reason, actions)
            self._move(SenderPhase.ASKING)
            self._reason = reason
            self._begin_asking(now)
        return actions

    def _end_session(self, now: float, reason: str, actions: list[SenderAction]) -> None:
        session = self._session
        if session is None:
            return
        self.counters.ends[reason.partition(":")[0]] += 1
        self._save_if_due(now, actions, at_once=True)
        self._progress.session_ends()
        if session.acked or now - session.began_at >= self._settings.fruitful_s:
            self._setbacks = 0
        else:
            self._setbacks += 1
        if not session.acked and session.window.last_sent:
            self.counters.fruitless_sessions += 1
            self._patience.fruitless += 1
            self._window_size.halve()
        self._session = None
        self._nonce = NO_NONCE
        actions.append(StopReading())

    def _drop(self, why: str) -> list[SenderAction]:
        self.counters.dropped[why] += 1
        return []

    def _move(self, new: SenderPhase) -> None:
        if new not in MOVES[self._phase]:
            raise IllegalMove(self._phase, new)
        self._phase = new
