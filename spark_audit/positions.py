"""How far has each site got with each origin's batches? Tells *lost* from *pending*.

Every log has one origin's batches in the order in which the origin packed them: by incarnation,
then by the sequence over the whole incarnation. `through` rows of stage `delivered` say up to which
of them a site is done with whatever its log has. What stands before that and has no row there was
never in its log, and will not come by itself any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SEQUENCE_BITS = 40
"""A place is rank << 40 | sequence over the incarnation; with 9 bits more for the entry it fits."""


@dataclass(slots=True)
class Positions:
    """Origins and sites are cluster IDs, incarnations hexadecimal."""

    rank: dict[tuple[str, str], int] = field(default_factory=dict)
    """(origin, incarnation) -> its number among the origin's, from 1."""
    passed: dict[tuple[str, str], int] = field(default_factory=dict)
    """(site, origin) -> the last place that it is done with."""

    @classmethod
    def of(
        cls,
        seen: Iterable[tuple[str, str, int]],
        through: Iterable[tuple[str, str, str, int]],
    ) -> Positions:
        """`seen`: (origin, incarnation, when its first row was recorded there). `through`: (site,
        origin, incarnation, sequence).
        """
        first_ms: dict[tuple[str, str], int] = {}
        for origin, incarnation, ms in seen:
            first_ms[origin, incarnation] = min(ms, first_ms.get((origin, incarnation), ms))
        found = cls()
        count: dict[str, int] = {}
        for origin, incarnation in sorted(first_ms, key=lambda one: (one[0], first_ms[one])):
            count[origin] = count.get(origin, 0) + 1
            found.rank[origin, incarnation] = count[origin]
        for site, origin, incarnation, sequence in through:
            rank = found.rank.get((origin, incarnation))
            if rank is None:
                # Its origin does not tell when it was: another clock is not asked instead. What
                # packed nothing has nothing to lose.
                continue
            place = rank << SEQUENCE_BITS | sequence
            found.passed[site, origin] = max(place, found.passed.get((site, origin), place))
        return found
