"""Up to where may the deliverer's position in its log advance? Pure.

The reader hands batches to flows in log order; flows settle theirs at their own pace, and one may
stand for a day. The position is the last place at or before which everything is settled: that of
the slowest flow, or where the reader is when no flow has anything outstanding. A flow that stands
costs one record here, however much waits behind it.

Which of two places comes first, only the log can say: its readers are sent back when it turns out
to hold something new among what they have read, and then meet batches again.

Beside the position, which is one for all, it is known of each flow up to which batch it is settled
(`through`): what an audit needs to tell a message that was passed over from one that is on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relay.batches.batch import Flow, Place

IsAfter = Callable[[Place, Place | None], bool]
"""Whether a place comes after another one, which was read back from the log (None: the start)."""


class Point(NamedTuple):
    """A place and its number in the order in which the reader met batches."""

    number: int
    place: Place | None
    whole: int = -1
    """The batch's number over its whole incarnation; -1: not known, or it is void."""


class Settlement:
    """The reader's point, and for each flow with something outstanding the point before it."""

    def __init__(self, start: Place | None) -> None:
        self._reader = Point(0, start)
        self._outstanding: dict[Flow, Point] = {}
        self._met: dict[Flow, Point] = {}
        """The last batch of each flow that the reader met."""
        self._done: dict[Flow, Point] = {}
        """Of flows with something outstanding: the last batch that is settled."""
        self._back: tuple[Point, IsAfter] | None = None
        self.times_sent_back = 0

    def begins(self, place: Place) -> None:
        """Nothing was met yet, and nothing up to this place will be."""
        self._reader = Point(0, place)

    @property
    def reader(self) -> Point:
        """The last batch that the reader met."""
        return self._reader

    def met(self, place: Place, whole: int = -1) -> Point:
        """The reader met the next batch; nothing says yet that it is not settled: `outstanding`
        does, before this is called for a batch that is work for its flow.
        """
        self._reader = point = Point(self._reader.number + 1, place, whole)
        if whole >= 0:
            self._met[place.name.series.flow] = point
        return point

    def outstanding(self, flow: Flow, before: Point) -> None:
        """The flow has work after `before`, unless that was known already."""
        if flow not in self._outstanding:
            self._outstanding[flow] = before
            if (done := self._met.get(flow)) is not None:
                self._done[flow] = done

    def settled(self, flow: Flow, upto: Point) -> None:
        """The flow is done with all its batches up to this point, and has more to do."""
        known = self._outstanding.get(flow)
        if known is None or upto.number <= known.number or self._is_stale(upto):
            return
        self._outstanding[flow] = upto
        if upto.whole >= 0:
            self._done[flow] = upto

    def gone(self, flow: Flow, upto: Place) -> None:
        """The log has nothing any more up to this place, and the flow goes on without it."""
        known = self._outstanding.get(flow)
        if known is not None:
            self._outstanding[flow] = known._replace(place=upto, whole=-1)

    def idle(self, flow: Flow) -> None:
        """The flow is done with all that the reader met."""
        self._outstanding.pop(flow, None)
        self._done.pop(flow, None)

    def point_of(self, flow: Flow) -> Point:
        """Everything of this flow at or before this point is settled."""
        return self._outstanding.get(flow, self._reader)

    def through(self) -> dict[Flow, Point]:
        """Of each flow: the last batch up to which all of it that the reader met is settled.
        Nothing of a flow of which no batch was met since the start, or since it was sent back.
        """
        settled = {flow: p for flow, p in self._met.items() if flow not in self._outstanding}
        return settled | self._done

    def sent_back(self, place: Place | None, is_after: IsAfter) -> None:
        """The reader meets again what follows `place`, with something new in it: no flow is known
        to be done with more than what stands up to there.
        """
        self._reader = back = Point(self._reader.number + 1, place)
        self.times_sent_back += 1
        if self._back is not None and place is not None and is_after(place, self._back[0].place):
            self._back = back._replace(place=self._back[0].place), is_after
        else:
            self._back = back, is_after
        for flow, point in self._outstanding.items():
            if point.place is not None and is_after(point.place, place):
                self._outstanding[flow] = back
        for points in (self._met, self._done):
            for flow, point in list(points.items()):
                if point.place is not None and is_after(point.place, place):
                    del points[flow]

    def _is_stale(self, point: Point) -> bool:
        """Whether it was met before the reader was sent back, and stands after where it was sent:
        something that is new may stand before it.
        """
        if self._back is None or point.number > self._back[0].number:
            return False
        back, is_after = self._back
        return point.place is not None and is_after(point.place, back.place)

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
