"""The mesh as a graph: spots, lines between them, and branches folded into groups. Pure.

A branch is a site whose links lead all to the same neighbour. Where a large mesh has several
branches at one hub, they share a spot until somebody opens the group.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from federation.mesh import Mesh
from isthmus.plan.layout import laid_out

FOLDED_FROM = 40
"""Sites of a mesh in which branches are folded."""
GROUP_FROM = 4
"""Branches of a hub that make a group."""


def groups_of(mesh: Mesh) -> dict[str, list[str]]:
    """Return the branches of each hub that has a group."""
    if len(mesh.sites) < FOLDED_FROM:
        return {}
    near: dict[str, set[str]] = {site: set() for site in mesh.sites}
    for link in mesh.links:
        near[link.sender].add(link.receiver)
        near[link.receiver].add(link.sender)
    branches: dict[str, list[str]] = {}
    for site, others in near.items():
        if len(others) == 1:
            branches.setdefault(next(iter(others)), []).append(site)
    return {hub: some for hub, some in branches.items() if len(some) >= GROUP_FROM}


def drawing(mesh: Mesh, opened: Collection[str] = ()) -> dict[str, Any]:
    """Return {"spots": [{"id", "hub", "sites", "x", "y"}], "lines": [{"id", "one", "other",
    "links"}]}, with the groups of the hubs in `opened` unfolded. A group's spot has its `hub`; x
    and y are pixels; a line has the names of all links that it stands for.
    """
    groups = {hub: some for hub, some in groups_of(mesh).items() if hub not in opened}
    spot_of = {site: f"site {site}" for site in mesh.sites}
    for hub, some in groups.items():
        spot_of |= dict.fromkeys(some, f"group {hub}")
    sites: dict[str, list[str]] = {}
    for site, spot in spot_of.items():
        sites.setdefault(spot, []).append(site)
    lines: dict[tuple[str, str], list[str]] = {}
    for link in mesh.links:
        one, other = sorted((spot_of[link.sender], spot_of[link.receiver]))
        lines.setdefault((one, other), []).append(f"{link.sender}-{link.receiver}")
    places = laid_out(list(sites), lines)
    return {
        "spots": [
            {
                "id": spot,
                "hub": spot.removeprefix("group ") if spot.startswith("group ") else "",
                "sites": some,
                "x": round(places[spot].x, 1),
                "y": round(places[spot].y, 1),
            }
            for spot, some in sites.items()
        ],
        "lines": [
            {"id": f"{one} - {other}", "one": one, "other": other, "links": links}
            for (one, other), links in lines.items()
        ],
        "opened": sorted(set(opened) & set(groups_of(mesh))),
    }
