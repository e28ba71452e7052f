"""The deliverer's position in its log: how far it may advance. Pure.

The reader hands batches to flows in log order; flows settle theirs at their own pace, and a flow
may stand for a day. The position is the last place at or before which everything is settled: the
slowest flow's, or the reader's when no flow has anything outstanding. A flow that stands costs one
record here, however much waits behind; so does each batch of which messages are deferred.

Only the log knows the order of two places: its readers are sent back when something new turns up
among batches already read, and then meet batches again.

Besides the common position, `through` gives the batch up to which each flow is settled: an audit
needs that to tell a message passed over from a message on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relay.batches.batch import BatchName, Flow, Place

IsAfter = Callable[[Place, Place | None], bool]
"""True if a place comes after another place, which was read back from the log (None: the start)."""


class Point(NamedTuple):
    """Place, and its number in the order in which the reader met batches."""

    number: int
    place: Place | None
    whole: int = -1
    """The batch's number over its whole incarnation; -1 if unknown, or if the batch is void."""


class PassedBatch(NamedTuple):
    """Batch that its flow has passed, though some of its messages are not settled."""

    before: Place | None
    """Place before the batch, or before the first piece of its message; None: the log's start."""
    done: Point | None
    """Last batch of the flow before, or None if the reader met none."""


class Settlement:
    """The reader's point, for each flow with outstanding work the point before, and the batches of
    which messages are deferred.
    """

    def __init__(self, start: Place | None) -> None:
        self._reader = Point(0, start)
        self._outstanding: dict[Flow, Point] = {}
        self._met: dict[Flow, Point] = {}
        """Last batch of each flow that the reader met."""
        self._done: dict[Flow, Point] = {}
        """Last settled batch of each flow with outstanding work."""
        self._deferred: dict[Flow, dict[BatchName, PassedBatch]] = {}
        """Batches that their flows have passed, of each flow in the order of the log."""
        self._back: tuple[Point, IsAfter] | None = None
        self.times_sent_back = 0

    def begins(self, place: Place) -> None:
        """Begin at this place: nothing up to here was met, or will be."""
        self._reader = Point(0, place)

    @property
    def reader(self) -> Point:
        """Last batch that the reader met."""
        return self._reader

    def met(self, place: Place, whole: int = -1) -> Point:
        """Note the batch that the reader met next, settled unless `outstanding` was called before
        for a batch that is work for its flow.
        """
        self._reader = point = Point(self._reader.number + 1, place, whole)
        if whole >= 0:
            self._met[place.name.series.flow] = point
        return point

    def outstanding(self, flow: Flow, before: Point) -> None:
        """Note that the flow has work after `before`, unless already noted."""
        if flow not in self._outstanding:
            self._outstanding[flow] = before
            if (done := self._met.get(flow)) is not None:
                self._done[flow] = done

    def settled(self, flow: Flow, upto: Point) -> None:
        """Note that the flow has settled all its batches up to this point, and has more to do."""
        known = self._outstanding.get(flow)
        if known is None or upto.number <= known.number or self._is_stale(upto):
            return
        self._outstanding[flow] = upto
        if upto.whole >= 0:
            self._done[flow] = upto

    def defer(self, flow: Flow, name: BatchName, before: Place | None) -> None:
        """Note that the flow passes this batch, which is its next, with messages unsettled."""
        batches = self._deferred.setdefault(flow, {})
        if name not in batches:
            batches[name] = PassedBatch(before, self._done.get(flow))

    def end_deferral(self, flow: Flow, name: BatchName) -> None:
        """Note that a batch has no deferred messages any more."""
        batches = self._deferred.get(flow, {})
        batches.pop(name, None)
        if not batches:
            self._deferred.pop(flow, None)

    def gone(self, flow: Flow, upto: Place) -> None:
        """Note that the log lost everything up to this place, and the flow goes on behind."""
        known = self._outstanding.get(flow)
        if known is not None:
            self._outstanding[flow] = known._replace(place=upto, whole=-1)
        batches = self._deferred.get(flow, {})
        for name, batch in batches.items():
            if batch.before is None or batch.before.offset < upto.offset:
                batches[name] = batch._replace(before=upto)

    def idle(self, flow: Flow) -> None:
        """Note that the flow has settled everything that the reader met."""
        self._outstanding.pop(flow, None)
        self._done.pop(flow, None)

    def point_of(self, flow: Flow) -> Point:
        """Point at or before which everything of this flow is settled or deferred."""
        return self._outstanding.get(flow, self._reader)

    def settled_to(self, flow: Flow) -> Place | None:
        """Place at or before which everything of this flow is settled; None: the log's start."""
        for batch in self._deferred.get(flow, {}).values():
            return batch.before
        return self.point_of(flow).place

    def through(self) -> dict[Flow, Point]:
        """Last batch of each flow up to which everything the reader met is settled. A flow without
        a batch since the start, or since the reader was sent back, is missing.
        """
        through = {flow: p for flow, p in self._met.items() if flow not in self._outstanding}
        through |= self._done
        for flow, batches in self._deferred.items():
            done = next(iter(batches.values())).done
            if done is None:
                through.pop(flow, None)
            else:
                through[flow] = done
        return through

    def sent_back(self, place: Place | None, is_after: IsAfter) -> None:
        """Send the reader back to `place`, since the log holds something new behind: no flow counts
        as settled beyond that place.
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
        for batches in self._deferred.values():
            for name, (before, done) in batches.items():
                if done is not None and done.place and is_after(done.place, place):
                    batches[name] = PassedBatch(before, None)

    def _is_stale(self, point: Point) -> bool:
        """True if the point was met before the reader was sent back, and stands after that place:
        new batches may stand before the point.
        """
        if self._back is None or point.number > self._back[0].number:
            return False
        back, is_after = self._back
        return point.place is not None and is_after(point.place, back.place)

    def position(self, safe: Callable[[Place | None], Place | None]) -> Place | None:
        """Last place at or before which everything is settled, or None if there is none.

        `safe` gives a place with its own offset, or an earlier place, as the log's writer does.
        """
        points = self._outstanding.values() or (self._reader,)
        unsettled = {point.place for point in points}
        for batches in self._deferred.values():
            before = [batch.before for batch in batches.values()]
            # The first is the earliest, unless the reader has met batches in another order since.
            unsettled.update(before if self.times_sent_back else before[:1])
        places = [safe(place) for place in unsettled]
        earliest: Place | None = None
        for place in places:
            if place is None:
                return None
            if earliest is None or place.offset < earliest.offset:
                earliest = place
        return earliest
