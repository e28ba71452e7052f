"""Between which sites a measurement's messages go, by the mesh file. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from federation.destinations import DestinationIndex, addressing_of
from federation.mesh import Exchange, Mesh
from isthmus.departures import why_it_stays

MOST_PAIRS = 1000
"""One process does it all."""
WORD = "bench"
"""Stands in a key for what its pattern leaves open."""


class BadBench(ValueError):
    """Ask otherwise; the text says how."""


def key_of(mesh: Mesh, exchange: Exchange) -> str:
    """A key of that exchange that takes a message to as many sites as any; of several the first,
    in the order of the file.
    """
    patterns = [*exchange.keys]
    for site in mesh.sites.values():
        patterns += site.wants.get(exchange.name, ())
    keys = list(dict.fromkeys(_made(pattern, exchange) for pattern in patterns)) or [WORD]
    origins = [site for site in mesh.sites if exchange.leaves(site)]
    return max(
        keys, key=lambda key: sum(len(takers(mesh, exchange, site, key)) for site in origins)
    )


def _made(pattern: str, exchange: Exchange) -> str:
    if exchange.type != "topic":
        return pattern
    return ".".join(WORD if word in ("*", "#") else word for word in pattern.split("."))


def takers(mesh: Mesh, exchange: Exchange, origin: str, key: str) -> list[str]:
    """The sites to whose queues the mesh brings what is published at `origin` under that key."""
    if why_it_stays(mesh, origin, exchange.name, key):
        return []
    addressing = addressing_of(mesh, exchange, origin)
    wanted = DestinationIndex(addressing).of(key.encode()) if addressing is not None else ()
    return [
        site.name
        for site in mesh.sites.values()
        if site.name != origin
        and exchange.reaches(site.name)
        and (not wanted or site.cluster_id in wanted)
    ]


def pairs_of(
    mesh: Mesh,
    exchange: Exchange,
    key: str,
    origins: Sequence[str] = (),
    destinations: Sequence[str] = (),
) -> dict[str, tuple[str, ...]]:
    """The sites to be listened at by the site that is published at: those that were named, and of
    none the ones that the file says. Raises BadBench where nothing would be measured.
    """
    found = {
        origin: tuple(
            site
            for site in takers(mesh, exchange, origin, key)
            if not destinations or site in destinations
        )
        for origin in origins or mesh.sites
    }
    for origin in origins:
        if not found[origin]:
            raise BadBench(
                why_it_stays(mesh, origin, exchange.name, key)
                or f"nothing of {exchange.name} goes from {origin} to "
                f"{', '.join(destinations) or 'any other site'} under {key!r}: see `to`, `wants` "
                "and `never_via` in the file, or give another --key"
            )
    heard = {site for sites in found.values() for site in sites}
    for site in destinations:
        if site not in heard:
            raise BadBench(
                f"nothing of {exchange.name} comes to {site} under {key!r} from the sites that are "
                "published at: see `to`, `wants` and `never_via` in the file, or give another --key"
            )
    found = {origin: sites for origin, sites in found.items() if sites}
    if not found:
        raise BadBench(
            f"nothing of {exchange.name} goes from any site to another under {key!r}: see `from`, "
            "`to` and `wants` in the file, or give another --key"
        )
    count = sum(map(len, found.values()))
    if count > MOST_PAIRS:
        raise BadBench(
            f"{count:,} pairs of sites are too many to measure at a time: choose with --from and "
            f"--to, up to {MOST_PAIRS:,}"
        )
    return found
