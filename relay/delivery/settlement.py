"""Up to where may the deliverer's position in its log advance? Pure.

The reader hands batches to flows in log order; flows settle theirs at their own pace, and one may
stand for a day. The position is the last place at or before which everything is settled: that of
the slowest flow, or where the reader is when no flow has anything outstanding. A flow that stands
costs one record here, however much waits behind it.

Which of two places comes first, only the log can say: its readers are sent back when it turns out
to hold something new among what they have read, and then meet batches again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relay.batches.batch import Flow, Place


class Point(NamedTuple):
    """A place and its number in the order in which the reader met batches."""

    number: int
    place: Place | None


class Settlement:
    """The reader's point, and for each flow with something outstanding the point before it."""

    def __init__(self, start: Place | None) -> None:
        self._reader = Point(0, start)
        self._outstanding: dict[Flow, Point] = {}

    @property
    def reader(self) -> Point:
        """The last batch that the reader met."""
        return self._reader

    def met(self, place: Place) -> Point:
        """The reader met the next batch; nothing says yet that it is settled: `outstanding` does
        when it is not, before the next call of this.
        """
        self._reader = Point(self._reader.number + 1, place)
        return self._reader

    def outstanding(self, flow: Flow, before: Point) -> None:
        """The flow has work after `before`, unless that was known already."""
        self._outstanding.setdefault(flow, before)

    def settled(self, flow: Flow, upto: Point) -> None:
        """The flow is done with all its batches up to this point, and has more to do."""
        known = self._outstanding.get(flow)
        if known is not None and upto.number > known.number:
            self._outstanding[flow] = upto

    def idle(self, flow: Flow) -> None:
        """The flow is done with all that the reader met."""
        self._outstanding.pop(flow, None)

    def point_of(self, flow: Flow) -> Point:
        """Everything of this flow at or before this point is settled."""
        return self._outstanding.get(flow, self._reader)

    def sent_back(
        self, place: Place | None, is_after: Callable[[Place, Place | None], bool]
    ) -> None:
        """The reader meets again what follows `place`, with something new in it: no flow is known
        to be done with more than what stands up to there.
        """
        self._reader = back = Point(self._reader.number + 1, place)
        for flow, point in self._outstanding.items():
            if point.place is not None and is_after(point.place, place):
                self._outstanding[flow] = back

    def position(self, safe: Callable[[Place | None], Place | None]) -> Place | None:
        """Everything at or before this place is settled. None: nothing is.

        `safe` gives a place with its own offset, or an earlier one: as the log's writer does.
        """
        points = self._outstanding.values() or (self._reader,)
        places = [safe(place) for place in {point.place for point in points}]
        earliest: Place | None = None
        for place in places:
            if place is None:
                return None
            if earliest is None or place.offset < earliest.offset:
                earliest = place
        return earliest
