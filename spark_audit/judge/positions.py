"""How far has each site got with each origin's batches? Tells *lost* from *pending*.

Every log has a flow's batches in the order in which its origin packed them: by incarnation, then by
the sequence over the whole incarnation. `through` rows of stage `delivered` say up to which of them
a site is done with whatever its log has, and so does each delivered row for the batches before its
own. What stands before that and has no row there was never in its log, and will not come by itself
any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SEQUENCE_BITS = 40
"""A place is rank << 40 | sequence over the incarnation; with 9 bits more for the entry it fits."""


class FlowAt(NamedTuple):
    """A flow as a site gets it. Site and origin are cluster IDs."""

    site: str
    origin: str
    exchange: str
    lane: int


@dataclass(slots=True)
class Positions:
    """Origins and sites are cluster IDs, incarnations hexadecimal."""

    rank: dict[tuple[str, str], int] = field(default_factory=dict)
    """(origin, incarnation) -> its number among the origin's, from 1."""
    passed: dict[FlowAt, int] = field(default_factory=dict)
    """The last place of the flow that the site is done with."""
    gaps: dict[FlowAt, int] = field(default_factory=dict)
    """When (ms) a site's log was found to lack what was still to be delivered, the last time."""
    site_gaps: dict[str, int] = field(default_factory=dict)
    """The same where it concerns all flows of the site."""

    @classmethod
    def of(
        cls,
        seen: Iterable[tuple[str, str, int]],
        through: Iterable[tuple[FlowAt, str, int]],
        gaps: Iterable[tuple[str, FlowAt | None, int]] = (),
    ) -> Positions:
        """`seen`: (origin, incarnation, when its first row was recorded there). `through`: (flow
        at a site, incarnation, sequence). `gaps`: (site, flow or None for all, when).
        """
        first_ms: dict[tuple[str, str], int] = {}
        for origin, incarnation, ms in seen:
            first_ms[origin, incarnation] = min(ms, first_ms.get((origin, incarnation), ms))
        found = cls()
        count: dict[str, int] = {}
        for origin, incarnation in sorted(first_ms, key=lambda one: (one[0], first_ms[one])):
            count[origin] = count.get(origin, 0) + 1
            found.rank[origin, incarnation] = count[origin]
        for flow, incarnation, sequence in through:
            rank = found.rank.get((flow.origin, incarnation))
            if rank is None:
                # Its origin does not tell when it was: another clock is not asked instead. What
                # packed nothing has nothing to lose.
                continue
            place = rank << SEQUENCE_BITS | sequence
            found.passed[flow] = max(place, found.passed.get(flow, place))
        for site, of_flow, ms in gaps:
            if of_flow is None:
                found.site_gaps[site] = max(ms, found.site_gaps.get(site, ms))
            else:
                found.gaps[of_flow] = max(ms, found.gaps.get(of_flow, ms))
        return found
