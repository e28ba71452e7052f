"""What the entries of `links:` must satisfy, and the names that links get. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.mesh_file.document import MeshKeys
from federation.mesh_file.topologies import declared_links, entry_links, goes_both_ways, shape_of
from federation.mesh_file.topology_keys import LinkKeys
from federation.mesh_file.violation import Violation, unknown_site
from federation.mesh_file.yaml_tree import Location


def link_violations(
    keys: MeshKeys, *, graph_is_known: bool = True, sites_are_known: bool = True
) -> Iterator[Violation]:
    """All that is wrong with single links, as far as that does not follow from something else."""
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
