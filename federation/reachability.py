"""Who can be reached from where under a forwarding rule. Pure; a mesh of 500 sites in no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from federation.mesh import ForwardingRule

Neighbours = Mapping[str, Collection[str]]


def neighbours(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Receivers by sender."""
    found: dict[str, set[str]] = {}
    for sender, receiver in pairs:
        found.setdefault(sender, set()).add(receiver)
    return found


def reached_from(site: str, graph: Neighbours, rule: ForwardingRule) -> set[str]:
    """The sites that a batch of `site` gets to, `site` itself included.

    Under the ring's rule that is any site at the end of a path: a path without repeats exists
    whenever there is any. Sites on the way need not want the batch.
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
    """Answers for many exchanges over one graph, working each origin out once."""

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
        """Pairs (origin, destination) with no way from the one to the other."""
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
