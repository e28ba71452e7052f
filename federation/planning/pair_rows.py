"""Figures of all pairs that an exchange joins, pairs with the same figures in one row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from federation.mesh import Exchange
from federation.planning.availability import Availability
from federation.planning.blocks import Figures
from federation.planning.pair_figures import PairFigures
from federation.planning.routes import Pair, Routes
from federation.planning.site_classes import HopKind, twin_classes, with_availability
from federation.planning.site_groups import SiteGroups

Track = Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[str, ...]]]
"""Hands out what it is given and may show how far that is."""
Wanted = Callable[[str, str], bool]
"""Whether anything is sent from the one site to the other."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """Pairs of two groups. `figures` are those of the pair `worst`, which is joined least; None:
    no way leads there. `both_ways`: the pairs the other way round have the same, and are counted.
    """

    origins: int
    destinations: int
    pairs: int
    worst: Pair
    figures: Figures | None
    best: Availability | None
    both_ways: bool = False


def wanted_by(exchanges: Sequence[Exchange], sites: Iterable[str], *, every: bool) -> Wanted:
    """Pairs that one of the exchanges joins; `every`: all pairs."""
    leaves: dict[str, int] = {}
    reaches: dict[str, int] = {}
    for site in sites:
        leaves[site] = sum(1 << n for n, one in enumerate(exchanges) if one.leaves(site))
        reaches[site] = sum(1 << n for n, one in enumerate(exchanges) if one.reaches(site))
    return lambda origin, destination: every or bool(leaves[origin] & reaches[destination])


def classes_for(
    routes: Routes, exchanges: Sequence[Exchange], groups: SiteGroups, kind: HopKind
) -> list[tuple[str, ...]]:
    """Twins of one group that the exchanges do not tell apart."""

    def colour(site: str) -> tuple[object, ...]:
        part = tuple((one.leaves(site), one.reaches(site)) for one in exchanges)
        sure = routes.sites[site] if kind is with_availability else None
        return groups.number[site], part, sure

    return twin_classes(routes, colour, kind)


def class_pairs(
    origins: Sequence[str], classes: Iterable[Sequence[str]], wanted: Wanted
) -> Iterator[tuple[str, Sequence[str], int]]:
    """For the first of a class: who stands for each class of destinations, how many pairs of the
    two classes there are.
    """
    origin = origins[0]
    for destinations in classes:
        same = destinations is origins
        pairs = len(origins) * (len(destinations) - same)
        if pairs and wanted(origin, destinations[-1]):
            yield destinations[-1], destinations, pairs


def pair_rows(
    routes: Routes,
    exchanges: Sequence[Exchange],
    groups: SiteGroups,
    wanted: Wanted,
    track: Track = iter,
) -> list[PairRow]:
    """All wanted pairs, the worst joined first."""
    figures = PairFigures(routes)
    classes = classes_for(routes, exchanges, groups, with_availability)
    found: dict[tuple[object, ...], PairRow] = {}
    for origins in track(classes):
        origin = origins[0]
        from_here = figures.figures_from(origin)
        for destination, _, pairs in class_pairs(origins, classes, wanted):
            row = _row(groups, (origin, destination), pairs, from_here.get(destination))
            key = _key(row)
            before = found.get(key)
            found[key] = row if before is None else _together(before, row)
    return sorted(_both_ways(found), key=_worst_first)


def _row(groups: SiteGroups, pair: Pair, pairs: int, figures: Figures | None) -> PairRow:
    ends = groups.number[pair[0]], groups.number[pair[1]]
    return PairRow(*ends, pairs, pair, figures, figures.availability if figures else None)


def _key(row: PairRow) -> tuple[object, ...]:
    figures = row.figures
    shape = figures and (figures.hops, figures.link_disjoint, figures.site_disjoint)
    return row.origins, row.destinations, shape


def _together(first: PairRow, other: PairRow) -> PairRow:
    worst = first
    pairs = first.pairs + other.pairs
    if first.figures is None or other.figures is None:
        return replace(first, pairs=pairs)
    if other.figures.availability.part < first.figures.availability.part:
        worst = other
    best = max((first.best, other.best), key=lambda one: one.part if one else 0.0)
    return replace(worst, pairs=pairs, best=best)


def _both_ways(found: dict[tuple[object, ...], PairRow]) -> Iterator[PairRow]:
    done: set[tuple[object, ...]] = set()
    for key, row in found.items():
        if key in done:
            continue
        back_key = (row.destinations, row.origins, key[2])
        back = found.get(back_key)
        if back is not None and back_key != key and _same(row, back):
            done.add(back_key)
            yield replace(row, pairs=row.pairs + back.pairs, both_ways=True)
        else:
            yield row


def _same(row: PairRow, back: PairRow) -> bool:
    def parts(one: PairRow) -> tuple[float, ...]:
        if one.figures is None or one.best is None:
            return ()
        # Products in another order differ in the last digits, samples within their error.
        error = one.figures.availability.standard_error
        digits = 2 if error else 12
        return round(one.figures.availability.part, digits), round(one.best.part, digits)

    return row.pairs == back.pairs and parts(row) == parts(back)


def _worst_first(row: PairRow) -> tuple[float, int, int]:
    part = row.figures.availability.part if row.figures else -1.0
    return round(part, 12), row.origins, row.destinations
