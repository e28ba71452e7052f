"""Which directed links there are: the shape of the mesh, less or more what `links:` says. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from federation.mesh import ForwardingRule, Link
from federation.mesh_document import LinkKeys, MeshKeys

Pair = tuple[str, str]
"""Sender and receiver."""


def ring_pairs(sites: Sequence[str], *, both: bool) -> list[Pair]:
    """Each site to the next, the last to the first; with `both`, back as well."""
    onwards = [(site, sites[(n + 1) % len(sites)]) for n, site in enumerate(sites)]
    back = [(receiver, sender) for sender, receiver in onwards] if both else []
    return list(dict.fromkeys(pair for pair in onwards + back if pair[0] != pair[1]))


def complete_pairs(sites: Sequence[str]) -> list[Pair]:
    """Each site to every other."""
    return [(a, b) for a in sites for b in sites if a != b]


def forwarding_rule(keys: MeshKeys) -> ForwardingRule:
    """The complete graph has a rule of its own; any other graph has the ring's."""
    is_complete = keys.topology is not None and keys.topology.complete is not None
    return ForwardingRule.COMPLETE if is_complete else ForwardingRule.RING


def shaped_pairs(keys: MeshKeys) -> list[Pair] | None:
    """The links that the topology makes by itself; None where `links:` names them all."""
    topology, sites = keys.topology, list(keys.sites)
    if topology is not None and topology.ring is not None:
        both = topology.ring.both if topology.ring.both is not None else keys.both
        return ring_pairs(sites, both=bool(both))
    if topology is not None and topology.complete is not None:
        return complete_pairs(sites)
    return None


def goes_both_ways(entry: LinkKeys, keys: MeshKeys) -> bool:
    """Whether an entry of `links:` speaks of the way back too."""
    if entry.both is not None:
        return entry.both
    is_custom = keys.topology is None or keys.topology.custom is not None
    return is_custom and bool(keys.both)


def entry_links(entry: LinkKeys, keys: MeshKeys) -> Iterator[Link]:
    """The one or two links of an entry, whether or not its sites exist.

    `dial` names the one broker that both ways meet at; without it each way meets at its
    receiver's.
    """
    pairs = [(entry.sender, entry.receiver)]
    if goes_both_ways(entry, keys):
        pairs.append((entry.receiver, entry.sender))
    named = {"from": entry.sender, "to": entry.receiver}
    for sender, receiver in pairs:
        meeting = receiver if entry.dial is None else named.get(entry.dial, entry.dial)
        yield Link(sender, receiver, meeting, entry.via)


def declared_links(keys: MeshKeys, known: Collection[str]) -> dict[Pair, Link]:
    """All links by their pair, in a stable order. Entries that make no sense are left out:
    saying so is for mesh_rules.
    """
    shape = shaped_pairs(keys)
    links = {pair: Link(*pair, meeting=pair[1]) for pair in shape or ()}
    for entry in keys.links:
        for link in entry_links(entry, keys):
            pair = (link.sender, link.receiver)
            sound = {*pair, link.meeting} <= set(known) and link.sender != link.receiver
            if sound and (shape is None or pair in links):
                links[pair] = link
    return links
