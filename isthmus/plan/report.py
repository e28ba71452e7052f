"""Report of a plan: one JSON object, which tables and drawings are made from.

Rows name groups of sites by labels; `groups` lists the sites of each label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from federation.mesh import Exchange, Link, Mesh
from federation.planning.availability import Availability
from federation.planning.blocks import Figures
from federation.planning.disk_need import DiskNeed, disk_need
from federation.planning.pair_figures import PairFigures, PairRow, Wanted, pair_rows, wanted_by
from federation.planning.routes import Pair, Routes, by_routes, routes_of
from federation.planning.single_points import PointRow, SinglePointFinder, point_rows
from federation.planning.site_classes import SiteGroups, site_groups
from isthmus.display import JsonObject, tracked
from isthmus.plan.expected_load import ExpectedLoad, assumed_of
from isthmus.plan.group_plan import group_report, over_group

PAIR_UNCERTAIN = 28
"""Number of fallible links up to which a single pair is computed exactly, within about a second."""


def plan_of(
    mesh: Mesh, *, sites: Sequence[str] = (), each: bool = False, load: ExpectedLoad | None = None
) -> JsonObject:
    """Build the plan without the changes of `apply`.

    One name in `sites` limits pairs to those of the site, several to pairs among them. `each` makes
    no groups.
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
        "links": [link_report(link) for link in mesh.links],
        "link_groups": list(link_rows(mesh, groups)),
        "multicast": group_report(mesh, groups),
        "exchanges": [_exchange(mesh, one, groups) for one in mesh.exchanges.values()],
        "routes": [
            _routes(mesh, kept_from, exchanges, groups, sites)
            for kept_from, exchanges in by_routes(mesh).items()
        ],
        "asked": list(_pair_details(mesh, sites)) if len(sites) == 2 else [],
        "disk": None if load is None else _disk(mesh, groups, load),
    }


# -- exchanges ------------------------------------------------------------------------------------


def _exchange(mesh: Mesh, exchange: Exchange, groups: SiteGroups) -> JsonObject:
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
        "over_group": over_group(mesh, exchange),
    }


# -- routes between sites -------------------------------------------------------------------------


def _routes(
    mesh: Mesh,
    kept_from: frozenset[str],
    exchanges: Sequence[Exchange],
    groups: SiteGroups,
    sites: Sequence[str],
) -> JsonObject:
    routes = routes_of(mesh, kept_from)
    wanted = _concerning(wanted_by(exchanges, mesh.sites, every=not mesh.exchanges), sites)
    pairs = pair_rows(
        routes, exchanges, groups, wanted, lambda classes: tracked(classes, "pairs of sites")
    )
    points = point_rows(
        routes, exchanges, groups, wanted, lambda classes: tracked(classes, "single points")
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


def _pair_row(row: PairRow, groups: SiteGroups) -> JsonObject:
    labels = groups.groups[row.origins].label, groups.groups[row.destinations].label
    cells: JsonObject = {
        "from": labels[0],
        "to": labels[1],
        "both_ways": row.both_ways or row.origins == row.destinations,
        "pairs": row.pairs,
        "worst": list(row.worst),
    }
    cells |= _figures(row.figures)
    cells["best_availability"] = row.best and _availability(row.best)
    return cells


def _figures(figures: Figures | None) -> JsonObject:
    if figures is None:
        return {"hops": None, "link_disjoint": 0, "site_disjoint": 0, "availability": None}
    return {
        "hops": figures.hops,
        "link_disjoint": figures.link_disjoint,
        "site_disjoint": figures.site_disjoint,
        "availability": _availability(figures.availability),
    }


def _availability(found: Availability) -> JsonObject:
    return {"part": found.part, "standard_error": found.standard_error, "exact": found.is_exact}


def _point_row(row: PointRow, groups: SiteGroups) -> JsonObject:
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


def _pair_details(mesh: Mesh, sites: Sequence[str]) -> Iterator[JsonObject]:
    """Yield the details of a pair in both directions, for each set of exchanges with routes of
    their own.
    """
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
            row = _pair(routes, origin, destination)
            yield {
                "from": origin,
                "to": destination,
                "exchanges": [exchange.name for exchange in exchanges],
                "never_via": sorted(kept_from),
                **row,
            }


def _pair(routes: Routes, origin: str, destination: str) -> JsonObject:
    figures = PairFigures(routes, most_uncertain=PAIR_UNCERTAIN)
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


def _disk(mesh: Mesh, groups: SiteGroups, load: ExpectedLoad) -> JsonObject:
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
    """Return the worst need of a group."""
    return max(needs, key=lambda one: (one.is_short, one.log_bytes))


def _need(need: DiskNeed) -> JsonObject:
    return {
        "messages_per_s": need.messages_per_s,
        "log_bytes": round(need.log_bytes),
        "state_bytes": round(need.state_bytes),
        "max_bytes": need.limit.max_bytes,
        "on_full": need.limit.on_full.value,
        "short": need.is_short,
        "lasts_s": need.lasts_s,
    }


def dials(link: Link) -> list[str]:
    """Return the ends that connect to another site's broker."""
    return [end for end in (link.sender, link.receiver) if end != link.meeting]


def link_report(link: Link) -> dict[str, Any]:
    """Return a link as a JSON object."""
    return {
        "from": link.sender,
        "to": link.receiver,
        "meets_at": link.meeting,
        "dials": dials(link),
        "via": link.via,
        "availability": link.availability,
        **({} if link.max_rate is None else {"max_rate": str(link.max_rate)}),
    }


def link_rows(mesh: Mesh, groups: SiteGroups) -> Iterator[dict[str, Any]]:
    """Yield a row for links between the same groups that meet alike, both directions in one row."""
    found: dict[tuple[int, int, str], list[Link]] = {}
    for link in mesh.links:
        ends = groups.number[link.sender], groups.number[link.receiver]
        found.setdefault((*ends, _meeting(link)), []).append(link)
    turned = {"sender": "receiver", "receiver": "sender"}
    done: set[tuple[int, int, str]] = set()
    for key, links in found.items():
        if key in done:
            continue
        sender, receiver, meeting = key
        way_back = {(link.receiver, link.sender) for link in links}
        # Back by the same broker, or each direction by its own receiver's (or sender's).
        same = receiver, sender, turned.get(meeting, meeting)
        each = receiver, sender, meeting
        back = next((k for k in (same, each) if _ends(found.get(k, ())) == way_back), None)
        if back is not None:
            done.add(back)
        labels = groups.groups[sender].label, groups.groups[receiver].label
        yield {
            "from": labels[0],
            "to": labels[1],
            "both_ways": back is not None,
            "count": len(links) // 2 if back == key else len(links),
            **_meets(meeting, *labels, each_way=back is not None and back != same),
            "via": sum(link.via is not None for link in links),
            "availability": span(link.availability for link in links),
        }


def _ends(links: Iterable[Link]) -> set[Pair]:
    return {(link.sender, link.receiver) for link in links}


def _meeting(link: Link) -> str:
    named = {link.sender: "sender", link.receiver: "receiver"}
    return named.get(link.meeting, link.meeting)


def _meets(meeting: str, sender: str, receiver: str, *, each_way: bool) -> dict[str, Any]:
    if each_way and meeting == "receiver":
        return {"meets_at": "each way at its receiver's", "dials": "the sender"}
    if each_way and meeting == "sender":
        return {"meets_at": "each way at its sender's", "dials": "the receiver"}
    if meeting == "sender":
        return {"meets_at": sender, "dials": receiver}
    if meeting == "receiver":
        return {"meets_at": receiver, "dials": sender}
    return {"meets_at": meeting, "dials": "both ends"}


def span(values: Iterable[float]) -> Mapping[str, float]:
    """Return minimum and maximum."""
    found = list(values)
    return {"least": min(found), "most": max(found)}
