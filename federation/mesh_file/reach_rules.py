"""Whether every exchange gets from its origins to its destinations, by sites it may use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from federation.mesh_file.document import MeshKeys
from federation.mesh_file.exchange_keys import ExchangeKeys
from federation.mesh_file.problems import Severity
from federation.mesh_file.tags import SiteWords
from federation.mesh_file.topologies import declared_links, forwarding_rule, shape_of
from federation.mesh_file.violation import Violation
from federation.mesh_file.yaml_tree import Location
from federation.reachability import Reach


def reach_violations(keys: MeshKeys) -> Iterator[Violation]:
    """One violation an exchange: the first pair with no way, and how many more there are. Also:
    `acks: remote` at a site that has no neighbour.
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
            [site for site in (words.sites_of(said) if said else allowed) if site not in avoided]
            for said in (exchange.origins, exchange.destinations)
        )
        if exchange.acks == "remote":
            senders = {a for (a, b), link in links.items() if not avoided & {b, link.meeting}}
            yield from _alone(exchange, n, origins, senders)
        if avoided not in reaches:
            # A broker that two others meet at holds the payload too, if only for a moment.
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
        for key, said, site in (
            ("from", exchange.origins, origin),
            ("to", exchange.destinations, destination),
        ):
            for k, word in enumerate(said or ()):
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
