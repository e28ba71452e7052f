"""Sessions of a link's sender: their phases, their state, and the bookkeeping of the sliding
window.

The position is the last batch before the oldest unacknowledged one *sent*: skipped batches are done
once all batches sent before them are. Otherwise a link that carries one batch a week would read a
week of log at each restart, and retention would one day eat its position.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchName, LoggedBatch, Place
from relay.batches.known_formats import Formats
from relay.batches.name_set import BadNameSet, NameSet
from relay.links.wire import Have, Over


class Acknowledged(NamedTuple):
    """Totals of the batches acknowledged by an ACK. `first_sent_at`: when the oldest was sent."""

    batches: int
    messages: int
    bytes: int
    first_sent_at: float
    headers: tuple[BatchHeader, ...]


class _Sent:
    __slots__ = ("bytes", "header", "number", "place", "sent_at")

    def __init__(
        self, number: int, place: Place, header: BatchHeader, nbytes: int, at: float
    ) -> None:
        self.number = number
        self.place = place
        """Place of the position once the batch is acknowledged: past batches skipped after it."""
        self.header = header
        self.bytes = nbytes
        self.sent_at = at


class LinkWindow:
    """Sliding window of one session. `place` is the position's place."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.outstanding_bytes = 0
        self.last_sent = 0
        self.last_acked = 0
        self._under_way: deque[_Sent] = deque()

    @property
    def outstanding(self) -> int:
        """Number of batches sent and not acknowledged."""
        return len(self._under_way)

    def send(self, place: Place, header: BatchHeader, nbytes: int, now: float) -> int:
        """Record the batch read next as sent. Returns its number in the session."""
        self.last_sent += 1
        self._under_way.append(_Sent(self.last_sent, place, header, nbytes, now))
        self.outstanding_bytes += nbytes
        return self.last_sent

    def skip(self, place: Place) -> bool:
        """Record the batch read next as skipped. Returns True if the position moved."""
        if self._under_way:
            self._under_way[-1].place = place
            return False
        self.place = place
        return True

    def acknowledge(self, number: int) -> Acknowledged | None:
        """Acknowledge all batches up to `number`, which are in the receiver's log. Returns None if
        none is new. Raises ValueError for a number that was never sent.
        """
        if number > self.last_sent:
            raise ValueError(f"{number} acknowledged, {self.last_sent} sent")
        if number <= self.last_acked:
            return None
        self.last_acked = number
        under_way = self._under_way
        first_sent_at = under_way[0].sent_at
        messages = nbytes = 0
        headers = []
        while under_way and under_way[0].number <= number:
            done = under_way.popleft()
            headers.append(done.header)
            messages += done.header.entry_count
            nbytes += done.bytes
            self.place = done.place
        self.outstanding_bytes -= nbytes
        return Acknowledged(len(headers), messages, nbytes, first_sent_at, tuple(headers))

    def name_of(self, number: int) -> BatchName | None:
        """Return the name of the batch with that number, or None if it is not under way."""
        if not self._under_way:
            return None
        index = number - self._under_way[0].number
        if not 0 <= index < len(self._under_way):
            return None
        return self._under_way[index].header.name


class WindowSize:
    """Bytes that one link may have under way, over all its sessions."""

    def __init__(self, most: int) -> None:
        self.bytes = most
        self.limit: int | None = None
        """Bytes that the link's rate is worth having under way, or None without a rate."""
        self._most = most

    @property
    def present(self) -> int:
        """Bytes that may be under way at present, by size and rate."""
        return self.bytes if self.limit is None else min(self.bytes, self.limit)

    def room(self, window: LinkWindow) -> int:
        """Return how many bytes more may go under way; a batch may exceed any room above 0."""
        most = self.present
        return max(0, most - window.outstanding_bytes) if window.outstanding else most

    def grow(self, acknowledged: int) -> None:
        """Double the size, up to the most, after so many bytes were acknowledged."""
        if self.bytes < self._most:
            self.bytes = min(self._most, 2 * max(self.bytes, acknowledged))

    def halve(self) -> None:
        """Shrink the size after a session that brought nothing."""
        self.bytes = max(1, self.bytes // 2)


MAX_WELCOME_BYTES = 16 * 1024 * 1024
"""Bytes of the receiver's names, which take up to 40 times as much memory. Brokers forward frames
of this size by default; a hub with hundreds of sites sends a hundredth."""


MAX_HAVE_BYTES = 256 * 1024
"""Bytes of names in one HAVE, which has those of a tenth of a second."""
NEWS_LASTS_S = 5.0
"""Time without news of batches that the group has brought after which none waits for the group."""
MOST_INTERVALS = 1_000_000
"""Intervals of a receiver's names, with what it reports later: some 100 MB."""


def reason_of(over: Over) -> str:
    """Return in words why the receiver has ended a session."""
    cause = over.cause.name.lower().replace("_", " ")
    return f"{cause}: {over.reason}" if over.reason else cause


class SenderPhase(Enum):
    DISCONNECTED = "disconnected"
    ASKING = "asking"
    RUNNING = "running"


MOVES: dict[SenderPhase, frozenset[SenderPhase]] = {
    SenderPhase.DISCONNECTED: frozenset({SenderPhase.ASKING}),
    SenderPhase.ASKING: frozenset({SenderPhase.RUNNING, SenderPhase.DISCONNECTED}),
    SenderPhase.RUNNING: frozenset({SenderPhase.ASKING, SenderPhase.DISCONNECTED}),
}


class IllegalMove(Exception):
    """Event impossible in the present phase: an error of the driver. Nothing was changed."""

    def __init__(self, old: SenderPhase, new: SenderPhase) -> None:
        super().__init__(f"a link's sender cannot go from {old.value} to {new.value}")


class UnreadableBatch(NamedTuple):
    """Batch that the receiver's present run cannot read. The batch is not sent again before another
    version may run there: over weeks of upgrading, a thin line would carry it for nothing.
    """

    run: bytes
    name: BatchName
    reason: str


@dataclass(slots=True)
class SenderSession:
    """State of one session."""

    nonce: bytes
    run: bytes
    began_at: float
    window: LinkWindow
    logged: NameSet
    heard_at: float
    progress_at: float
    version: int
    """Version of the link protocol that both ends use."""
    reads: Formats
    """Formats that the receiver reads, by its own account."""
    stands: str = ""
    """Reason why nothing more is sent: the receiver cannot read the next batch, or its content is
    gone here. Empty otherwise."""
    lost: LoggedBatch | None = None
    """Next batch, whose content is gone here."""
    arrived: int = 0
    acked: bool = False
    acked_at: float = 0.0
    informed_until: dict[str, float] = field(default_factory=dict)
    """Time until which batches of an origin may wait: the mesh's group has brought some lately."""
    have_bytes: int = 0
    """Bytes of the HAVEs that had series which were new."""
    members_sent: set[str] = field(default_factory=set)
    """Revisions whose sites were sent to the receiver."""

    def has_otherwise(self, have: Have, now: float) -> bool:
        """Note what the receiver has got otherwise; return False if the names are no set, or more
        than any receiver has.
        """
        if len(have.names) > MAX_HAVE_BYTES:
            return False
        try:
            names = NameSet.decode(have.names)
        except BadNameSet:
            return False
        found = names.series()
        if any(not self.logged.intervals(series) for series in found):
            self.have_bytes += len(have.names)
        too_many = self.logged.interval_count() + names.interval_count() > MOST_INTERVALS
        if too_many or self.have_bytes > MAX_WELCOME_BYTES:
            return False
        self.logged.merge(names)
        if have.by_group:
            for series in found:
                self.informed_until[series.origin] = now + NEWS_LASTS_S
        return True
