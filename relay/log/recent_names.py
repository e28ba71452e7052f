"""The last names logged, in the log's order, by which a node finds out what its log still has.

A name is first *awaited* (handed to the log, then confirmed) and then *checked* (read back from the
log, with its offset; that may come before its confirm). Bytes of a block of checked names, of which
a snapshot has some twenty::

    table   of the series, as `name_set` draws it
    varint  first offset     varint  messages     varint  bytes    (running totals before it)
    varint  number of names, then each:
              varint  number of its series       varint  sequence
              varint  offset after the one before
              varint  messages in it             varint  bytes in it (before compression)

A block is encoded again only if it grew: the snapshot is written every second and most of it stays
the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from relay.batches import varint
from relay.batches.batch import BatchName, Place, Series
from relay.batches.name_set import get_series, put_series

MAX_NAMES = 10_000
"""Names looked for after a loss: losses of tails up to this many batches are recognised as such."""
_BLOCK_NAMES = 500
_POINT_EVERY = 256
_MAX_POINTS = 1024


class Seen(NamedTuple):
    """A name where it was read back. `messages` and `bytes` are running totals of the log, this
    batch included, since its node first saw the log.
    """

    name: BatchName
    offset: int
    messages: int
    bytes: int


class Totals(NamedTuple):
    """Running totals at an offset."""

    offset: int
    messages: int
    bytes: int


class NameMatch(Enum):
    """Relation of a record that was read back to what was appended."""

    AS_APPENDED = "the next one that this node appended"
    OUT_OF_ORDER = "one that this node appended, but another one should come first"
    COPY = "a name that the log had already"
    ALIEN = "nothing that this node knows of"


class _Awaited:
    __slots__ = ("confirmed", "totals")

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self.confirmed = False


class _Block:
    __slots__ = ("encoded", "names")

    def __init__(self, names: list[Seen]) -> None:
        self.names = names
        self.encoded: bytes | None = None


class RecentNames:
    """Awaited and checked names. Pure: knows no log."""

    def __init__(self) -> None:
        self._blocks: deque[_Block] = deque([_Block([])])
        self._by_name: dict[BatchName, Seen] = {}
        self._awaited: dict[BatchName, _Awaited] = {}
        self._unchecked_count = 0
        self._last_unchecked: BatchName | None = None
        self._points: list[Totals] = []
        self._point_every = _POINT_EVERY
        self._since_point = 0
        self._messages = 0
        self._bytes = 0

    @property
    def checked(self) -> Place | None:
        """Last checked place; the offset is the name's own."""
        last = self._last()
        return None if last is None else Place(last.offset, last.name)

    @property
    def oldest(self) -> Place | None:
        """Oldest checked place that is remembered."""
        for block in self._blocks:
            for seen in block.names:
                return Place(seen.offset, seen.name)
        return None

    @property
    def unchecked_count(self) -> int:
        """Number of names confirmed and not read back yet."""
        return self._unchecked_count

    @property
    def last_unchecked(self) -> BatchName | None:
        """Name confirmed last, while not read back."""
        return self._last_unchecked if self._last_unchecked in self._awaited else None

    @property
    def next_awaited(self) -> BatchName | None:
        """Name that should be read back next, confirmed or not."""
        return next(iter(self._awaited), None)

    def is_awaited(self, name: BatchName) -> bool:
        """True if the name was handed to the log and not read back yet."""
        return name in self._awaited

    def awaited(self) -> list[BatchName]:
        """Awaited names, in order."""
        return list(self._awaited)

    def submitted(self, name: BatchName, messages: int, byte_count: int) -> None:
        """Note an append handed to the log, after all earlier ones."""
        self._messages += messages
        self._bytes += byte_count
        self._awaited[name] = _Awaited(Totals(0, self._messages, self._bytes))

    def confirmed(self, name: BatchName) -> int:
        """Note that the name's append was confirmed; return a lower bound of its offset, the last
        checked one.
        """
        waiting = self._awaited.get(name)
        if waiting is None:
            seen = self._by_name.get(name)  # read back before the confirm came
            return seen.offset if seen is not None else 0
        if not waiting.confirmed:
            waiting.confirmed = True
            self._unchecked_count += 1
            self._last_unchecked = name
        last = self._last()
        return last.offset if last is not None else 0

    def in_doubt(self, names: Iterable[BatchName]) -> None:
        """Stop awaiting names whose connection ended before their confirm."""
        for name in names:
            waiting = self._awaited.get(name)
            if waiting is not None and not waiting.confirmed:
                del self._awaited[name]

    def read_back(
        self, name: BatchName, offset: int, messages: int, byte_count: int, *, known: bool
    ) -> NameMatch:
        """Note a record that was read. `known`: the logged set has the name."""
        waiting = self._awaited.get(name)
        if waiting is not None:
            expected = self.next_awaited == name
            del self._awaited[name]
            self._unchecked_count -= waiting.confirmed
            finding = NameMatch.AS_APPENDED if expected else NameMatch.OUT_OF_ORDER
            totals = waiting.totals
        elif known:
            return NameMatch.COPY
        else:
            totals = self._add_alien(offset, messages, byte_count)
            finding = NameMatch.ALIEN
        self._add(Seen(name, offset, totals.messages, totals.bytes))
        return finding

    def _add_alien(self, offset: int, messages: int, byte_count: int) -> Totals:
        """Count a stranger's batch in before all awaited batches, which stand behind."""
        self._messages += messages
        self._bytes += byte_count
        at = Totals(offset, self._messages, self._bytes)
        last = self._last()
        if self._awaited and last is not None:
            at = Totals(offset, last.messages + messages, last.bytes + byte_count)
        for waiting in self._awaited.values():
            _, messages_to, bytes_to = waiting.totals
            waiting.totals = Totals(0, messages_to + messages, bytes_to + byte_count)
        return at

    def find(self, name: BatchName) -> Seen | None:
        """Return where a name was read back, or None if forgotten."""
        return self._by_name.get(name)

    def lag(self, place: Place | None, first: int = 0) -> tuple[int, int]:
        """Messages and bytes of the log after `place` (None: of the whole log, from offset
        `first`).

        Exact for remembered names; interpolated between places further back.
        """
        at = self._totals_at(place) if place is not None else self._totals_before(first)
        return max(0, self._messages - at.messages), max(0, self._bytes - at.bytes)

    def take_awaited(self) -> list[BatchName]:
        """Stop awaiting all names; return the confirmed names among them, in order."""
        gone = [name for name, waiting in self._awaited.items() if waiting.confirmed]
        self._awaited.clear()
        self._unchecked_count = 0
        return gone

    def clear(self, *, from_offset: int = 0) -> None:
        """Forget all names, and the totals from `from_offset` on; counting goes on, unless nothing
        counted is left.
        """
        self.take_awaited()
        if not from_offset:
            self._messages = self._bytes = 0
        self._points = [point for point in self._points if point.offset < from_offset]
        self._since_point = 0
        self._refill([])

    def __iter__(self) -> Iterator[Seen]:
        for block in self._blocks:
            yield from block.names

    def __len__(self) -> int:
        return len(self._by_name)

    def encoded_blocks(self) -> list[bytes]:
        """Checked names as bytes, oldest block first."""
        result = []
        for block in self._blocks:
            if block.names:
                if block.encoded is None:
                    block.encoded = _encode_block(block.names)
                result.append(block.encoded)
        return result

    @property
    def points(self) -> list[Totals]:
        """Running totals at some offsets further back, for measuring lag."""
        return self._points

    def load(self, blocks: Iterable[bytes], points: Iterable[Totals]) -> None:
        """Take over a snapshot's blocks and totals. Raises BadVarint (a ValueError) for damaged
        blocks.
        """
        names = [seen for block in blocks for seen in _decode_block(block)]
        self.take_awaited()
        self._points = list(points)
        self._refill(names)
        if names:
            self._messages, self._bytes = names[-1].messages, names[-1].bytes

    def _last(self) -> Seen | None:
        names = self._blocks[-1].names
        if not names and len(self._blocks) > 1:
            names = self._blocks[-2].names
        return names[-1] if names else None

    def _add(self, seen: Seen) -> None:
        block = self._blocks[-1]
        if len(block.names) >= _BLOCK_NAMES:
            block = _Block([])
            self._blocks.append(block)
        block.names.append(seen)
        block.encoded = None
        self._by_name[seen.name] = seen
        if len(self._by_name) >= MAX_NAMES + _BLOCK_NAMES:
            for old in self._blocks.popleft().names:
                self._by_name.pop(old.name, None)
        self._since_point += 1
        if self._since_point >= self._point_every:
            self._since_point = 0
            self._points.append(Totals(seen.offset, seen.messages, seen.bytes))
            if len(self._points) > _MAX_POINTS:
                del self._points[::2]
                self._point_every *= 2

    def _refill(self, names: list[Seen]) -> None:
        self._blocks = deque(
            _Block(names[i : i + _BLOCK_NAMES]) for i in range(0, len(names), _BLOCK_NAMES)
        )
        if not self._blocks:
            self._blocks.append(_Block([]))
        self._by_name = {seen.name: seen for seen in names}

    def _totals_at(self, place: Place) -> Totals:
        seen = self._by_name.get(place.name)
        if seen is not None and place.offset > seen.offset:
            return self._totals_before(place.offset + 1)  # at a later copy
        if seen is not None:
            return Totals(seen.offset, seen.messages, seen.bytes)
        waiting = self._awaited.get(place.name)
        if waiting is not None:
            return waiting.totals
        return self._interpolate(place.offset)

    def _totals_before(self, first: int) -> Totals:
        before = self._interpolate(first - 1)
        for seen in self:
            if seen.offset >= first:
                break
            before = Totals(*seen[1:])
        return before

    def _interpolate(self, offset: int) -> Totals:
        at = bisect_right(self._points, offset, key=lambda point: point.offset)
        oldest = next(iter(self), None)
        ends = self._points[at : at + 1] or ([Totals(*oldest[1:])] if oldest else [])
        low = self._points[at - 1] if at else Totals(0, 0, 0)
        if not ends or ends[0].offset <= low.offset:
            return low
        high = ends[0]
        share = (offset - low.offset) / (high.offset - low.offset)
        share = min(1.0, max(0.0, share))
        return Totals(
            offset,
            low.messages + int(share * (high.messages - low.messages)),
            low.bytes + int(share * (high.bytes - low.bytes)),
        )


def _encode_block(names: list[Seen]) -> bytes:
    numbers: dict[Series, int] = {}
    body = bytearray()
    before = names[0]
    for seen in names:
        varint.put(body, numbers.setdefault(seen.name.series, len(numbers)))
        varint.put(body, seen.name.sequence)
        varint.put(body, max(0, seen.offset - before.offset))
        varint.put(body, max(0, seen.messages - before.messages))
        varint.put(body, max(0, seen.bytes - before.bytes))
        before = seen
    out = bytearray()
    put_series(out, numbers)
    for number in (names[0].offset, names[0].messages, names[0].bytes, len(names)):
        varint.put(out, number)
    return bytes(out + body)


def _decode_block(data: bytes) -> list[Seen]:
    all_series, at = get_series(data, 0)
    offset, at = varint.get(data, at)
    messages, at = varint.get(data, at)
    byte_count, at = varint.get(data, at)
    count, at = varint.get(data, at)
    result: list[Seen] = []
    for _ in range(count):
        number, at = varint.get(data, at)
        sequence, at = varint.get(data, at)
        step, at = varint.get(data, at)
        more_messages, at = varint.get(data, at)
        more_bytes, at = varint.get(data, at)
        if number >= len(all_series):
            raise varint.BadVarint(f"series {number} of {len(all_series)}")
        offset += step
        messages += more_messages
        byte_count += more_bytes
        name = BatchName(all_series[number], sequence)
        result.append(Seen(name, offset, messages, byte_count))
    if at != len(data):
        raise varint.BadVarint(f"{len(data) - at} bytes too many")
    return result
