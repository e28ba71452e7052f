"""What a session has read, sent and had acknowledged: the bookkeeping of one sliding window.

Pure. The position is the last batch before the oldest unacknowledged one *sent*: what was skipped
is done once all that was sent before it is. Otherwise a link that carries one batch a week would
read a week at each restart, and retention would one day eat its position.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchName, Place


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
