"""Sites in groups that look alike, with a name for each, for people. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from federation.mesh import Mesh
from federation.planning.routes import routes_of
from federation.planning.site_classes import alike_classes, class_of, shape_only

FEW = 8
"""So many sites are told one by one."""
NAMES_SAID = 4
NAMES_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Sites that look alike. `label` has their names, or says how many there are."""

    label: str
    sites: tuple[str, ...]


class SiteGroups:
    """All sites of a mesh, each in one group, in the order of the file."""

    def __init__(self, mesh: Mesh, groups: Iterable[Sequence[str]]) -> None:
        self.groups = tuple(Group(_label(mesh, sites), tuple(sites)) for sites in groups)
        self.number = class_of([group.sites for group in self.groups])
        self._all = frozenset(mesh.sites)

    def label(self, site: str) -> str:
        """Of the group that the site is in."""
        return self.groups[self.number[site]].label

    def said(self, sites: Collection[str]) -> str:
        """A set of sites in few words: whole groups by their labels, others by name."""
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
                words += here[:NAMES_SAID]
                if len(here) > NAMES_SAID:
                    words.append(f"{len(here) - NAMES_SAID} more of {group.label}")
        return ", ".join(words)

    def _in_order(self, sites: Collection[str]) -> list[str]:
        return [site for group in self.groups for site in group.sites if site in sites]


def site_groups(mesh: Mesh, *, each: bool = False, apart: Collection[str] = ()) -> SiteGroups:
    """Those that nothing but their names tells apart are a group, in a mesh of more than a few
    sites; `each` makes every site its own, `apart` those that are named.
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
