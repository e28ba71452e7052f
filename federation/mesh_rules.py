"""What a valid mesh must satisfy beyond single values: one rule a function, all of them pure.

Each rule yields Violations at a place of the file; none raises, and each goes on where it can, so
that one run tells all that is wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from federation.broker_uri import parse_amqp, parse_management, parse_stream
from federation.mesh_document import ExchangeKeys, MeshKeys, SiteKeys
from federation.names import Names, NameTooLong
from federation.problems import Severity
from federation.reachability import Reach
from federation.topologies import (
    declared_links,
    entry_links,
    forwarding_rule,
    goes_both_ways,
    shaped_pairs,
)
from federation.yaml_tree import Location

MAX_WINDOW_S = 366 * 86_400.0
MIN_WINDOW_S = 1.0
RESERVED_EXCHANGES = ("amq.", "isthmus.")
RESERVED_SITES = ("from", "to", "all")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")
_PLAIN_SAID = "write 1 to 63 letters, digits, - and _, beginning with a letter or digit"


@dataclass(frozen=True, slots=True)
class Violation:
    """`on_key`: it is the key at `location` that is wrong, not its value. `depends_on` are keys of
    the same site or exchange: where one of them could not be read, this may be wrongly said.
    """

    location: Location
    wrong: str
    mend: str
    on_key: bool = False
    severity: Severity = Severity.ERROR
    depends_on: tuple[str, ...] = ()


def violations(keys: MeshKeys, *, graph_is_known: bool = True) -> Iterator[Violation]:
    """All that is wrong. Without `graph_is_known` (a part of it could not be read) nothing is
    said that would only follow from that.
    """
    yield from _names(keys)
    yield from _window(keys)
    yield from _sites(keys)
    yield from _exchanges(keys)
    if graph_is_known:
        yield from _topology(keys)
    yield from _links(keys)
    if graph_is_known:
        yield from _reach(keys)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = difflib.get_close_matches(word.lower(), {k.lower(): k for k in known}, n=1, cutoff=0.6)
    return next((k for k in known if found and k.lower() == found[0]), None)


def _names(keys: MeshKeys) -> Iterator[Violation]:
    if not _PLAIN.fullmatch(keys.mesh):
        yield Violation(("mesh",), f"`{keys.mesh}` cannot name a mesh", _PLAIN_SAID)
    for site in keys.sites:
        at = ("sites", site)
        if site in RESERVED_SITES:
            yield Violation(at, f"`{site}` is a reserved word", "name the site otherwise", True)
        elif not _PLAIN.fullmatch(site):
            yield Violation(at, f"`{site}` cannot name a site", _PLAIN_SAID, True)
    yield from _long_names(keys)


def _long_names(keys: MeshKeys) -> Iterator[Violation]:
    names = Names(keys.mesh)
    for n, exchange in enumerate(keys.exchanges):
        try:
            names.egress(exchange.name)
        except NameTooLong as error:
            yield Violation(("exchanges", n, "name"), *_too_long(error))
    # Sites' names have at most 63 letters, so no name made of two of them and a mesh's is too long.


def _too_long(error: NameTooLong) -> tuple[str, str]:
    return (
        f"a queue's name made of this has {error.length} bytes, brokers take 255",
        f"shorten {error.made_from}",
    )


def _window(keys: MeshKeys) -> Iterator[Violation]:
    if not MIN_WINDOW_S <= keys.outage_window <= MAX_WINDOW_S:
        yield Violation(
            ("outage_window",),
            "this outage window is not possible",
            "write one from 1s to 366d; it is what every site's disk must hold",
        )


def _sites(keys: MeshKeys) -> Iterator[Violation]:
    yield from _cluster_ids(keys)
    vhosts: dict[tuple[str, int, str], str] = {}
    for name, site in keys.sites.items():
        yield from _broker(name, site)
        if site.broker is not None:
            uri = parse_amqp(site.broker)
            same = vhosts.setdefault((uri.host, uri.port, uri.vhost), name)
            if same != name:
                yield Violation(
                    ("sites", name, "broker"),
                    f"site `{same}` has this broker and virtual host already",
                    "a site is a virtual host of its own: give it another",
                )


def _cluster_ids(keys: MeshKeys) -> Iterator[Violation]:
    owners: dict[str, str] = {}
    # Those that follow from a site's name go first: the complaint is about what was written.
    for name, site in sorted(keys.sites.items(), key=lambda item: item[1].cluster_id is not None):
        written = site.cluster_id is not None
        cluster_id = site.cluster_id if site.cluster_id is not None else name
        at: Location = ("sites", name, "cluster_id") if written else ("sites", name)
        if not cluster_id:
            yield Violation(at, "the cluster ID is empty", "leave it out, or write one")
        elif written and not _CLUSTER_ID.fullmatch(cluster_id):
            yield Violation(
                at,
                f"`{cluster_id}` cannot be a cluster ID",
                "write up to 63 letters, digits, . _ : -",
            )
        elif (owner := owners.setdefault(cluster_id, name)) != name:
            yield Violation(
                at,
                f"the cluster ID `{cluster_id}` is that of site `{owner}` already",
                "give each site its own: loops are broken by it",
                on_key=not written,
            )


def _broker(name: str, site: SiteKeys) -> Iterator[Violation]:
    at: Location = ("sites", name)
    if site.broker is None:
        for key in ("stream", "password", "management"):
            if getattr(site, key) is not None:
                yield Violation(
                    (*at, key),
                    f"`{key}` without a `broker` it belongs to",
                    "add broker: amqps://USER@HOST/VHOST, or take it out (a private broker)",
                    True,
                    depends_on=("broker",),
                )
        return
    for key, host in _hosts(site):
        if not any(letter.isalnum() for letter in host):
            yield Violation(
                (*at, key),
                f"`{host}` is no host that could be found",
                "write the broker's name or address",
                severity=Severity.WARNING,
            )
    in_uri = parse_amqp(site.broker).password is not None
    if in_uri:
        yield Violation(
            (*at, "broker"),
            "there is a password in clear in this address",
            "take it out and write password: env:NAME or file:PATH",
            severity=Severity.WARNING,
        )
    if site.password is None:
        if not in_uri:
            yield Violation(
                (*at, "broker"),
                f"no password for the broker of `{name}`",
                "add password: env:NAME or file:PATH",
                depends_on=("password",),
            )
    elif in_uri:
        yield Violation((*at, "password"), "a second password", "take the one in `broker` out")
    elif site.password in ("", "env:", "file:"):
        yield Violation((*at, "password"), "this names no password", "write env:NAME or file:PATH")
    elif not site.password.startswith(("env:", "file:")):
        yield Violation(
            (*at, "password"),
            "this password is in clear",
            "write env:NAME or file:PATH",
            severity=Severity.WARNING,
        )


def _hosts(site: SiteKeys) -> Iterator[tuple[str, str]]:
    if site.broker is not None:
        yield "broker", parse_amqp(site.broker).host
    if site.stream is not None:
        yield "stream", parse_stream(site.stream).host
    if site.management is not None:
        yield "management", parse_management(site.management).host


def _exchanges(keys: MeshKeys) -> Iterator[Violation]:
    first: dict[str, str] = {}
    for n, exchange in enumerate(keys.exchanges):
        at: Location = ("exchanges", n)
        yield from _exchange_name(exchange, at)
        made = [exchange.name, *([f"{exchange.name}.in"] if exchange.mode == "split" else [])]
        for name in made:
            if name in first:
                yield Violation(
                    (*at, "name"),
                    f"there is an exchange `{name}` already, {first[name]}",
                    "name one of them otherwise",
                )
            else:
                whose = "by that name" if name == exchange.name else f"that of split `{made[0]}`"
                first[name] = whose
        yield from _keys_of_exchange(exchange, at)
        yield from _sites_of_exchange(exchange, at, list(keys.sites))
        shortest, longest = exchange.retry.backoff
        if not 0 < shortest <= longest:
            yield Violation(
                (*at, "retry", "backoff"),
                "the first wait must be above 0 and not longer than the longest",
                "write it like [0.2s, 30s]",
            )


def _exchange_name(exchange: ExchangeKeys, at: Location) -> Iterator[Violation]:
    name = exchange.name
    reserved = next((start for start in RESERVED_EXCHANGES if name.startswith(start)), None)
    if reserved is not None:
        yield Violation(
            (*at, "name"), f"names that begin with `{reserved}` are reserved", "name it otherwise"
        )
    elif not name.isprintable() or name != name.strip():
        yield Violation(
            (*at, "name"), "blanks around the name, or letters that cannot be seen", "take them out"
        )


def _keys_of_exchange(exchange: ExchangeKeys, at: Location) -> Iterator[Violation]:
    if exchange.type == "direct" and not exchange.keys:
        yield Violation(
            at if exchange.keys is None else (*at, "keys"),
            f"the direct exchange `{exchange.name}` needs the keys of what leaves a site",
            "add keys: [KEY, ...]: a direct exchange has no key that stands for all",
            depends_on=("keys",),
        )
    if exchange.keys is None:
        return
    if exchange.type in ("fanout", "headers"):
        yield Violation(
            (*at, "keys"),
            f"a {exchange.type} exchange takes no keys: all of it leaves a site",
            "take `keys` out, or make it type: topic",
            True,
        )
    elif exchange.type == "topic" and not exchange.keys:
        yield Violation(
            (*at, "keys"),
            "no key, so nothing leaves a site",
            'write "#" for all',
            depends_on=("type",),
        )
    for k, key in enumerate(exchange.keys):
        if len(key.encode()) > 255:
            yield Violation((*at, "keys", k), "a key has at most 255 bytes", "shorten it")
        elif key in exchange.keys[:k]:
            yield Violation((*at, "keys", k), f"the key `{key}` is here twice", "keep one of them")
        elif exchange.type == "direct" and re.search(r"(^|\.)[*#](\.|$)", key):
            yield Violation(
                (*at, "keys", k),
                f"a direct exchange takes `{key}` word for word",
                "make it type: topic if * and # should stand for any words",
                severity=Severity.WARNING,
            )


def _sites_of_exchange(
    exchange: ExchangeKeys, at: Location, sites: Sequence[str]
) -> Iterator[Violation]:
    for key, named in (("from", exchange.origins), ("to", exchange.destinations)):
        for k, site in enumerate(named or ()):
            if site not in sites:
                yield _unknown_site((*at, key, k), site, sites)
            elif named is not None and site in named[:k]:
                yield Violation((*at, key, k), f"`{site}` is here twice", "keep one of them")
    if exchange.origins is not None and exchange.origins == exchange.destinations == [
        exchange.origins[0]
    ]:
        yield Violation(
            (*at, "to"),
            f"`{exchange.name}` goes from `{exchange.origins[0]}` to itself only",
            "name another site: a site never gets its own messages back",
        )


def _unknown_site(at: Location, site: str, sites: Collection[str]) -> Violation:
    meant = nearest(site, sites)
    mend = f"did you mean `{meant}`?" if meant else f"the sites are {_listed(sites)}"
    return Violation(at, f"there is no site `{site}`", mend)


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
            yield _unknown_site((*at, key), site, list(keys.sites))
        if entry.dial not in (None, "from", "to") and entry.dial not in keys.sites:
            yield _unknown_site((*at, "dial"), str(entry.dial), ["from", "to", *keys.sites])
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


def _listed(words: Collection[str], most: int = 8) -> str:
    shown = ", ".join(list(words)[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown
