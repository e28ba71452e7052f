"""Rules for links: entries of `links`, logins at their brokers, reach of each exchange. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.keys.site_keys import SiteWords
from federation.mesh_file.keys.topology_keys import LinkKeys
from federation.mesh_file.problem import Severity, Violation, unknown_site
from federation.mesh_file.topologies import (
    declared_links,
    entry_links,
    forwarding_rule,
    goes_both_ways,
    shape_of,
)
from federation.mesh_file.tree import Location
from federation.reachability import Reach
from federation.wording import few


def link_violations(
    keys: MeshKeys, *, graph_is_known: bool = True, sites_are_known: bool = True
) -> Iterator[Violation]:
    """Check single links, except for mistakes that follow from others."""
    shape = shape_of(keys) if sites_are_known else None
    made = set(shape.pairs) if shape is not None and graph_is_known else None
    first: dict[tuple[str, str], int] = {}
    for n, entry in enumerate(keys.links):
        at: Location = ("links", n)
        strange = [
            key
            for key, site in (("from", entry.sender), ("to", entry.receiver))
            if sites_are_known and site not in keys.sites
        ]
        for key in strange:
            site = entry.sender if key == "from" else entry.receiver
            yield unknown_site((*at, key), site, tuple(keys.sites))
        is_site = entry.dial not in (None, "from", "to")
        if is_site and sites_are_known and entry.dial not in keys.sites:
            yield unknown_site((*at, "dial"), str(entry.dial), ("from", "to", *keys.sites))
        if entry.sender == entry.receiver:
            yield Violation(
                (*at, "to"), f"a link from `{entry.sender}` to itself", "name another site"
            )
            continue
        links = list(entry_links(entry, keys, shape))
        if entry.via is not None and len({link.meeting for link in links}) > 1:
            yield Violation(
                (*at, "via"),
                "the two ways meet at different brokers, so one `via` cannot lead to both",
                "add dial: from, to or SITE, or write the two ways apart",
                True,
            )
        for link in links:
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
                    _mend_strange(entry, keys, (pair[1], pair[0]) in made),
                )
            first.setdefault(pair, n)
    names: dict[str, tuple[str, str]] = {}
    for pair, link in declared_links(keys, keys.sites, shape).items():
        if names.setdefault(link.name, pair) != pair:
            other = names[link.name]
            yield Violation(
                ("sites", pair[0]),
                f"the links {pair[0]} to {pair[1]} and {other[0]} to {other[1]} "
                f"would both be called `{link.name}`",
                "name one of the sites otherwise",
                True,
            )


def _mend_strange(entry: LinkKeys, keys: MeshKeys, is_turned: bool) -> str:
    if is_turned and goes_both_ways(entry, keys):
        return "take `both` out here, or add both: true to the mesh"
    if is_turned:
        return "turn `from` and `to` round, or add both: true to the mesh"
    return "take it out, or write topology: custom and all links"


_PASSWORD_REFERENCE = re.compile(r"env:[^\s]+|file:[^\s].*")


def reference_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Refuse each `link_password` that is no reference. A password in clear is refused since every
    site reads this file, and a site's password concerns no other site.
    """
    for name, site in keys.sites.items():
        if site.link_password is not None and not _PASSWORD_REFERENCE.fullmatch(site.link_password):
            yield Violation(
                ("sites", name, "link_password"),
                "this names no place where the password is",
                "write env:NAME or file:PATH",
            )


def separate_users_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Refuse `users: separate` without the management API, which makes these users."""
    for name, site in keys.sites.items():
        if site.users != "separate":
            continue
        if site.broker is None:
            wrong = "`users: separate` without a `broker` they are for"
            mend = "take it out: a private broker has them anyway"
        elif site.management is None:
            wrong = "`users: separate` without a `management` where they could be made"
            mend = "add management: https://HOST"
        else:
            continue
        depends_on = ("broker", "management")
        yield Violation(("sites", name, "users"), wrong, mend, True, depends_on=depends_on)


def shared_password_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Warn of each site's own broker whose password other sites would have to hold."""
    shape = shape_of(keys)
    holders: dict[str, list[str]] = {}
    for link in declared_links(keys, keys.sites, shape).values():
        meeting = keys.sites[link.meeting]
        if meeting.broker is None or meeting.auth == "external":
            continue
        for end in (link.sender, link.receiver):
            site = keys.sites[end]
            # The same reference at both sites means one password for all.
            is_shared = site.broker is not None and site.password == meeting.password
            if end != link.meeting and site.link_password is None and not is_shared:
                found = holders.setdefault(link.meeting, [])
                if end not in found:
                    found.append(end)
    for name, ends in holders.items():
        named = few([f"`{end}`" for end in ends])
        yield Violation(
            ("sites", name, "broker"),
            f"{named} would have to hold the password of this broker, since links meet here",
            "give those sites link_password: env:NAME or file:PATH, a password of their own to "
            "show here",
            severity=Severity.WARNING,
            depends_on=("password",),
        )


def reach_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check that every exchange reaches its destinations by sites that it may use: one violation an
    exchange, with the first pair without a way and the number of others. Warn of `acks: remote` at
    a site without neighbours.
    """
    shape = shape_of(keys)
    if len(keys.sites) < 2 or (shape is None and not keys.links):
        return
    words, rule = SiteWords(keys.sites), forwarding_rule(keys)
    links = declared_links(keys, keys.sites, shape)
    reaches: dict[frozenset[str], Reach] = {}
    for n, exchange in enumerate(keys.exchanges):
        avoided = frozenset(words.sites_of(exchange.never_via))
        allowed = words.all_but(exchange.never_via)
        origins, destinations = (
            [site for site in (words.sites_of(named) if named else allowed) if site not in avoided]
            for named in (exchange.origins, exchange.destinations)
        )
        if exchange.acks == "remote":
            senders = {a for (a, b), link in links.items() if not avoided & {b, link.meeting}}
            yield from _alone(exchange, n, origins, senders)
        if avoided not in reaches:
            # The broker of a meeting site holds the payload too, if only for a moment.
            pairs = (k for k, link in links.items() if not avoided & {*k, link.meeting})
            reaches[avoided] = Reach(pairs, rule)
        missing = reaches[avoided].missing(origins, destinations)
        first = next(missing, None)
        if first is None:
            continue
        origin, destination = first
        others = sum(1 for _ in missing)
        more = f" (and {others} more such {'pair' if others == 1 else 'pairs'})" if others else ""
        at: Location = ("exchanges", n, "name")
        for key, listed, site in (
            ("from", exchange.origins, origin),
            ("to", exchange.destinations, destination),
        ):
            for k, word in enumerate(listed or ()):
                if site in words.stands_for(word):
                    at = ("exchanges", n, key, k)
                    break
        if avoided:
            at = ("exchanges", n, "never_via")
        yield Violation(
            at,
            f"no links lead from `{origin}` to `{destination}`"
            f"{' round the sites of `never_via`' if avoided else ''}, so `{exchange.name}` "
            f"cannot get there{more}",
            "add a link, or name in `from` and `to` the sites it is for"
            + (", or let more sites hold it" if avoided else ""),
            depends_on=("from", "to", "never_via"),
        )


def _alone(
    exchange: ExchangeKeys, n: int, origins: Sequence[str], senders: Collection[str]
) -> Iterator[Violation]:
    alone = [site for site in origins if site not in senders]
    if alone:
        more = f" and {len(alone) - 1} more sites" if len(alone) > 1 else ""
        yield Violation(
            ("exchanges", n, "acks"),
            f"no link leads away from `{alone[0]}`{more}, so no neighbour ever has what is "
            f"published there, and `{exchange.name}` stays in the egress queue",
            "add a link, or write acks: local",
            severity=Severity.WARNING,
            depends_on=("from", "never_via"),
        )
