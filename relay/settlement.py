"""Up to where may the deliverer's position in its log advance? Pure.

The reader hands batches to flows in log order; flows settle theirs at their own pace, and one may
stand for a day. The position is the last place at or before which everything is settled: that of
the slowest flow, or where the reader is when no flow has anything outstanding. A flow that stands
costs one record here, however much waits behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from relay.batch import Flow, Place


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

    @property
    def position(self) -> Place | None:
        """Everything at or before this place is settled. None: nothing is."""
        return min(self._outstanding.values(), default=self._reader, key=lambda p: p.number).place
