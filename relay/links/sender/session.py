"""The phases of a link's sender, and what only one of its sessions knows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchName, Place
from relay.batches.known_formats import Formats
from relay.batches.name_set import NameSet


class Acknowledged(NamedTuple):
    """What one ack was good for. `first_sent_at`: when the oldest of it went out."""

    batches: int
    messages: int
    bytes: int
    first_sent_at: float
    headers: tuple[BatchHeader, ...]


class _Sent:
    """One batch under way."""

    __slots__ = ("bytes", "header", "number", "place", "sent_at")

    def __init__(
        self, number: int, place: Place, header: BatchHeader, nbytes: int, at: float
    ) -> None:
        self.number = number
        self.place = place
        """Up to where the position may go once this is acknowledged: itself, or the last batch
        that was skipped right after it."""
        self.header = header
        self.bytes = nbytes
        self.sent_at = at


class LinkWindow:
    """One session's. `place` is the position's."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.outstanding_bytes = 0
        self.last_sent = 0
        self.last_acked = 0
        self._under_way: deque[_Sent] = deque()

    @property
    def outstanding(self) -> int:
        """Batches sent and not acknowledged."""
        return len(self._under_way)

    def send(self, place: Place, header: BatchHeader, nbytes: int, now: float) -> int:
        """The next batch read is sent: its number in the session."""
        self.last_sent += 1
        self._under_way.append(_Sent(self.last_sent, place, header, nbytes, now))
        self.outstanding_bytes += nbytes
        return self.last_sent

    def skip(self, place: Place) -> bool:
        """The next batch read is not sent. Whether the position moved by that."""
        if self._under_way:
            self._under_way[-1].place = place
            return False
        self.place = place
        return True

    def acknowledge(self, number: int) -> Acknowledged | None:
        """All up to `number` are in the receiver's log. None if that is nothing new.

        Raises ValueError for a number that was never sent.
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
        """The batch with that number, None when it is not under way."""
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

    def room(self, window: LinkWindow) -> int:
        """Return how many bytes more may go under way; a batch may exceed any room above 0."""
        most = self.bytes if self.limit is None else min(self.bytes, self.limit)
        return max(0, most - window.outstanding_bytes) if window.outstanding else most

    def grow(self, acknowledged: int) -> None:
        """Double the size, up to the most, after so many bytes were acknowledged."""
        if self.bytes < self._most:
            self.bytes = min(self._most, 2 * max(self.bytes, acknowledged))

    def halve(self) -> None:
        """Shrink the size after a session that brought nothing."""
        self.bytes = max(1, self.bytes // 2)


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
    """An event that cannot happen in this phase: the driver is wrong. Nothing was changed."""

    def __init__(self, old: SenderPhase, new: SenderPhase) -> None:
        super().__init__(f"a link's sender cannot go from {old.value} to {new.value}")


class Unread(NamedTuple):
    """A batch that the receiver of this run does not know to read. It is not sent again before
    another version may run there: over weeks of upgrading, a thin line would carry it for nothing.
    """

    run: bytes
    name: BatchName
    reason: str


@dataclass(slots=True)
class SenderSession:
    """What only one session knows."""

    nonce: bytes
    run: bytes
    began_at: float
    window: LinkWindow
    logged: NameSet
    heard_at: float
    progress_at: float
    version: int
    """Of the link, in which both ends speak."""
    reads: Formats
    """What the receiver said of itself."""
    stands: str = ""
    """Why nothing more is sent: the receiver cannot read the batch that is next."""
    arrived: int = 0
    acked: bool = False
    acked_at: float = 0.0
    members_sent: set[str] = field(default_factory=set)
    """Revisions of which the receiver has been told the sites."""
