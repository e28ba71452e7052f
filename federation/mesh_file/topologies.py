"""Directed links of a mesh: those of its shape, changed by `links:`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from federation.mesh import ForwardingRule, Link
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.site_keys import SiteWords
from federation.mesh_file.keys.topology_keys import LinkKeys

Pair = tuple[str, str]
"""Sender and receiver."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Links that a topology makes by itself. `meetings`: meeting sites other than the receiver."""

    pairs: tuple[Pair, ...]
    meetings: Mapping[Pair, str] = field(default_factory=dict)

    def meeting(self, pair: Pair) -> str:
        """Return the site whose broker both ends of a link dial."""
        return self.meetings.get(pair, pair[1])


def ring_shape(sites: Sequence[str], *, both: bool) -> Shape:
    """Link each site to the next, the last to the first; with `both`, back as well."""
    onwards = [(site, sites[(n + 1) % len(sites)]) for n, site in enumerate(sites)]
    back = [(receiver, sender) for sender, receiver in onwards] if both else []
    return Shape(tuple(dict.fromkeys(pair for pair in onwards + back if pair[0] != pair[1])))


def complete_shape(sites: Sequence[str]) -> Shape:
    """Link each site to every other."""
    return Shape(tuple((a, b) for a in sites for b in sites if a != b))


def tree_shape(parents: Mapping[str, str]) -> Shape:
    """Link each site and its parent, both ways; the child dials, since it may be behind NAT."""
    return _hanging_on({child: (parent,) for child, parent in parents.items()})


def hub_shape(hubs: Sequence[str], spokes: Mapping[str, Sequence[str]]) -> Shape:
    """Link hubs with each other, and every other site both ways with its hubs; the site dials."""
    among, hanging = complete_shape(hubs), _hanging_on(spokes)
    return Shape(among.pairs + hanging.pairs, hanging.meetings)


def _hanging_on(uppers: Mapping[str, Sequence[str]]) -> Shape:
    meetings = {
        pair: upper
        for site, above in uppers.items()
        for upper in above
        if upper != site
        for pair in ((upper, site), (site, upper))
    }
    return Shape(tuple(meetings), meetings)


def forwarding_rule(keys: MeshKeys) -> ForwardingRule:
    """Return the forwarding rule: the complete graph has its own; any other graph has the
    ring's.
    """
    is_complete = keys.topology is not None and keys.topology.complete is not None
    return ForwardingRule.COMPLETE if is_complete else ForwardingRule.RING


def parents_of(keys: MeshKeys) -> dict[str, str]:
    """Return, in a tree, the parent of each site with a known one. If `parent` and `children`
    differ, the first counts.
    """
    tree = keys.topology.tree if keys.topology is not None else None
    found = {
        name: site.parent
        for name, site in keys.sites.items()
        if site.parent is not None and site.parent in keys.sites
    }
    if tree is not None:
        for parent, children in tree.children.items():
            for child in children:
                if parent in keys.sites and child in keys.sites:
                    found.setdefault(child, parent)
    return found


def hubs_of(keys: MeshKeys) -> tuple[str, ...]:
    """Return the hubs of a hub mesh; those of a multicast group are its replayers."""
    topology = keys.topology
    if topology is not None and topology.multicast is not None:
        return SiteWords(keys.sites).sites_of(topology.multicast.replayers)
    hub = topology.hub if topology is not None else None
    return SiteWords(keys.sites).sites_of(hub.center) if hub is not None else ()


def spokes_of(keys: MeshKeys) -> dict[str, tuple[str, ...]]:
    """Return, in a hub mesh, the hubs of each other site."""
    words, hubs = SiteWords(keys.sites), hubs_of(keys)
    if keys.topology is not None and keys.topology.multicast is not None:
        return {name: hubs for name in keys.sites if name not in hubs}
    spokes: dict[str, tuple[str, ...]] = {}
    for name, site in keys.sites.items():
        if name in hubs:
            continue
        if site.hub is not None:
            spokes[name] = tuple(hub for hub in words.sites_of(site.hub) if hub in hubs)
        else:
            spokes[name] = hubs if len(hubs) == 1 else ()
    return spokes


def shape_of(keys: MeshKeys) -> Shape | None:
    """Return the links that the topology makes by itself, or None if `links:` names them all."""
    topology, sites = keys.topology, list(keys.sites)
    if topology is None:
        return None
    if topology.ring is not None:
        both = topology.ring.both if topology.ring.both is not None else keys.both
        return ring_shape(sites, both=bool(both))
    if topology.complete is not None:
        return complete_shape(sites)
    if topology.tree is not None:
        return tree_shape(parents_of(keys))
    if topology.hub is not None or topology.multicast is not None:
        return hub_shape(hubs_of(keys), spokes_of(keys))
    return None


def goes_both_ways(entry: LinkKeys, keys: MeshKeys) -> bool:
    """Return True if an entry of `links:` includes the way back."""
    if entry.both is not None:
        return entry.both
    is_custom = keys.topology is None or keys.topology.custom is not None
    return is_custom and bool(keys.both)


def entry_links(entry: LinkKeys, keys: MeshKeys, shape: Shape | None) -> Iterator[Link]:
    """Yield the one or two links of an entry, whether or not its sites exist.

    `dial` names the broker where both ways meet; otherwise each way meets where the topology puts
    it, by default at its receiver's broker.
    """
    pairs = [(entry.sender, entry.receiver)]
    if goes_both_ways(entry, keys):
        pairs.append((entry.receiver, entry.sender))
    named = {"from": entry.sender, "to": entry.receiver}
    for pair in pairs:
        if entry.dial is not None:
            meeting = named.get(entry.dial, entry.dial)
        else:
            meeting = shape.meeting(pair) if shape is not None else pair[1]
        max_rate = entry.max_rate or keys.max_rate
        yield Link(*pair, meeting, entry.via, entry.availability, max_rate)


def declared_links(
    keys: MeshKeys, known: Collection[str], shape: Shape | None = None
) -> dict[Pair, Link]:
    """Return all links by their pair, in a stable order, without entries that make no sense:
    `rules` report them. `shape` is that of the keys, if the caller has it.
    """
    shape = shape if shape is not None else shape_of(keys)
    links = (
        {pair: Link(*pair, shape.meeting(pair), max_rate=keys.max_rate) for pair in shape.pairs}
        if shape
        else {}
    )
    known = set(known)
    for entry in keys.links:
        for link in entry_links(entry, keys, shape):
            pair = (link.sender, link.receiver)
            sound = {*pair, link.meeting} <= known and link.sender != link.receiver
            if sound and (shape is None or pair in links):
                links[pair] = link
    return links
