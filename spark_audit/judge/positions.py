"""Positions of each site in each origin's batches, which separate *lost* from *pending*.

Every log has a flow's batches in packing order: by incarnation, then by the sequence over the whole
incarnation. A `through` row of stage `delivered` names the batch up to which a site is done with
its log, and each delivered row implies the same for earlier batches. A batch before that position
without a row was never in the site's log, and will not come by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SEQUENCE_BITS = 40
"""Bits of the sequence in a place: rank << 40 | sequence over the incarnation, which leaves room
for 9 bits of the entry."""


class SeenIncarnation(NamedTuple):
    """Incarnation of a packer by its first row in the origin's ledger: row `number` of the state
    folder `state`, written at `ms` by the origin's clock.

    A packer writes no row before all rows for the log of its predecessor. So within a state folder
    incarnations have the order of their rows, whatever the clock; between folders only the clock
    gives an order.
    """

    origin: str
    incarnation: str
    state: str
    number: int
    ms: int


class FlowAt(NamedTuple):
    """Flow as a site receives it. Site and origin are cluster IDs."""

    site: str
    origin: str
    exchange: str
    lane: int


@dataclass(slots=True)
class Positions:
    """Positions of all sites. Origins and sites are cluster IDs, incarnations hexadecimal."""

    rank: dict[tuple[str, str], int] = field(default_factory=dict)
    """(origin, incarnation) -> number among the origin's incarnations, from 1."""
    passed: dict[FlowAt, int] = field(default_factory=dict)
    """Last place of the flow that the site is done with."""
    gaps: dict[FlowAt, int] = field(default_factory=dict)
    """Last time (ms) at which a site's log was found to lack undelivered entries."""
    site_gaps: dict[str, int] = field(default_factory=dict)
    """Last time (ms) of such a gap in all flows of the site."""

    @classmethod
    def of(
        cls,
        seen: Iterable[SeenIncarnation],
        through: Iterable[tuple[FlowAt, str, int]],
        gaps: Iterable[tuple[str, FlowAt | None, int]] = (),
    ) -> Positions:
        """Build from `seen` (any number of rows per incarnation), `through` (flow at a site,
        incarnation, sequence) and `gaps` (site, flow or None for all, time).
        """
        found = cls()
        count: dict[str, int] = {}
        for one in in_order(seen):
            if (one.origin, one.incarnation) not in found.rank:
                count[one.origin] = count.get(one.origin, 0) + 1
                found.rank[one.origin, one.incarnation] = count[one.origin]
        for flow, incarnation, sequence in through:
            rank = found.rank.get((flow.origin, incarnation))
            if rank is None:
                # The origin's ledger lacks this incarnation, and another clock is no substitute.
                # An incarnation that packed nothing has nothing to lose.
                continue
            place = rank << SEQUENCE_BITS | sequence
            found.passed[flow] = max(place, found.passed.get(flow, place))
        for site, of_flow, ms in gaps:
            if of_flow is None:
                found.site_gaps[site] = max(ms, found.site_gaps.get(site, ms))
            else:
                found.gaps[of_flow] = max(ms, found.gaps.get(of_flow, ms))
        return found


def in_order(seen: Iterable[SeenIncarnation]) -> list[SeenIncarnation]:
    """Return the first row of each incarnation and state folder, in the origins' order."""
    first: dict[tuple[str, str, str], SeenIncarnation] = {}
    began: dict[tuple[str, str], SeenIncarnation] = {}
    for one in seen:
        run, folder = (one.origin, one.incarnation, one.state), (one.origin, one.state)
        first[run] = min(one, first.get(run, one), key=_number)
        began[folder] = min(one, began.get(folder, one), key=_number)

    def place(one: SeenIncarnation) -> tuple[str, int, str, int]:
        return one.origin, began[one.origin, one.state].ms, one.state, one.number

    return sorted(first.values(), key=place)


def _number(one: SeenIncarnation) -> tuple[int, int]:
    return one.number, one.ms
