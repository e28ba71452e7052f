"""Reachability between sites under a forwarding rule. Pure; fast for 500 sites."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from federation.mesh import ForwardingRule

Neighbours = Mapping[str, Collection[str]]


def neighbours(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return receivers by sender."""
    found: dict[str, set[str]] = {}
    for sender, receiver in pairs:
        found.setdefault(sender, set()).add(receiver)
    return found


def reached_from(site: str, graph: Neighbours, rule: ForwardingRule) -> set[str]:
    """Return the sites that a batch of `site` gets to, including `site`.

    Under the ring's rule these are all sites at the end of a path: a path without repeats exists
    whenever any path does. Sites on the way need not want the batch.
    """
    if rule is ForwardingRule.COMPLETE:
        return {site, *graph.get(site, ())}
    seen, waiting = {site}, deque([site])
    while waiting:
        for neighbour in graph.get(waiting.popleft(), ()):
            if neighbour not in seen:
                seen.add(neighbour)
                waiting.append(neighbour)
    return seen


class Reach:
    """Reachability in one graph for many exchanges, with each origin searched once."""

    def __init__(self, pairs: Iterable[tuple[str, str]], rule: ForwardingRule) -> None:
        pairs = list(pairs)
        self._rule = rule
        self._graph = neighbours(pairs)
        self._back = neighbours((receiver, sender) for sender, receiver in pairs)
        self._from: dict[str, set[str]] = {}
        self._all = {site for pair in pairs for site in pair}
        self._strong = self._is_strong()

    def missing(
        self, origins: Iterable[str], destinations: Iterable[str]
    ) -> Iterator[tuple[str, str]]:
        """Yield the pairs (origin, destination) without a path."""
        wanted = list(destinations)
        all_wanted = frozenset(wanted)
        are_linked = self._all.issuperset(wanted)
        for origin in origins:
            if self._strong and are_linked and origin in self._all:
                continue
            if origin not in self._from:
                self._from[origin] = reached_from(origin, self._graph, self._rule)
            if all_wanted <= self._from[origin]:
                continue
            for destination in wanted:
                if destination not in self._from[origin]:
                    yield origin, destination

    def _is_strong(self) -> bool:
        if self._rule is ForwardingRule.COMPLETE or not self._all:
            return False
        start = next(iter(self._all))
        return all(
            reached_from(start, graph, self._rule) == self._all
            for graph in (self._graph, self._back)
        )
