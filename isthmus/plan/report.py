"""What `isthmus plan` tells: everything as one JSON object, which tables and drawings are made of.

Rows speak of groups of sites by their labels; `groups` says which sites these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from federation.mesh import Exchange, Mesh
from federation.planning.availability import Availability
from federation.planning.blocks import Figures
from federation.planning.disk_need import DiskNeed, PublishRates, disk_need
from federation.planning.pair_figures import PairFigures, PairRow, Wanted, pair_rows, wanted_by
from federation.planning.routes import Routes, by_routes, routes_of
from federation.planning.single_points import PointRow, SinglePointFinder, point_rows
from federation.planning.site_classes import SiteGroups, site_groups
from isthmus.plan.assumed import assumed_of
from isthmus.plan.links import link_rows, link_told, span
from isthmus.progress import shown

ASKED_UNCERTAIN = 28
"""Links that may fail up to which a single pair is worked out exactly: a second or so."""

Told = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """What is expected to be published: rates, bytes of a body, how much smaller batches get."""

    rates: PublishRates
    size: int
    compression: float = 1.0


def plan_of(
    mesh: Mesh, *, sites: Sequence[str] = (), each: bool = False, load: Load | None = None
) -> Told:
    """The whole plan but for what `apply` would change. `sites`: one, and only what concerns it is
    told of pairs; several, and only the pairs among them. `each`: no groups.
    """
    groups = site_groups(mesh, each=each, apart=sites)
    return {
        "mesh": mesh.name,
        "revision": mesh.revision,
        "rule": mesh.rule.value,
        "outage_window_s": mesh.outage_window_s,
        "retention_s": mesh.retention_s,
        "groups": [
            {
                "label": group.label,
                "sites": list(group.sites),
                "availability": span(mesh.sites[site].availability for site in group.sites),
            }
            for group in groups.groups
        ],
        "links": [link_told(link) for link in mesh.links],
        "link_groups": list(link_rows(mesh, groups)),
        "exchanges": [_exchange(mesh, one, groups) for one in mesh.exchanges.values()],
        "routes": [
            _routes(mesh, kept_from, exchanges, groups, sites)
            for kept_from, exchanges in by_routes(mesh).items()
        ],
        "asked": list(_asked(mesh, sites)) if len(sites) == 2 else [],
        "disk": None if load is None else _disk(mesh, groups, load),
    }


# -- who gets what --------------------------------------------------------------------------------


def _exchange(mesh: Mesh, exchange: Exchange, groups: SiteGroups) -> Told:
    origins = [site for site in mesh.sites if exchange.leaves(site)]
    destinations = [site for site in mesh.sites if exchange.reaches(site)]
    wants = {
        site: list(mesh.sites[site].wants[exchange.name])
        for site in destinations
        if exchange.name in mesh.sites[site].wants
    }
    return {
        "name": exchange.name,
        "type": exchange.type,
        "mode": exchange.mode.value,
        "keys": list(exchange.keys),
        "from": origins,
        "from_said": groups.in_words(origins),
        "to": destinations,
        "to_said": groups.in_words(destinations),
        "wants": wants,
        "narrowed_said": groups.in_words(wants) if wants else "",
        "never_via": list(exchange.never_via),
        "never_via_said": groups.in_words(exchange.never_via) if exchange.never_via else "",
    }


# -- how well sites are joined --------------------------------------------------------------------


def _routes(
    mesh: Mesh,
    kept_from: frozenset[str],
    exchanges: Sequence[Exchange],
    groups: SiteGroups,
    sites: Sequence[str],
) -> Told:
    routes = routes_of(mesh, kept_from)
    wanted = _concerning(wanted_by(exchanges, mesh.sites, every=not mesh.exchanges), sites)
    pairs = pair_rows(
        routes, exchanges, groups, wanted, lambda classes: shown(classes, "pairs of sites")
    )
    points = point_rows(
        routes, exchanges, groups, wanted, lambda classes: shown(classes, "single points")
    )
    return {
        "exchanges": [exchange.name for exchange in exchanges],
        "never_via": sorted(kept_from),
        "pairs": [_pair_row(row, groups) for row in pairs],
        "single_points": [_point_row(row, groups) for row in points],
    }


def _concerning(wanted: Wanted, sites: Sequence[str]) -> Wanted:
    chosen = frozenset(sites)
    if not chosen:
        return wanted
    if len(chosen) == 1:
        return lambda a, b: (a in chosen or b in chosen) and wanted(a, b)
    return lambda a, b: a in chosen and b in chosen and wanted(a, b)


def _pair_row(row: PairRow, groups: SiteGroups) -> Told:
    labels = groups.groups[row.origins].label, groups.groups[row.destinations].label
    said: Told = {
        "from": labels[0],
        "to": labels[1],
        "both_ways": row.both_ways or row.origins == row.destinations,
        "pairs": row.pairs,
        "worst": list(row.worst),
    }
    said |= _figures(row.figures)
    said["best_availability"] = row.best and _availability(row.best)
    return said


def _figures(figures: Figures | None) -> Told:
    if figures is None:
        return {"hops": None, "link_disjoint": 0, "site_disjoint": 0, "availability": None}
    return {
        "hops": figures.hops,
        "link_disjoint": figures.link_disjoint,
        "site_disjoint": figures.site_disjoint,
        "availability": _availability(figures.availability),
    }


def _availability(found: Availability) -> Told:
    return {"part": found.part, "standard_error": found.standard_error, "exact": found.is_exact}


def _point_row(row: PointRow, groups: SiteGroups) -> Told:
    def label(number: int) -> str:
        return groups.groups[number].label

    return {
        "kind": "site" if len(row.groups) == 1 else "link",
        "groups": [label(number) for number in row.groups],
        "count": row.count,
        "example": list(row.example),
        "pairs_each": row.pairs,
        "separates": [
            {"from": label(origins), "to": label(destinations), "pairs": pairs}
            for (origins, destinations), pairs in row.between.items()
        ],
    }


def _asked(mesh: Mesh, sites: Sequence[str]) -> Iterator[Told]:
    """All about one pair, either way, for each set of exchanges that have routes of their own."""
    for origin, destination in (sites, reversed(sites)):
        ways = by_routes(mesh).items()
        joining = [
            (kept_from, exchanges)
            for kept_from, all_of_them in ways
            if (
                exchanges := [x for x in all_of_them if x.leaves(origin) and x.reaches(destination)]
            )
        ]
        for kept_from, exchanges in joining or [(frozenset[str](), [])]:
            routes = routes_of(mesh, kept_from)
            said = _pair(routes, origin, destination)
            yield {
                "from": origin,
                "to": destination,
                "exchanges": [exchange.name for exchange in exchanges],
                "never_via": sorted(kept_from),
                **said,
            }


def _pair(routes: Routes, origin: str, destination: str) -> Told:
    figures = PairFigures(routes, most_uncertain=ASKED_UNCERTAIN)
    found = figures.figures_from(origin).get(destination)
    points = SinglePointFinder(routes).between(origin, destination)
    return {
        **_figures(found),
        "shortest": figures.shortest(origin, destination),
        "ways": figures.disjoint_ways(origin, destination),
        "single_points": {
            "sites": list(points.sites) if points else [],
            "links": [list(line) for line in points.lines] if points else [],
        },
    }


# -- disk -----------------------------------------------------------------------------------------


def _disk(mesh: Mesh, groups: SiteGroups, load: Load) -> Told:
    need = disk_need(mesh, load.rates, load.size, load.compression)
    return {
        "assumed": assumed_of(load.rates, load.size, load.compression),
        "sites": {site: _need(one) for site, one in need.items()},
        "rows": [
            {"label": group.label, **_need(_most(need[site] for site in group.sites))}
            for group in groups.groups
        ],
        "short": [site for site, one in need.items() if one.is_short],
    }


def _most(needs: Iterable[DiskNeed]) -> DiskNeed:
    """The one of a group that is worst off."""
    return max(needs, key=lambda one: (one.is_short, one.log_bytes))


def _need(need: DiskNeed) -> Told:
    return {
        "messages_per_s": need.messages_per_s,
        "log_bytes": round(need.log_bytes),
        "state_bytes": round(need.state_bytes),
        "max_bytes": need.limit.max_bytes,
        "on_full": need.limit.on_full.value,
        "short": need.is_short,
        "lasts_s": need.lasts_s,
    }
