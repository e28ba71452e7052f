"""Layout of a measurement: sites, links, publishers and destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Layout:
    """`links` are (sender, receiver). `hops`: the longest way of a message, in links.

    `wants`: the key of what a site wants, where that is not all. `one_uplink`: all links are
    dialled at their sender, over one line.
    """

    sites: tuple[str, ...]
    topology: str
    links: tuple[tuple[str, str], ...]
    origins: tuple[str, ...]
    destinations: tuple[str, ...]
    hops: int = 1
    wants: Mapping[str, str] = field(default_factory=dict)
    one_uplink: bool = False

    @property
    def remote_deliveries(self) -> int:
        """Number of deliveries at other sites of one message from each origin."""
        return sum(origin != site for origin in self.origins for site in self.destinations)


def one_hop() -> Layout:
    """Return a layout from the first of two sites to the second; the link back rests."""
    sites = ("site0", "site1")
    return Layout(sites, "complete", (sites, sites[::-1]), sites[:1], sites[1:])


def branches(count: int) -> Layout:
    """A site with so many branches, each of which wants what is for it."""
    names = tuple(f"branch{number}" for number in range(count))
    wants = {name: f"store.{name}" for name in names}
    links = tuple(("center", name) for name in names)
    sites = ("center", *names)
    return Layout(sites, "custom", links, ("center",), names, wants=wants, one_uplink=True)


def complete(count: int) -> Layout:
    sites = tuple(f"site{number}" for number in range(count))
    links = tuple((a, b) for a in sites for b in sites if a != b)
    return Layout(sites, "complete", links, sites, sites)


def ring(count: int) -> Layout:
    """One way round."""
    sites = tuple(f"site{number}" for number in range(count))
    links = tuple((a, sites[(number + 1) % count]) for number, a in enumerate(sites))
    return Layout(sites, "ring", links, sites, sites, hops=count - 1)
