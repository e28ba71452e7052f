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


class SeenIncarnation(NamedTuple):
    """A packer's run by the first row that its origin's ledger has of it: row `number` of the state
    folder `state`, written at `ms` by the origin's clock.

    A packer writes nothing before it has written what the log has of the one before it. So within a
    state folder runs have the order of their rows, whatever the clock was set to; of several
    folders only the clock tells which came first.
    """

    origin: str
    incarnation: str
    state: str
    number: int
    ms: int


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
        seen: Iterable[SeenIncarnation],
        through: Iterable[tuple[FlowAt, str, int]],
        gaps: Iterable[tuple[str, FlowAt | None, int]] = (),
    ) -> Positions:
        """`seen`: any number of rows of each incarnation. `through`: (flow at a site, incarnation,
        sequence). `gaps`: (site, flow or None for all, when).
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


def in_order(seen: Iterable[SeenIncarnation]) -> list[SeenIncarnation]:
    """The first row of each incarnation and state folder, as their origins wrote them."""
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
