"""Copies of a byte on each site's line, with a multicast group, by links alone, and in a complete
graph. Pure.

A byte is of an exchange that goes over the group; the one that loads the line most counts. Heads of
datagrams and frames, and repairs, come on top. By links each replayer may pass on whatever it gets;
what another replayer has brought first it need not, so these copies are the most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from federation.mesh import Exchange, Mesh
from federation.multicast import group_exchanges, group_sites


@dataclass(frozen=True, slots=True)
class UplinkCopies:
    """Copies that leave one site: of a byte that it publishes, and of one that it passes on, which
    another site of the group has published.
    """

    own_with_group: int = 0
    own_by_links: int = 0
    own_complete: int = 0
    passed_with_group: int = 0
    passed_by_links: int = 0


def uplink_copies(mesh: Mesh) -> Mapping[str, UplinkCopies]:
    """Return the copies by site; empty where no exchange goes over a group."""
    exchanges = [mesh.exchanges[name] for name in group_exchanges(mesh)]
    if not exchanges:
        return {}
    return {
        site: _most([_copies(mesh, site, exchange) for exchange in exchanges])
        for site in mesh.sites
    }


def _most(found: list[UplinkCopies]) -> UplinkCopies:
    return UplinkCopies(*map(max, zip(*map(astuple, found), strict=True)))


def _copies(mesh: Mesh, site: str, exchange: Exchange) -> UplinkCopies:
    assert mesh.group is not None
    replayers, members = frozenset(mesh.group.replayers), group_sites(mesh)
    destinations = {name for name in mesh.sites if exchange.reaches(name)}
    passed_over = destinations | replayers  # a replayer gets what it is to pass on, too
    by_links_only = destinations - members
    own = own_with_group = own_by_links = 0
    if exchange.leaves(site):
        own = len(destinations - {site})
        own_by_links = len((passed_over if site in replayers else replayers) - {site})
        # To members the group brings it; what comes of no member goes by links to all.
        own_with_group = own_by_links
        if site in members:
            own_with_group = 1 + (len(by_links_only) if site in replayers else 0)
    passed_with_group = passed_by_links = 0
    origins = {name for name in members if exchange.leaves(name)} - {site}
    if site in replayers and origins:
        passed_with_group = len(by_links_only)
        passed_by_links = max(len(passed_over - {site, origin}) for origin in origins)
    return UplinkCopies(own_with_group, own_by_links, own, passed_with_group, passed_by_links)
