"""What a valid mesh must satisfy beyond single values: one rule a function, all of them pure.

Each rule yields Violations at a place of the file; none raises, and each goes on where it can, so
that one run tells all that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.exchange_rules import exchange_violations
from federation.mesh_document import MeshKeys
from federation.reachability import Reach
from federation.site_rules import site_violations
from federation.topologies import (
    declared_links,
    entry_links,
    forwarding_rule,
    goes_both_ways,
    shaped_pairs,
)
from federation.violation import Violation, unknown_site
from federation.yaml_tree import Location

MAX_WINDOW_S = 366 * 86_400.0
MIN_WINDOW_S = 1.0
RESERVED_SITES = ("from", "to", "all")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_PLAIN_SAID = "write 1 to 63 letters, digits, - and _, beginning with a letter or digit"


def violations(keys: MeshKeys, *, graph_is_known: bool = True) -> Iterator[Violation]:
    """All that is wrong. Without `graph_is_known` (a part of it could not be read) nothing is
    said that would only follow from that.
    """
    yield from _names(keys)
    yield from _window(keys)
    yield from site_violations(keys)
    yield from exchange_violations(keys)
    if graph_is_known:
        yield from _topology(keys)
    yield from _links(keys)
    if graph_is_known:
        yield from _reach(keys)


def _names(keys: MeshKeys) -> Iterator[Violation]:
    if not _PLAIN.fullmatch(keys.mesh):
        yield Violation(("mesh",), f"`{keys.mesh}` cannot name a mesh", _PLAIN_SAID)
    for site in keys.sites:
        at = ("sites", site)
        if site in RESERVED_SITES:
            yield Violation(at, f"`{site}` is a reserved word", "name the site otherwise", True)
        elif not _PLAIN.fullmatch(site):
            yield Violation(at, f"`{site}` cannot name a site", _PLAIN_SAID, True)


def _window(keys: MeshKeys) -> Iterator[Violation]:
    if not MIN_WINDOW_S <= keys.outage_window <= MAX_WINDOW_S:
        yield Violation(
            ("outage_window",),
            "this outage window is not possible",
            "write one from 1s to 366d; it is what every site's disk must hold",
        )


def _topology(keys: MeshKeys) -> Iterator[Violation]:
    at: Location = ("topology",)
    if keys.topology is None:
        if not keys.links:
            yield Violation((), "`topology` is missing", "add topology: ring, complete or custom")
        return
    kinds = keys.topology.kinds()
    if len(kinds) != 1:
        said = "more than one topology" if kinds else "no topology is named"
        yield Violation(at, said, "write topology: ring, complete or custom")
        return
    kind, count = kinds[0], len(keys.sites)
    if kind == "ring" and count < 3:
        yield Violation(
            at,
            f"a ring of {count} is none: it takes three sites",
            "add sites, or write topology: complete",
        )
    if kind == "complete" and count < 2:
        yield Violation(at, "a complete graph takes two sites", "add a site")
    if kind == "custom" and not keys.links:
        yield Violation(at, "a custom topology without links", "add links: [{from: A, to: B}]")
    if kind == "complete" and keys.both is False:
        yield Violation(("both",), "in a complete graph links go both ways", "take `both` out")
    ring = keys.topology.ring
    if ring is not None and None not in (ring.both, keys.both) and ring.both != keys.both:
        yield Violation(("both",), "this contradicts the ring's own `both`", "keep one of them")


def _links(keys: MeshKeys) -> Iterator[Violation]:
    shape = shaped_pairs(keys)
    made = None if shape is None else set(shape)
    first: dict[tuple[str, str], int] = {}
    names: dict[str, tuple[str, str]] = {}
    for n, entry in enumerate(keys.links):
        at: Location = ("links", n)
        strange = [
            key for key, site in _ends(entry.sender, entry.receiver) if site not in keys.sites
        ]
        for key in strange:
            site = entry.sender if key == "from" else entry.receiver
            yield unknown_site((*at, key), site, list(keys.sites))
        if entry.dial not in (None, "from", "to") and entry.dial not in keys.sites:
            yield unknown_site((*at, "dial"), str(entry.dial), ["from", "to", *keys.sites])
        if entry.sender == entry.receiver:
            yield Violation(
                (*at, "to"), f"a link from `{entry.sender}` to itself", "name another site"
            )
            continue
        if entry.via is not None and entry.dial is None and goes_both_ways(entry, keys):
            yield Violation(
                (*at, "via"),
                "the two ways meet at different brokers, so one `via` cannot lead to both",
                "add dial: from, to or SITE, or write the two ways apart",
                True,
            )
        for link in entry_links(entry, keys):
            pair = (link.sender, link.receiver)
            if pair in first:
                yield Violation(
                    at,
                    f"the link from `{pair[0]}` to `{pair[1]}` is here twice",
                    f"it is number {first[pair] + 1} of the links too: keep one of them",
                )
            elif made is not None and pair not in made and not strange:
                yield Violation(
                    at,
                    f"the topology has no link from `{pair[0]}` to `{pair[1]}`",
                    "take it out, or write topology: custom and all links",
                )
            first.setdefault(pair, n)
    for pair, link in declared_links(keys, keys.sites).items():
        if names.setdefault(link.name, pair) != pair:
            other = names[link.name]
            yield Violation(
                ("sites", pair[0]),
                f"the links {pair[0]} to {pair[1]} and {other[0]} to {other[1]} "
                f"would both be called `{link.name}`",
                "name one of the sites otherwise",
                True,
            )


def _ends(sender: str, receiver: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("from", sender), ("to", receiver)


def _reach(keys: MeshKeys) -> Iterator[Violation]:
    if keys.topology is not None and len(keys.topology.kinds()) != 1:
        return
    if len(keys.sites) < 2 or (shaped_pairs(keys) is None and not keys.links):
        return
    reach = Reach(declared_links(keys, keys.sites), forwarding_rule(keys))
    everywhere = list(keys.sites)
    for n, exchange in enumerate(keys.exchanges):
        origins = [s for s in exchange.origins or everywhere if s in keys.sites]
        destinations = [s for s in exchange.destinations or everywhere if s in keys.sites]
        missing = list(reach.missing(origins, destinations))
        if not missing:
            continue
        origin, destination = missing[0]
        more = f" (and {len(missing) - 1} more such pairs)" if len(missing) > 1 else ""
        if exchange.destinations is not None:
            at: Location = ("exchanges", n, "to", exchange.destinations.index(destination))
        elif exchange.origins is not None:
            at = ("exchanges", n, "from", exchange.origins.index(origin))
        else:
            at = ("exchanges", n, "name")
        yield Violation(
            at,
            f"no links lead from `{origin}` to `{destination}`, so `{exchange.name}` "
            f"cannot get there{more}",
            "add a link, or name in `from` and `to` the sites it is for",
            depends_on=("from", "to"),
        )
