"""Sets of batch names: the names that a log has, or that a deliverer is done with.

Sequences are dense inside a series, so the names of a series are a few intervals however many there
are: a flat sorted list of bounds, `[start, end, start, end, ...]`, ends exclusive. A sequence is in
the set if an odd number of bounds lies at or below the sequence. The usual case, the next number of
a series, only raises the last bound.

Bytes, for the snapshot and for a link's welcome::

    1       version (1)
    table   of the series
    then for each series of the table:
      varint  number of intervals, then each:
                varint  names missing since the end of the one before (for the first: since 0)
                varint  names in it, at least 1

A table of series writes each series once; names then refer to a series by number::

    varint  number of texts, then each: varint length, UTF-8
    varint  number of series, then each:
              varint  origin (number of the text)        8  incarnation
              varint  exchange (number of the text)      varint  lane
              varint  number of destinations, then each: varint number of the text

Cluster IDs and exchanges recur in hundreds of series; the table of texts keeps a set of names small
that crosses the WAN at every welcome.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from relay.batches import varint
from relay.batches.batch import BatchName, Series

INCARNATION_BYTES = 8
_VERSION = 1


class BadNameSet(ValueError):
    """Bytes are no set of names that this node can read."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a set of batch names: {reason}")
        self.reason = reason


class NameSet:
    """A mutable set of `BatchName`. Not safe to change while one of its iterators runs."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[Series, list[int]] = {}

    def add(self, name: BatchName) -> bool:
        """Add a name; return True if the name was new."""
        series, sequence = name
        bounds = self._bounds.get(series)
        if bounds is None:
            if sequence < 0:
                raise ValueError(f"sequences start at 0: {name}")
            self._bounds[series] = [sequence, sequence + 1]
            return True
        if bounds[-1] == sequence:
            bounds[-1] = sequence + 1
            return True
        if sequence < 0:
            raise ValueError(f"sequences start at 0: {name}")
        at = bisect_right(bounds, sequence)
        if at % 2:
            return False
        _add_range(bounds, sequence, sequence + 1)
        return True

    def add_range(self, series: Series, start: int, end: int) -> None:
        """Add the sequences from `start` to `end` (exclusive)."""
        if not 0 <= start <= end:
            raise ValueError(f"no range: {start} to {end}")
        if start < end:
            _add_range(self._bounds.setdefault(series, []), start, end)

    def discard(self, name: BatchName) -> bool:
        """Remove a name; return True if the name was there."""
        series, sequence = name
        bounds = self._bounds.get(series)
        if bounds is None:
            return False
        at = bisect_right(bounds, sequence)
        if at % 2 == 0:
            return False
        kept = [bounds[at - 1], sequence, sequence + 1, bounds[at]]
        if kept[2] == kept[3]:
            del kept[2:]
        if kept[0] == kept[1]:
            del kept[:2]
        bounds[at - 1 : at + 1] = kept
        if not bounds:
            del self._bounds[series]
        return True

    def merge(self, other: NameSet) -> None:
        """Add all of `other`."""
        for series, theirs in other._bounds.items():
            mine = self._bounds.get(series)
            if mine is None:
                self._bounds[series] = theirs.copy()
                continue
            for i in range(0, len(theirs), 2):
                _add_range(mine, theirs[i], theirs[i + 1])

    def copy(self) -> NameSet:
        """An independent copy."""
        result = NameSet()
        result._bounds = {series: bounds.copy() for series, bounds in self._bounds.items()}
        return result

    def series(self) -> list[Series]:
        """Every series with a name in the set."""
        return list(self._bounds)

    def intervals(self, series: Series) -> list[tuple[int, int]]:
        """Intervals of names, (first, end exclusive), in order; empty for an unknown series."""
        bounds = self._bounds.get(series, [])
        return list(zip(bounds[::2], bounds[1::2], strict=True))

    def last(self, series: Series) -> int:
        """The highest sequence in the set, -1 when there is none."""
        bounds = self._bounds.get(series)
        return bounds[-1] - 1 if bounds else -1

    def forget(self, gone: Callable[[Series], bool]) -> int:
        """Drop every series for which `gone` is true (an incarnation older than the window); return
        their number.
        """
        dropped = [series for series in self._bounds if gone(series)]
        for series in dropped:
            del self._bounds[series]
        return len(dropped)

    def is_within(self, other: NameSet) -> bool:
        """True if `other` has all of these names."""
        for series, bounds in self._bounds.items():
            theirs = other._bounds.get(series)
            if theirs is None:
                return False
            for start, end in zip(bounds[::2], bounds[1::2], strict=True):
                at = bisect_right(theirs, start)
                if at % 2 == 0 or theirs[at] < end:
                    return False
        return True

    def interval_count(self) -> int:
        """Number of intervals over all series: the measure of the set's memory and bytes."""
        return sum(len(bounds) for bounds in self._bounds.values()) // 2

    def __contains__(self, name: BatchName) -> bool:
        bounds = self._bounds.get(name[0])
        return bounds is not None and bisect_right(bounds, name[1]) % 2 == 1

    def __len__(self) -> int:
        return sum(sum(bounds[1::2]) - sum(bounds[::2]) for bounds in self._bounds.values())

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __iter__(self) -> Iterator[BatchName]:
        for series in self._bounds:
            for start, end in self.intervals(series):
                for sequence in range(start, end):
                    yield BatchName(series, sequence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NameSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"NameSet({len(self)} names in {self.interval_count()} intervals)"

    def encode(self) -> bytes:
        """Encode as drawn above."""
        out = bytearray([_VERSION])
        put_series(out, self._bounds)
        for bounds in self._bounds.values():
            varint.put(out, len(bounds) // 2)
            end_before = 0
            for start, end in zip(bounds[::2], bounds[1::2], strict=True):
                varint.put(out, start - end_before)
                varint.put(out, end - start)
                end_before = end
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> NameSet:
        """Decode a set, which may come from a neighbour. Raises BadNameSet."""
        if not data or data[0] != _VERSION:
            raise BadNameSet(f"version {data[0]}" if data else "empty")
        result = cls()
        try:
            all_series, at = get_series(data, 1)
            for series in all_series:
                if series in result._bounds:
                    raise BadNameSet(f"series twice: {series}")
                bounds, at = _get_bounds(data, at)
                result._bounds[series] = bounds
        except varint.BadVarint as error:
            raise BadNameSet(str(error)) from error
        if at != len(data):
            raise BadNameSet(f"{len(data) - at} bytes too many")
        return result


def _add_range(bounds: list[int], start: int, end: int) -> None:
    # Everything from the interval that touches `start` to the one that touches `end` becomes one.
    # bisect_left(x) is bisect_right(x - 1): an interval that ends exactly at `start` is joined.
    low = bisect_right(bounds, start - 1)
    high = bisect_right(bounds, end)
    joined: list[int] = []
    if low % 2 == 0:
        joined.append(start)
    if high % 2 == 0:
        joined.append(end)
    bounds[low:high] = joined


def _get_bounds(data: bytes, at: int) -> tuple[list[int], int]:
    count, at = varint.get(data, at)
    if not count:
        raise BadNameSet("a series without a name")
    bounds: list[int] = []
    end = 0
    for i in range(count):
        missing, at = varint.get(data, at)
        names, at = varint.get(data, at)
        if not names or (i and not missing):
            raise BadNameSet("an interval that is empty or touches the one before")
        bounds.append(end + missing)
        end += missing + names
        bounds.append(end)
    return bounds, at


def put_series(out: bytearray, all_series: Iterable[Series]) -> None:
    """Append a table of series, which are numbered in the given order from 0."""
    texts: dict[str, int] = {}
    body = bytearray()
    count = 0
    for series in all_series:
        if len(series.incarnation) != INCARNATION_BYTES:
            raise ValueError(f"an incarnation has {INCARNATION_BYTES} bytes: {series}")
        count += 1
        varint.put(body, texts.setdefault(series.origin, len(texts)))
        body += series.incarnation
        varint.put(body, texts.setdefault(series.exchange, len(texts)))
        varint.put(body, series.lane)
        varint.put(body, len(series.destinations))
        for destination in series.destinations:
            varint.put(body, texts.setdefault(destination, len(texts)))
    varint.put(out, len(texts))
    for text in texts:
        varint.put_text(out, text)
    varint.put(out, count)
    out += body


def get_series(data: bytes, at: int) -> tuple[list[Series], int]:
    """Read the table at `at`; return the series and the position behind the table. Raises BadVarint
    (a ValueError).
    """
    text_count, at = varint.get(data, at)
    texts: list[str] = []
    for _ in range(text_count):
        text, at = varint.get_text(data, at)
        texts.append(text)
    series_count, at = varint.get(data, at)
    result: list[Series] = []
    for _ in range(series_count):
        origin, at = _get_word(data, at, texts)
        incarnation = data[at : at + INCARNATION_BYTES]
        if len(incarnation) < INCARNATION_BYTES:
            raise varint.BadVarint("cut off")
        exchange, at = _get_word(data, at + INCARNATION_BYTES, texts)
        lane, at = varint.get(data, at)
        destination_count, at = varint.get(data, at)
        destinations = []
        for _ in range(destination_count):
            destination, at = _get_word(data, at, texts)
            destinations.append(destination)
        result.append(Series(origin, bytes(incarnation), exchange, lane, tuple(destinations)))
    return result, at


def _get_word(data: bytes, at: int, texts: list[str]) -> tuple[str, int]:
    number, at = varint.get(data, at)
    if number >= len(texts):
        raise varint.BadVarint(f"text {number} of {len(texts)}")
    return texts[number], at
