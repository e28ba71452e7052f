"""Choice of the batches that a link's sender sends, and the frames they become, in order.

Batches are sent unchanged. A batch called damaged before is marked, the sites of a revision go
ahead of its first batch, and sending stops at a batch that the receiver cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relay.batches.batch import BatchHead, BatchHeader, BatchName, LoggedBatch, Place, Series
from relay.batches.format import BadBatch, verify_digest
from relay.batches.name_set import NameSet
from relay.links.forwarding import Forwarding, ForwardingDecision
from relay.links.metrics import SenderCounters
from relay.links.sender.actions import SenderAction
from relay.links.sender.progress import LinkProgress
from relay.links.sender.session import SenderSession, UnreadableBatch
from relay.links.wire import WITH_MEMBERS, Send, encode_batch_frame, encode_members_frame
from relay.log.hot_tail import Wish
from relay.tracing.batch_trace import LinkTrace

_MOST_NOT_WANTED = 4096
_MOST_CALLED_BAD = 1024
_MOST_INCARNATIONS = 1024


class BatchChoice:
    """Choice of a link's batches. `progress` notes which were passed over."""

    def __init__(
        self,
        forwarding: Forwarding,
        is_void: Callable[[BatchHeader], bool],
        progress: LinkProgress,
        comes_otherwise: Callable[[BatchHeader], bool] = lambda header: False,
    ) -> None:
        self.forwarding = forwarding
        self._comes_otherwise = comes_otherwise
        self.not_wanted: set[Series] = set()
        """Series straight from their origin whose destinations this link does not serve. Their
        batches need no further look: of a hub's batches nearly all are for other links."""
        self._is_void = is_void
        self._progress = progress

    def change(self, forwarding: Forwarding) -> None:
        """Choose by a new filter from now on."""
        self.forwarding = forwarding
        self.not_wanted.clear()

    def begin_session(self) -> None:
        """Forget which series were passed over: each session notes their destinations anew."""
        self.not_wanted.clear()

    def why_not(self, header: BatchHeader, logged: NameSet, now: float) -> str | None:
        """Return why the batch is not sent to a receiver with the names `logged`, or None."""
        verdict = self.forwarding.decide(header)
        if verdict is not ForwardingDecision.SEND:
            if verdict is ForwardingDecision.NOT_WANTED:
                self._pass_over(header)
            return verdict.value
        if header.name in logged:
            self._progress.has(header.name, now)
            return "the receiver has it"
        if self._is_void(header):
            return "void"
        return None

    @property
    def wish(self) -> Wish | None:
        """Batches that may be sent, or None if there are too many sites to list."""
        sites = self.forwarding.goes_for()
        return None if sites is None else Wish(sites, self.forwarding.sends)

    def is_held(
        self, header: BatchHeader, session: SenderSession, until: float, now: float
    ) -> bool:
        """Return True while a batch that the receiver does not have waits until a time, as the
        receiver may get it by the mesh's group.
        """
        origin = header.name.series.origin
        if (
            now >= session.informed_until.get(origin, 0.0)
            or not self._comes_otherwise(header)
            or header.name in session.logged
            or not self.forwarding.sends(header)
        ):
            return False
        if now >= until:
            # The group lags, or brings nothing: no more waits until there is news again.
            del session.informed_until[origin]
        return now < until

    def _pass_over(self, header: BatchHeader) -> None:
        series = header.name.series
        # The origin may have a newer mesh file than we do, by which the batch will be due here.
        strangers = set(series.destinations).difference(self.forwarding.sites)
        if strangers:
            self._progress.passed_over_for(strangers)
        if len(header.path) == 1:
            if len(self.not_wanted) >= _MOST_NOT_WANTED:
                self.not_wanted.clear()
            self.not_wanted.add(series)


class OutgoingBatches:
    """Frames of one link, over all its sessions. `members` is `SenderParts.members`; `bad_copies`:
    sessions in which a batch intact here and called damaged by the receiver is tried.
    """

    def __init__(
        self,
        choice: BatchChoice,
        members: Callable[[str], bytes | None],
        bad_copies: int,
        counters: SenderCounters,
        trace: LinkTrace | None = None,
    ) -> None:
        self._choice = choice
        self._members = members
        self._counters = counters
        self._bad_copies = bad_copies
        self._trace = trace
        self._called_bad: dict[BatchName, int] = {}
        self._unread: UnreadableBatch | None = None
        self._highest_sent: dict[bytes, int] = {}

    def begin_session(self, run: bytes) -> None:
        """Begin a session with the receiver's run `run`."""
        if self._unread is not None and self._unread.run != run:
            self._unread = None
        self._choice.begin_session()

    def called_bad(self, name: BatchName) -> None:
        """Note that the receiver ended a session over a batch."""
        if len(self._called_bad) < _MOST_CALLED_BAD:
            self._called_bad[name] = self._called_bad.get(name, 0) + 1

    def not_read(self, run: bytes, name: BatchName, reason: str) -> None:
        """Stop at this batch while the receiver's run lasts, which cannot read the batch."""
        self._unread = UnreadableBatch(run, name, reason)

    def refused(self, name: BatchName) -> None:
        """Forget the doubts about a batch that the receiver has refused for good."""
        self._called_bad.pop(name, None)

    def acknowledged(self, headers: Sequence[BatchHeader]) -> None:
        """Note that the receiver's log has these batches."""
        if self._trace is not None:
            self._trace.trace.sent(headers, self._trace.peer)

    def frames(
        self, session: SenderSession, batches: Sequence[LoggedBatch], now: float
    ) -> tuple[list[SenderAction], bool]:
        """Return the frames to send, and True if skipped batches moved the place."""
        actions: list[SenderAction] = []
        window, counters, logged = session.window, self._counters, session.logged
        unread = self._unread
        moved = False
        known, passed_by, why_not = self._choice.not_wanted, 0, self._choice.why_not
        passed: Place | None = None
        for place, header, data in batches:
            # Nearly all of a hub's batches for its shops end here: as little work as possible.
            if len(header.path) == 1 and header.name.series in known:
                passed = place
                passed_by += 1
                continue
            if passed is not None:
                moved = window.skip(passed) or moved
                passed = None
            why = why_not(header, logged, now)
            if why is not None:
                counters.skipped[why] += 1
                moved = window.skip(place) or moved
                continue
            if session.arrived >= window.last_sent:
                session.progress_at = now  # progress is timed from the first batch under way
            if unread is not None and header.name == unread.name:
                session.stands = unread.reason
                break
            if isinstance(data, BatchHead):
                session.stands, session.lost = data.reason, LoggedBatch(place, header, data)
                break
            number = window.send(place, header, len(data), now)
            name = header.name
            suspect = self._is_suspect(name, data)
            members_sent = header.revision in session.members_sent or self._send_members(
                session, header.revision, actions
            )
            frame = encode_batch_frame(
                session.version,
                session.nonce,
                session.run,
                number,
                data,
                header.path,
                suspect,
                members_sent,
            )
            actions.append(Send(frame))
            counters.sent += 1
            counters.sent_bytes += len(data)
            self._count_resent(header)
            if self._trace is not None:
                self._trace.trace.sending(header, data, self._trace.peer)
        if passed is not None:
            moved = window.skip(passed) or moved
        if passed_by:
            counters.skipped[ForwardingDecision.NOT_WANTED.value] += passed_by
        return actions, moved

    def _is_suspect(self, name: BatchName, data: bytes) -> bool:
        """Return True if the batch is sent with a mark, for the receiver to put a damaged copy
        aside instead of asking for another for ever.
        """
        times = self._called_bad.get(name)
        if times is None:
            return False
        # A copy that is bad here too will never get better; an intact copy may have been damaged
        # on its way.
        try:
            verify_digest(data)
        except BadBatch:
            return True
        return times >= self._bad_copies

    def _send_members(
        self, session: SenderSession, revision: str, actions: list[SenderAction]
    ) -> bool:
        """Send the sites of a revision. Returns True if the receiver knows them now."""
        sites = self._members(revision) if session.version >= WITH_MEMBERS else None
        if sites is None:
            return False
        session.members_sent.add(revision)
        frame = encode_members_frame(session.version, session.nonce, session.run, revision, sites)
        actions.append(Send(frame))
        return True

    def _count_resent(self, header: BatchHeader) -> None:
        key = header.name.series.incarnation
        sequence = header.incarnation_sequence
        highest = self._highest_sent.get(key, -1)
        if sequence > highest:
            self._highest_sent[key] = sequence
            if len(self._highest_sent) > _MOST_INCARNATIONS:
                self._highest_sent.pop(next(iter(self._highest_sent)))
        else:
            self._counters.resent += 1
