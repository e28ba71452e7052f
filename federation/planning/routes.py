"""Routes of an exchange: the sites and links that its messages may cross. Pure.

Sites that an exchange is kept from (`never_via`) are no part of its routes, and neither are links
whose two ends meet at the broker of such a site.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx

from federation.mesh import Exchange, ForwardingRule, Mesh

Pair = tuple[str, str]
"""Sender and receiver, or origin and destination: site names."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One link. `host` is the site whose broker both ends meet at, if that is neither of them: the
    link then works only while that broker does.
    """

    availability: float
    meeting: str = "receiver"
    """`sender`, `receiver` or `host`: owner of the broker, to distinguish links."""
    host: str | None = None


@dataclass(frozen=True)
class Routes:
    """A directed graph of sites and links with their availabilities, 0 to 1."""

    rule: ForwardingRule
    sites: Mapping[str, float]
    hops: Mapping[Pair, Hop]
    hosts: frozenset[str] = field(init=False)
    """Sites at whose brokers links between two others meet."""

    def __post_init__(self) -> None:
        hosts = frozenset(hop.host for hop in self.hops.values() if hop.host is not None)
        object.__setattr__(self, "hosts", hosts)

    def graph(self) -> nx.DiGraph[str]:
        """Return the graph for networkx, in the order of the file."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.sites)
        graph.add_edges_from(self.hops)
        return graph

    def without(self, sites: Collection[str]) -> Routes:
        """Return the routes without some sites and the links that need them."""
        return _with_parts(
            self,
            {site: part for site, part in self.sites.items() if site not in sites},
            {
                pair: hop
                for pair, hop in self.hops.items()
                if not {*pair, hop.host}.intersection(sites)
            },
        )

    def among(self, sites: Collection[str]) -> Routes:
        """Return some sites, and the links between them."""
        return _with_parts(
            self,
            {site: self.sites[site] for site in self.sites if site in sites},
            {pair: hop for pair, hop in self.hops.items() if pair[0] in sites and pair[1] in sites},
        )


def _with_parts(routes: Routes, sites: Mapping[str, float], hops: Mapping[Pair, Hop]) -> Routes:
    """Return other sites and links under the same rule."""
    return Routes(routes.rule, sites, hops)


def routes_of(mesh: Mesh, never_via: Iterable[str] = ()) -> Routes:
    """Return the whole mesh without the sites that must not be crossed."""
    hops = {}
    for link in mesh.links:
        if link.meeting == link.receiver:
            meeting, host = "receiver", None
        elif link.meeting == link.sender:
            meeting, host = "sender", None
        else:
            meeting, host = "host", link.meeting
        hops[link.sender, link.receiver] = Hop(link.availability, meeting, host)
    whole = Routes(mesh.rule, {name: s.availability for name, s in mesh.sites.items()}, hops)
    kept_from = frozenset(never_via)
    return whole.without(kept_from) if kept_from else whole


def by_routes(mesh: Mesh) -> dict[frozenset[str], list[Exchange]]:
    """Return the exchanges by the sites that they must not cross: exchanges of one entry share
    routes.
    """
    found: dict[frozenset[str], list[Exchange]] = {}
    for exchange in mesh.exchanges.values():
        found.setdefault(frozenset(exchange.never_via), []).append(exchange)
    return found or {frozenset(): []}
