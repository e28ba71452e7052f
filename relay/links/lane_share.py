"""Which lanes go over one strand of a link. Pure.

A strand is a link of its own between the same two logs: its own session, connections and position.
So what is urgent waits neither for the backlog that stands before it in the log, nor for what is
under way; and since all of a flow is in one lane, each strand is a first in, first out copy of what
the log has of its flows, as a link without lanes is.

What a mesh file has no lane for goes with the normal one, so that nothing goes nowhere: batches of
a lane that was taken out, or that only a newer file has. What is of no lane, marks, goes there too;
a canary goes over every strand, whose being alive it proves.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.lanes import NORMAL_NUMBER, lane_number
from federation.mesh import Link, Mesh

LANE_NUMBERS = 256


@dataclass(frozen=True, slots=True)
class LaneShare:
    """Of one strand, by numbers of lanes. `only`: that lane alone; None: all but `others`."""

    only: int | None = None
    others: frozenset[int] = frozenset()

    def has(self, lane: int) -> bool:
        """Whether batches of that lane go over it."""
        return lane not in self.others if self.only is None else lane == self.only

    def exceeds(self, former: LaneShare) -> bool:
        """Whether it has a lane that the former share did not have."""
        if self == former:
            return False
        return any(self.has(lane) and not former.has(lane) for lane in range(LANE_NUMBERS))


WHOLE = LaneShare()
"""Of a link without lanes."""


def share_of(mesh: Mesh, link: Link) -> LaneShare:
    """What goes over this strand in this mesh."""
    if link.lane:
        return LaneShare(lane_number(link.lane))
    others = frozenset(lane.number for lane in mesh.lanes if lane.number != NORMAL_NUMBER)
    return LaneShare(None, others) if others else WHOLE
