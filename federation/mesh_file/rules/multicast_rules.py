"""Rules for a mesh with a multicast group. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.mesh import NO_MULTICAST, SIGNED_BATCH_FORMAT
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.keys.multicast_keys import MulticastKeys
from federation.mesh_file.keys.site_keys import SiteWords
from federation.mesh_file.problem import Severity, Violation, unknown_word
from federation.mesh_file.tree import Location
from federation.multicast import LEAST_SITES

MOST_REPLAYERS = 4
MOST_KEYS = 2
_AT: Location = ("topology", "multicast")


def multicast_violations(keys: MeshKeys, group: MulticastKeys) -> Iterator[Violation]:
    """Check the group, its replayers, and what the mesh needs for it."""
    if keys.both is False:
        yield Violation(("both",), "links of a group's sites go both ways", "take `both` out")
    members = [name for name, site in keys.sites.items() if site.multicast != NO_MULTICAST]
    if len(members) < LEAST_SITES:
        yield Violation(
            _AT,
            f"a group of {len(members)} {'site' if len(members) == 1 else 'sites'} saves nothing",
            f"take {LEAST_SITES} sites or more into it, or write topology: complete",
        )
    if not 1 <= len(group.secrets) <= MOST_KEYS:
        yield Violation((*_AT, "key"), f"these are {len(group.secrets)} keys", "write one, or two")
    for number, where in enumerate(group.secrets):
        if not where.startswith(("env:", "file:")):
            yield Violation(
                (*_AT, "key", number),
                "this is neither env:NAME nor file:PATH",
                "keep the key out of the mesh file: `isthmus keygen --group FILE` makes one",
            )
    yield from _replayers(keys, group)
    if keys.signing == "none":
        yield Violation(
            ("signing",),
            "every site of a group could send in the name of any other",
            "write signing: ed25519, and a `public_key` at each site",
        )
    if keys.batch_format < SIGNED_BATCH_FORMAT and keys.signing == "none":
        yield Violation(
            ("batch_format",),
            f"batches of format {keys.batch_format} have no room for a signature",
            f"write batch_format: {SIGNED_BATCH_FORMAT}",
        )
    if not any(_goes_over(keys, exchange, members) for exchange in keys.exchanges):
        yield Violation(
            _AT,
            "no exchange goes over the group: each is narrowed by `wants`, has `never_via`, or is"
            f" for fewer than {LEAST_SITES} sites of the group",
            "see what `to` and `wants` leave, or write topology: {hub: [...]}",
            severity=Severity.WARNING,
        )
    for name in members:
        if keys.sites[name].slots > 1:
            yield Violation(
                ("sites", name, "slots"),
                "a site of several slots is no member of a group",
                f"write multicast: {NO_MULTICAST} there, or take `slots` out",
            )


def _replayers(keys: MeshKeys, group: MulticastKeys) -> Iterator[Violation]:
    words = SiteWords(keys.sites)
    at: Location = (*_AT, "replayers")
    for number, word in enumerate(group.replayers):
        if not words.stands_for(word):
            yield unknown_word((*at, number), word, keys.sites, words.tags)
    replayers = words.sites_of(group.replayers)
    if len(replayers) > MOST_REPLAYERS:
        yield Violation(
            at,
            f"these are {len(replayers)} replayers",
            f"name {MOST_REPLAYERS} at most: all traffic goes over the links of each",
        )
    for name in replayers:
        if keys.sites[name].multicast == NO_MULTICAST:
            yield Violation(
                ("sites", name, "multicast"),
                f"`{name}` is a replayer, and no member of the group",
                "name another replayer, or take this out",
            )


def _goes_over(keys: MeshKeys, exchange: ExchangeKeys, members: list[str]) -> bool:
    """Return True if the exchange goes over the group: see `federation.multicast`."""
    is_narrowed = any(exchange.name in site.wants for site in keys.sites.values())
    words = SiteWords(keys.sites)
    reached = set(members)
    if exchange.destinations is not None:
        reached &= set(words.sites_of(exchange.destinations))
    return not is_narrowed and not exchange.never_via and len(reached) >= LEAST_SITES
