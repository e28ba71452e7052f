"""Content of a drawing: sites, crowds of sites, and the lines between. Pure.

More than a few branches that hang on the same sites in the same way are one crowd, so that a hub
with 500 branches is a drawing of two spots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from federation.mesh import Link, Mesh
from federation.multicast import group_sites
from federation.planning.availability import show_part
from federation.planning.pair_figures import wanted_by
from federation.planning.routes import Pair, by_routes, routes_of
from federation.planning.single_points import all_points
from federation.planning.site_classes import SiteGroups, line, shape_only, site_groups, twin_classes

CROWD = 6
"""Number of sites up to which each is drawn singly."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Site, or a crowd of sites named by the first."""

    name: str
    label: str
    sites: int
    is_single_point: bool
    about: str
    in_group: bool = False
    """True if all its sites are members of the mesh's multicast group."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """Line between two spots. `meeting` is the spot whose broker both ends of both directions
    connect to; empty if elsewhere, or not the same for both.
    """

    sender: str
    receiver: str
    both_ways: bool
    meeting: str
    is_single_point: bool
    about: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Spots and strokes in the order of the mesh file."""

    title: str
    spots: tuple[Spot, ...]
    strokes: tuple[Stroke, ...]
    group: str = ""
    """Address of the mesh's multicast group; empty if there is none."""


def picture_of(mesh: Mesh, *, each: bool = False) -> Picture:
    """Build the picture; `each` draws no crowds."""
    groups = site_groups(mesh, each=each)
    stands_for = _crowds(mesh, groups, each=each)
    sites, lines = _single_points(mesh)
    members: dict[str, list[str]] = {}
    for site, spot in stands_for.items():
        members.setdefault(spot, []).append(site)
    return Picture(
        f"mesh {mesh.name}, revision {mesh.revision}",
        tuple(_spot(mesh, groups, spot, inside, sites) for spot, inside in members.items()),
        tuple(_strokes(mesh, stands_for, lines)),
        "" if mesh.group is None else mesh.group.address,
    )


def _crowds(mesh: Mesh, groups: SiteGroups, *, each: bool) -> dict[str, str]:
    """Return by site the spot that represents the site."""
    if each:
        return {site: site for site in mesh.sites}
    routes = routes_of(mesh)
    linked = set(routes.hops)
    found: dict[str, str] = {}
    for twins in twin_classes(routes, lambda site: groups.number[site], shape_only):
        # Twins that are linked to each other are no crowd: the links between them matter.
        together = len(twins) > CROWD and (twins[0], twins[1]) not in linked
        found.update((site, twins[0] if together else site) for site in twins)
    return {site: found[site] for site in mesh.sites}


def _single_points(mesh: Mesh) -> tuple[set[str], set[Pair]]:
    """Find the single points of failure of all exchanges."""
    sites, lines = set[str](), set[Pair]()
    for kept_from, exchanges in by_routes(mesh).items():
        routes = routes_of(mesh, kept_from)
        wanted = wanted_by(exchanges, mesh.sites, every=not mesh.exchanges)
        found = all_points(routes, exchanges, site_groups(mesh), wanted)
        sites.update(found.sites)
        lines.update(found.lines)
    return sites, lines


def _spot(mesh: Mesh, groups: SiteGroups, name: str, inside: list[str], single: set[str]) -> Spot:
    part = min(mesh.sites[site].availability for site in inside)
    about = f"works {show_part(part)}"
    in_group = group_sites(mesh).issuperset(inside)
    if mesh.group is not None:
        about += f", {_membership(in_group, len(inside))} the multicast group"
    if len(inside) == 1:
        return Spot(name, name, 1, name in single, f"{name}: {about}", in_group)
    whole = groups.groups[groups.number[name]]
    label = whole.label if len(whole.sites) == len(inside) else f"{name} … ({len(inside)})"
    is_single = any(site in single for site in inside)
    return Spot(name, label, len(inside), is_single, f"{label}: {about}", in_group)


def _membership(in_group: bool, sites: int) -> str:
    if in_group:
        return "in"
    return "not in" if sites == 1 else "not all in"


def _strokes(mesh: Mesh, stands_for: dict[str, str], single: set[Pair]) -> Iterator[Stroke]:
    between: dict[Pair, list[Link]] = {}
    for link in mesh.links:
        ends = stands_for[link.sender], stands_for[link.receiver]
        between.setdefault(ends, []).append(link)
    done: set[Pair] = set()
    for (sender, receiver), links in between.items():
        if (sender, receiver) in done:
            continue
        back = between.get((receiver, sender), [])
        done.add((receiver, sender))
        meetings = {stands_for[link.meeting] for link in (*links, *back)}
        yield Stroke(
            sender,
            receiver,
            bool(back),
            meetings.pop() if len(meetings) == 1 else "",
            any(line((link.sender, link.receiver)) in single for link in links),
            _about(links, back),
        )


def _about(links: list[Link], back: Iterable[Link]) -> str:
    first = links[0]
    arrow = "↔" if back else "→"
    count = f" and {len(links) - 1} more" if len(links) > 1 else ""
    part = min(link.availability for link in links)
    meets = {link.meeting for link in (first, *(b for b in back if b.receiver == first.sender))}
    where = first.meeting if len(meets) == 1 else "each way's receiver"
    return (
        f"{first.sender} {arrow} {first.receiver}{count}: meet at {where}, works {show_part(part)}"
    )
