"""Rules for the shape of a mesh: ring, complete graph, tree, hub. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.site_keys import SiteWords
from federation.mesh_file.keys.topology_keys import HubKeys, RingKeys, TreeKeys
from federation.mesh_file.problem import Violation, unknown_site, unknown_word
from federation.mesh_file.rules.multicast_rules import multicast_violations
from federation.mesh_file.topologies import hubs_of, parents_of, spokes_of
from federation.mesh_file.tree import Location
from federation.wording import few

_ONE_OF = "topology: ring, complete, custom, {tree: ROOT} or {hub: SITE}"
_AT: Location = ("topology",)


def topology_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check the topology and the sites' keys of their place in it."""
    yield from _places(keys)
    if keys.topology is None:
        yield from topology_missing(keys)
        return
    kinds = keys.topology.kinds()
    if len(kinds) != 1:
        wrong = "more than one topology" if kinds else "no topology is named"
        yield Violation(_AT, wrong, f"write {_ONE_OF}")
        return
    if keys.topology.ring is not None:
        yield from _ring(keys, keys.topology.ring)
    if keys.topology.complete is not None:
        if len(keys.sites) < 2:
            yield Violation(_AT, "a complete graph takes two sites", "add a site")
        if keys.both is False:
            yield Violation(("both",), "in a complete graph links go both ways", "take `both` out")
    if keys.topology.tree is not None:
        yield from _tree(keys, keys.topology.tree)
    if keys.topology.hub is not None:
        yield from _hub(keys, keys.topology.hub)
    if keys.topology.custom is not None and not keys.links:
        yield Violation(_AT, "a custom topology without links", "add links: [{from: A, to: B}]")
    if keys.topology.multicast is not None:
        yield from multicast_violations(keys, keys.topology.multicast)


def topology_missing(keys: MeshKeys) -> Iterator[Violation]:
    """Refuse a file that declares no links at all."""
    if keys.topology is None and not keys.links:
        yield Violation((), "`topology` is missing", f"add {_ONE_OF}")


def _places(keys: MeshKeys) -> Iterator[Violation]:
    kinds = keys.topology.kinds() if keys.topology is not None else []
    for key, kind in (("parent", "tree"), ("hub", "hub")):
        if kind in kinds:
            continue
        for name, site in keys.sites.items():
            if getattr(site, key) is not None:
                yield Violation(
                    ("sites", name, key),
                    f"`{key}` means something in topology: {kind} only",
                    f"take it out, or write topology: {{{kind}: SITE}}",
                    True,
                )


def _ring(keys: MeshKeys, ring: RingKeys) -> Iterator[Violation]:
    count = len(keys.sites)
    if count < 3:
        yield Violation(
            _AT,
            f"a ring of {count} is none: it takes three sites",
            "add sites, or write topology: complete",
        )
    if None not in (ring.both, keys.both) and ring.both != keys.both:
        yield Violation(("both",), "this contradicts the ring's own `both`", "keep one of them")


def _tree(keys: MeshKeys, tree: TreeKeys) -> Iterator[Violation]:
    if len(keys.sites) < 2:
        yield Violation(_AT, "a tree takes two sites", "add a site")
    yield from _both_in("tree", keys)
    above: dict[str, str] = {}
    for name, site in keys.sites.items():
        if site.parent is None:
            continue
        at: Location = ("sites", name, "parent")
        if site.parent not in keys.sites:
            yield unknown_site(at, site.parent, tuple(keys.sites))
        elif site.parent == name:
            yield Violation(at, f"`{name}` hangs on itself", "name another site")
        above[name] = site.parent
    for parent, children in tree.children.items():
        at = ("topology", "tree", "children", parent)
        if parent not in keys.sites:
            yield unknown_site(at, parent, tuple(keys.sites), on_key=True)
        for n, child in enumerate(children):
            if child not in keys.sites:
                yield unknown_site((*at, n), child, tuple(keys.sites))
            elif child == parent:
                yield Violation((*at, n), f"`{child}` hangs on itself", "name another site")
            elif child in above:
                yield Violation(
                    (*at, n),
                    f"`{child}` hangs on `{above[child]}` already",
                    "a site of a tree has one parent: keep one of them",
                )
            above.setdefault(child, parent)
    yield from _root(keys, tree, above)


def _root(keys: MeshKeys, tree: TreeKeys, above: dict[str, str]) -> Iterator[Violation]:
    """Check the root. `above`: parent by site, as written; a parent may be unknown."""
    tops = [name for name in keys.sites if name not in above]
    root = tree.root
    if root is None:
        if len(tops) == 1:
            root = tops[0]
        elif tops:
            yield Violation(
                _AT,
                f"{_words(tops)} have no parent, so it is not known which is the root",
                "write topology: {tree: ROOT}, and parent: SITE at each other site",
            )
    elif root not in keys.sites:
        yield unknown_site(("topology", "tree", "root"), root, tuple(keys.sites))
    else:
        if root in above:
            yield Violation(
                ("topology", "tree", "root"),
                f"the root `{root}` hangs on `{above[root]}`",
                "take its parent out, or name another root",
            )
        for name in tops:
            if name != root:
                yield Violation(
                    ("sites", name),
                    f"`{name}` has no parent",
                    f"add parent: {root}, or another site",
                    True,
                    depends_on=("parent",),
                )
    yield from _circles(parents_of(keys), root)


def _circles(parents: dict[str, str], root: str | None) -> Iterator[Violation]:
    """Yield a violation for each circle; each site is walked once. A root in a circle is another
    mistake.
    """
    done: set[str] = set()
    for start in parents:
        way: list[str] = []
        site: str | None = start
        while site is not None and site not in done:
            done.add(site)
            way.append(site)
            site = parents.get(site)
        if site is not None and site in way and parents[site] != site:
            circle = [*way[way.index(site) :], site]
            if root in circle:
                continue
            yield Violation(
                ("sites", site, "parent"),
                f"{' hangs on '.join(f'`{name}`' for name in circle)}: no tree",
                "hang one of them on a site nearer to the root",
            )


def _hub(keys: MeshKeys, hub: HubKeys) -> Iterator[Violation]:
    words = SiteWords(keys.sites)
    yield from _both_in("hub mesh", keys)
    for n, word in enumerate(hub.center):
        if not words.stands_for(word):
            yield unknown_word(("topology", "hub", "center", n), word, keys.sites, words.tags)
    hubs, spokes = hubs_of(keys), spokes_of(keys)
    if not hubs:
        return
    if not spokes:
        yield Violation(_AT, "a hub without other sites", "add a site, or write topology: complete")
    for name, site in keys.sites.items():
        at: Location = ("sites", name, "hub")
        if site.hub is None:
            if name in spokes and len(hubs) > 1:
                yield Violation(
                    ("sites", name),
                    f"`{name}` does not say which of the {len(hubs)} hubs it hangs on",
                    f"add hub: {hubs[0]}, or several as [{', '.join(hubs[:2])}], or their tag",
                    True,
                    depends_on=("hub",),
                )
            continue
        if name not in spokes:
            yield Violation(at, f"`{name}` is a hub itself", "take `hub` out: hubs are all linked")
            continue
        for n, word in enumerate(site.hub):
            named = words.stands_for(word)
            if not named:
                yield unknown_word((*at, n), word, keys.sites, words.tags)
            elif not set(named) & set(hubs):
                yield Violation(
                    (*at, n),
                    f"`{word}` is no hub",
                    f"name one of {_words(hubs)}, or add it to topology: {{hub: [...]}}",
                )


def _both_in(shape: str, keys: MeshKeys) -> Iterator[Violation]:
    if keys.both is False:
        yield Violation(("both",), f"in a {shape} links go both ways", "take `both` out")


def _words(sites: Iterable[str]) -> str:
    return few([f"`{site}`" for site in sites], 8)
