"""What a session has read, sent and had acknowledged: the bookkeeping of one sliding window.

Pure. The position is the last batch before the oldest unacknowledged one *sent*: what was skipped
is done once all that was sent before it is. Otherwise a link that carries one batch a week would
read a week at each restart, and retention would one day eat its position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from relay.batch import BatchHeader, BatchName, Place
from relay.link_position import Totals


class Acknowledged(NamedTuple):
    """What one ack was good for. `first_sent_at`: when the oldest of it went out."""

    batches: int
    messages: int
    bytes: int
    first_sent_at: float


class _Sent:
    """One batch under way, with what was skipped right after it."""

    __slots__ = ("bytes", "header", "number", "place", "sent_at", "skipped")

    def __init__(
        self, number: int, place: Place, header: BatchHeader, nbytes: int, at: float
    ) -> None:
        self.number = number
        self.place = place
        """Up to where the position may go once this is acknowledged."""
        self.header = header
        self.bytes = nbytes
        self.sent_at = at
        self.skipped: dict[bytes, Totals] | None = None


class LinkWindow:
    """One session's. `place` and `totals` are the position's."""

    def __init__(self, place: Place | None, totals: Mapping[bytes, Totals]) -> None:
        self.place = place
        self.totals = dict(totals)
        self.outstanding_bytes = 0
        self.last_sent = 0
        self.last_acked = 0
        self._under_way: deque[_Sent] = deque()
        self._seen: set[bytes] = set()

    @property
    def outstanding(self) -> int:
        """Batches sent and not acknowledged."""
        return len(self._under_way)

    def send(self, place: Place, header: BatchHeader, nbytes: int, now: float) -> int:
        """The next batch read is sent: its number in the session."""
        self._meet(header)
        self.last_sent += 1
        self._under_way.append(_Sent(self.last_sent, place, header, nbytes, now))
        self.outstanding_bytes += nbytes
        return self.last_sent

    def skip(self, place: Place, header: BatchHeader) -> bool:
        """The next batch read is not sent. Whether the position moved by that."""
        self._meet(header)
        key = header.name.series.incarnation
        totals = Totals(header.total_messages, header.total_bytes)
        if not self._under_way:
            self.place = place
            self.totals[key] = totals
            return True
        last = self._under_way[-1]
        last.place = place
        if last.skipped is None:
            last.skipped = {}
        last.skipped[key] = totals
        return False

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
        batches = messages = nbytes = 0
        while under_way and under_way[0].number <= number:
            done = under_way.popleft()
            header = done.header
            batches += 1
            messages += header.entry_count
            nbytes += done.bytes
            self.totals[header.name.series.incarnation] = Totals(
                header.total_messages, header.total_bytes
            )
            if done.skipped:
                self.totals.update(done.skipped)
            self.place = done.place
        self.outstanding_bytes -= nbytes
        return Acknowledged(batches, messages, nbytes, first_sent_at)

    def name_of(self, number: int) -> BatchName | None:
        """The batch with that number, None when it is not under way."""
        if not self._under_way:
            return None
        index = number - self._under_way[0].number
        if not 0 <= index < len(self._under_way):
            return None
        return self._under_way[index].header.name

    def _meet(self, header: BatchHeader) -> None:
        # All of an incarnation that stands before the first of it read here is behind the
        # position; so its totals are known from here on, whatever was kept.
        key = header.name.series.incarnation
        if key not in self._seen:
            self._seen.add(key)
            self.totals[key] = Totals(
                header.total_messages - header.entry_count,
                header.total_bytes - header.byte_count,
            )
