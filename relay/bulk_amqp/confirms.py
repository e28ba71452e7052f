"""Ledger of publishes and the broker's answers. Pure: no socket, no clock, no future for each
message.

Messages published together are a ``Publication``: a range of sequence numbers. The broker answers
by tag, singly or cumulatively, in any order (a cumulative answer covers all that had none yet). A
publication holds a low-water mark and the few answers above the mark, and is done when no answer is
missing, whatever earlier publications still wait for: a queue that never answers delays its own
messages only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from relay.bulk_amqp.errors import UnexpectedFrame
from relay.bulk_amqp.frame_writer import Message


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """Outcome of publishes ``first`` to ``last``; each tuple names sequence numbers, ascending.

    Messages in none of the tuples were confirmed and routed. ``returned`` ones were confirmed too,
    but no queue took them. ``unknown``: the channel closed before an answer; the broker may have
    them.
    """

    first: int
    last: int
    nacked: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    @property
    def all_routed(self) -> bool:
        """True if every message was confirmed and taken by a queue."""
        return not (self.nacked or self.returned or self.unknown)


class Publication:
    """A range of sequence numbers on its way; ``outcome`` is set when the publication is done."""

    __slots__ = (
        "_above",
        "_nacked",
        "_returned",
        "bytes_open",
        "first",
        "last",
        "low",
        "messages",
        "messages_open",
        "outcome",
        "sent_at",
        "size",
    )

    def __init__(
        self, first: int, last: int, size: int, sent_at: float, messages: Sequence[Message] | None
    ) -> None:
        self.first = first
        self.last = last
        self.size = size  # bytes on the wire
        self.sent_at = sent_at  # seconds, by the caller's clock
        self.messages = messages  # kept only while returns may come (mandatory)
        self.low = first - 1  # answered up to here, without a gap
        self.messages_open = last - self.low  # as counted by the ledger
        self.bytes_open = size
        self.outcome: PublishOutcome | None = None
        self._above: set[int] = set()
        self._nacked: list[int] = []
        self._returned: list[int] = []

    @property
    def unanswered(self) -> int:
        """Number of messages without an answer."""
        return self.last - self.low - len(self._above)

    def is_open(self, sequence: int) -> bool:
        """True if the message is neither answered nor returned: a return may be of this message."""
        return (
            sequence > self.low and sequence not in self._above and sequence not in self._returned
        )

    def answer_one(self, sequence: int, positive: bool) -> None:
        if sequence <= self.low or sequence in self._above:
            return
        if not positive:
            self._nacked.append(sequence)
        if sequence != self.low + 1:
            self._above.add(sequence)
            return
        self.low = sequence
        if self._above:
            self._raise_low()

    def answer_up_to(self, sequence: int, positive: bool) -> None:
        sequence = min(sequence, self.last)
        if sequence <= self.low:
            return
        if not positive:
            self._nacked.extend(
                n for n in range(self.low + 1, sequence + 1) if n not in self._above
            )
        if self._above:
            self._above = {n for n in self._above if n > sequence}
        self.low = sequence
        self._raise_low()

    def note_returned(self, sequence: int) -> None:
        self._returned.append(sequence)

    def conclude(self) -> None:
        """Fix the outcome; messages without an answer are unknown."""
        unknown: tuple[int, ...] = ()
        if self.low < self.last:
            unknown = tuple(n for n in range(self.low + 1, self.last + 1) if n not in self._above)
        self.outcome = PublishOutcome(
            self.first,
            self.last,
            tuple(sorted(self._nacked)),
            tuple(sorted(self._returned)),
            unknown,
        )
        self.messages = None

    def _raise_low(self) -> None:
        above, low = self._above, self.low
        while low + 1 in above:
            low += 1
            above.discard(low)
        self.low = low


class ConfirmLedger:
    """All publications of a channel in confirm mode. Sequence numbers begin at 1."""

    def __init__(self) -> None:
        self.next_sequence = 1
        self.unconfirmed_messages = 0
        self.unconfirmed_bytes = 0  # on the wire; averaged inside a partly answered publication
        self._open: list[Publication] = []  # ascending; done ones leave at once
        self._last_returned = 0

    def published(
        self, count: int, size: int, now: float, messages: Sequence[Message] | None = None
    ) -> Publication:
        """Note ``count`` messages (>= 1) of ``size`` bytes together, sent at ``now`` seconds.

        ``messages`` are given if they are mandatory: returns are found among them.
        """
        first = self.next_sequence
        self.next_sequence = first + count
        publication = Publication(first, first + count - 1, size, now, messages)
        self._open.append(publication)
        self.unconfirmed_messages += count
        self.unconfirmed_bytes += size
        return publication

    def answered(self, positive: bool, tags: Iterable[tuple[int, int]]) -> list[Publication]:
        """Take acks or nacks: (tag, bits), bit 0 of which is ``multiple``. Return the publications
        now done.

        Raises UnexpectedFrame for a tag that was never published.
        """
        # All are of one kind, so their order has no meaning: the highest cumulative tag first, then
        # the single tags that it did not cover.
        up_to = -1
        singles: list[int] = []
        for tag, bits in tags:
            if not 0 <= tag < self.next_sequence:
                raise UnexpectedFrame(503, f"a confirm for publish {tag}, never sent")
            if not bits & 1:
                singles.append(tag)
            else:
                up_to = max(up_to, tag or self.next_sequence - 1)  # tag 0: all published
        touched: list[Publication] = []
        for publication in self._open:
            if publication.first > up_to:
                break
            publication.answer_up_to(up_to, positive)
            touched.append(publication)
        held: Publication | None = None
        for tag in singles:
            if tag <= up_to:
                continue
            if held is None or not held.first <= tag <= held.last:
                held = self._holding(tag)
                if held is None:
                    continue
                touched.append(held)
            held.answer_one(tag, positive)
        return self._settle(touched)

    def returned(
        self, exchange: str, routing_key: bytes, properties: bytes, body: bytes
    ) -> tuple[Publication, int]:
        """Find the message that came back; return its publication and sequence number.

        A return names no sequence number. But a broker handles a channel's publishes singly and
        sends the return while it handles the message: returns come in publishing order, each before
        its own confirm. So the message is the oldest unanswered one after the last one returned
        that equals the return. Between equal neighbours, of which one came back, nobody can tell;
        the oldest is named, and as the messages are equal byte for byte, either name is true.

        Brokers may rewrite properties before they return a message (they cut the BCC header, an
        interceptor adds a header): where no message is equal, key and body decide.

        Raises UnexpectedFrame if nothing in flight resembles the return.
        """
        for after in (self._last_returned, 0):
            like: tuple[Publication, int] | None = None
            for publication, sequence, message in self._returnable(after):
                if message[3] == body and message[1] == routing_key and message[0] == exchange:
                    if message[2] == properties:
                        return self._note_returned(publication, sequence)
                    like = like or (publication, sequence)
            if like:
                return self._note_returned(*like)
        raise UnexpectedFrame(503, f"a message returned to {exchange!r} that is not in flight")

    def close(self) -> list[Publication]:
        """End every open publication, unanswered messages as unknown: no answer will come any
        more.
        """
        ended, self._open = self._open, []
        for publication in ended:
            publication.conclude()
        self.unconfirmed_messages = self.unconfirmed_bytes = 0
        return ended

    def oldest_unconfirmed_age(self, now: float) -> float:
        """Seconds since the oldest unfinished publication was sent; 0 if there is none."""
        return now - self._open[0].sent_at if self._open else 0.0

    def _holding(self, sequence: int) -> Publication | None:
        index = bisect_right(self._open, sequence, key=lambda publication: publication.first) - 1
        if index < 0 or self._open[index].last < sequence:
            return None
        return self._open[index]

    def _settle(self, touched: list[Publication]) -> list[Publication]:
        """Count anew the touched publications (some may be listed twice); return those now done."""
        done: list[Publication] = []
        for publication in touched:
            if publication.outcome is None:
                self._count(publication)
                if publication.low == publication.last:
                    publication.conclude()
                    done.append(publication)
        if done:
            open_ = self._open
            leading = 0
            while leading < len(open_) and open_[leading].outcome is not None:
                leading += 1
            del open_[:leading]
            if leading < len(done):
                self._open = [p for p in open_ if p.outcome is None]
        return done

    def _count(self, publication: Publication) -> None:
        left = publication.unanswered
        size = publication.size * left // (publication.last - publication.first + 1)
        self.unconfirmed_messages += left - publication.messages_open
        self.unconfirmed_bytes += size - publication.bytes_open
        publication.messages_open, publication.bytes_open = left, size

    def _returnable(self, after: int) -> Iterator[tuple[Publication, int, Message]]:
        for publication in self._open:
            if publication.messages is None or publication.last <= after:
                continue
            first = publication.first
            for sequence in range(max(publication.low, after) + 1, publication.last + 1):
                if publication.is_open(sequence):
                    yield publication, sequence, publication.messages[sequence - first]

    def _note_returned(self, publication: Publication, sequence: int) -> tuple[Publication, int]:
        publication.note_returned(sequence)
        self._last_returned = max(self._last_returned, sequence)
        return publication, sequence
