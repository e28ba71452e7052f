"""Sites that are alike, so that a mesh of 500 branches is computed and shown as one of two. Pure.

Twins have the same neighbours over the same kind of links: exchanging two of them leaves the mesh
as it is, so that the finding for one pair holds for all pairs of their classes. Sites that look
alike (branches of different regions) merely share a line in a table: they are a group, with a label
for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from federation.mesh import Mesh
from federation.planning.routes import Hop, Pair, Routes, routes_of

Colour = Callable[[str], Hashable]
"""Property that distinguishes sites besides their links."""
HopKind = Callable[[Hop], Hashable]
"""Property that distinguishes links besides their ends."""


def with_availability(hop: Hop) -> Hashable:
    return hop.availability, hop.meeting, hop.host


def shape_only(hop: Hop) -> Hashable:
    return hop.meeting, hop.host


def twin_classes(routes: Routes, colour: Colour, kind: HopKind) -> list[tuple[str, ...]]:
    """Return all sites, twins together, in the order of the file."""
    around = _around(routes, kind)
    open_keys: dict[Hashable, list[str]] = {}
    closed_keys: dict[Hashable, list[str]] = {}
    for site, neighbours in around.items():
        shade = _shade(routes, colour, site)
        open_keys.setdefault((shade, frozenset(neighbours)), []).append(site)
        for own in _kinds_of_own(neighbours):
            closed = frozenset([*neighbours, *((site, *links) for links in own)])
            closed_keys.setdefault((shade, closed), []).append(site)
    # Twins without a link between them share an open key, linked twins a closed key; no site has
    # both sorts.
    found: dict[str, tuple[str, ...]] = {}
    for twins in (*closed_keys.values(), *open_keys.values()):
        if len(twins) > 1:
            found.update(dict.fromkeys(twins, tuple(twins)))
    return list(dict.fromkeys(found.get(site, (site,)) for site in routes.sites))


def alike_classes(routes: Routes, colour: Colour, kind: HopKind) -> list[tuple[str, ...]]:
    """Return all sites, grouped by equal surroundings at any distance."""
    around = _around(routes, kind)
    shades: dict[str, Hashable] = {site: _shade(routes, colour, site) for site in routes.sites}
    numbers = _numbered(shades)
    while True:
        seen: dict[str, Hashable] = {
            site: (
                numbers[site],
                frozenset(Counter((numbers[other], *rest) for other, *rest in near).items()),
            )
            for site, near in around.items()
        }
        finer = _numbered(seen)
        if len(set(finer.values())) == len(set(numbers.values())):
            break
        numbers = finer
    classes: dict[int, list[str]] = {}
    for site, number in numbers.items():
        classes.setdefault(number, []).append(site)
    return [tuple(members) for members in classes.values()]


def class_of(classes: Iterable[Sequence[str]]) -> dict[str, int]:
    """Return the number of each site's class."""
    return {site: number for number, members in enumerate(classes) for site in members}


def _shade(routes: Routes, colour: Colour, site: str) -> Hashable:
    # A host is like no other site: the links that meet there name it.
    return colour(site), site if site in routes.hosts else None


def _around(routes: Routes, kind: HopKind) -> dict[str, list[tuple[str, str, Hashable]]]:
    """Return, by site, each neighbour with the direction and kind of the link."""
    around: dict[str, list[tuple[str, str, Hashable]]] = {site: [] for site in routes.sites}
    for (sender, receiver), hop in routes.hops.items():
        around[sender].append((receiver, "to", kind(hop)))
        around[receiver].append((sender, "from", kind(hop)))
    return around


def _kinds_of_own(
    neighbours: Sequence[tuple[str, str, Hashable]],
) -> list[tuple[tuple[str, Hashable], tuple[str, Hashable]]]:
    """Return the links that may join a site and its twin: alike in both directions."""
    ways: dict[str, dict[str, Hashable]] = {}
    for other, way, kind in neighbours:
        ways.setdefault(other, {})[way] = kind
    same = {two["to"] for two in ways.values() if "to" in two and two["to"] == two.get("from")}
    return [(("to", kind), ("from", kind)) for kind in same]


def _numbered(shades: Mapping[str, Hashable]) -> dict[str, int]:
    numbers: dict[Hashable, int] = {}
    return {site: numbers.setdefault(shade, len(numbers)) for site, shade in shades.items()}


def line(pair: Pair) -> Pair:
    """Return the two ends of a link whichever way it goes: one line between two sites."""
    return pair if pair[0] <= pair[1] else (pair[1], pair[0])


FEW = 8
"""Number of sites up to which each is shown by itself."""
MOST_NAMES = 4
NAMES_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Sites that look alike. `label` has their names or their number."""

    label: str
    sites: tuple[str, ...]


class SiteGroups:
    """All sites of a mesh, each in one group, in the order of the file."""

    def __init__(self, mesh: Mesh, groups: Iterable[Sequence[str]]) -> None:
        self.groups = tuple(Group(_label(mesh, sites), tuple(sites)) for sites in groups)
        self.number = class_of([group.sites for group in self.groups])
        self._all = frozenset(mesh.sites)

    def label(self, site: str) -> str:
        """Return the label of a site's group."""
        return self.groups[self.number[site]].label

    def in_words(self, sites: Collection[str]) -> str:
        """Return a set of sites in few words: whole groups by their labels, others by name."""
        chosen = frozenset(sites)
        if chosen == self._all:
            return "every site"
        if not chosen:
            return "no site"
        missing = self._all - chosen
        if len(missing) <= 2 < len(chosen):
            return "every site but " + " and ".join(self._in_order(missing))
        words: list[str] = []
        for group in self.groups:
            here = [site for site in group.sites if site in chosen]
            if len(here) == len(group.sites):
                words.append(group.label)
            else:
                words += here[:MOST_NAMES]
                if len(here) > MOST_NAMES:
                    words.append(f"{len(here) - MOST_NAMES} more of {group.label}")
        return ", ".join(words)

    def _in_order(self, sites: Collection[str]) -> list[str]:
        return [site for group in self.groups for site in group.sites if site in sites]


def site_groups(mesh: Mesh, *, each: bool = False, apart: Collection[str] = ()) -> SiteGroups:
    """Group sites that differ in nothing but their names, in a mesh of more than a few sites.
    `each` makes every site its own group, `apart` the named sites.
    """
    if each or len(mesh.sites) <= FEW:
        return SiteGroups(mesh, [(site,) for site in mesh.sites])

    def colour(site: str) -> tuple[object, ...]:
        part = tuple(
            (
                exchange.leaves(site),
                exchange.reaches(site),
                site in exchange.never_via,
                exchange.name in mesh.sites[site].wants,
            )
            for exchange in mesh.exchanges.values()
        )
        return part, site if site in apart else None

    return SiteGroups(mesh, alike_classes(routes_of(mesh), colour, shape_only))


def _label(mesh: Mesh, sites: Sequence[str]) -> str:
    if len(sites) == 1:
        return sites[0]
    members = frozenset(sites)
    for tag in mesh.sites[sites[0]].tags:
        if members == {name for name, site in mesh.sites.items() if tag in site.tags}:
            return f"{tag} ({len(sites)})"
    if len(sites) <= NAMES_TOGETHER:
        return ", ".join(sites)
    return f"{sites[0]} … {sites[-1]} ({len(sites)})"
