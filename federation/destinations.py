"""Destination sites of a message, by its exchange, its key, and what sites want. Pure.

A site takes all of an exchange, or narrows it by patterns (`wants`): topic patterns, or whole keys
of a direct exchange. As soon as any site narrows an exchange, its messages are addressed by key::

    wants      s1: store.s1.#     s2: store.s2.#     head office: everything
    store.s1.price                -> s1, head office
    store.s9.price                -> head office
    news                          -> head office

A key that all sites take is addressed as if no site narrowed. A key that no site takes is addressed
to its own origin, where it is logged like any other and goes no further: so the ledger has it, and
a message returned to an egress queue is recognized from the log whatever sites wanted at the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from federation.mesh import Exchange, Mesh

KEYS_REMEMBERED = 8192
"""Keys whose sites are cached: a look-up costs a thirtieth of a search. A full cache is cleared,
which costs less than tracking the last use of each key.
"""
SETS_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class Addressing:
    """Rules by which a site addresses its messages of one exchange. All sites are cluster IDs."""

    origin: str
    plain: tuple[str, ...]
    """Destination set of a key that all sites take; empty for every site of the mesh."""
    whole: tuple[str, ...]
    """Sites that take everything, without the origin."""
    narrowed: tuple[tuple[str, tuple[str, ...]], ...]
    """Sites that narrow the exchange, each with its patterns."""
    by_topic: bool = True
    """True if the patterns are topic patterns, false if whole keys."""


def addressing_of(mesh: Mesh, exchange: Exchange, site: str) -> Addressing | None:
    """Return how `site` addresses its messages of the exchange, or None if no other site narrows
    it.
    """
    whole: list[str] = []
    narrowed: list[tuple[str, tuple[str, ...]]] = []
    for other in mesh.sites.values():
        if other.name == site or other.name in exchange.never_via:
            continue
        if not exchange.reaches(other.name):
            continue
        patterns = other.wants.get(exchange.name)
        if patterns is None:
            whole.append(other.cluster_id)
        else:
            narrowed.append((other.cluster_id, tuple(patterns)))
    if not narrowed:
        return None
    return Addressing(
        mesh.sites[site].cluster_id,
        mesh.destination_set(exchange),
        tuple(sorted(whole)),
        tuple(sorted(narrowed)),
        exchange.type == "topic",
    )


class DestinationIndex:
    """Index of destination sets by key. Equal sets are nearly always the same tuple."""

    def __init__(self, addressing: Addressing) -> None:
        self.nobody = (addressing.origin,)
        """Destination set of a message that no site takes."""
        self._whole = addressing.whole
        self._plain = addressing.plain
        self._narrowed = len(addressing.narrowed)
        patterns: PatternIndex = TopicIndex() if addressing.by_topic else KeyIndex()
        for site, wanted in addressing.narrowed:
            for pattern in wanted:
                patterns.add(pattern.encode(), site)
        self._patterns = patterns
        self._known: dict[bytes, tuple[str, ...]] = {}
        self._sets: dict[frozenset[str], tuple[str, ...]] = {}

    def of(self, key: bytes) -> tuple[str, ...]:
        """Return sorted cluster IDs; empty for every site of the mesh."""
        found = self._known.get(key)
        if found is None:
            found = self._set_of(self._patterns.sites_for(key))
            if len(self._known) >= KEYS_REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _set_of(self, matching: frozenset[str]) -> tuple[str, ...]:
        found = self._sets.get(matching)
        if found is None:
            if len(matching) == self._narrowed:
                found = self._plain
            else:
                found = tuple(sorted((*self._whole, *matching))) or self.nobody
            if len(self._sets) >= SETS_REMEMBERED:
                self._sets.clear()
            self._sets[matching] = found
        return found


class PatternIndex(Protocol):
    """Index of sites by the patterns that match a key."""

    def add(self, pattern: bytes, site: str) -> None: ...

    def sites_for(self, key: bytes) -> frozenset[str]:
        """Return the sites of all patterns that match the key."""
        ...


class KeyIndex:
    """Index for direct exchanges: a pattern is a whole key."""

    def __init__(self) -> None:
        self._sites: dict[bytes, set[str]] = {}

    def add(self, pattern: bytes, site: str) -> None:
        self._sites.setdefault(pattern, set()).add(site)

    def sites_for(self, key: bytes) -> frozenset[str]:
        return frozenset(self._sites.get(key, ()))


class _Node:
    """Node of the tree of words: its children, and the sites whose patterns end here."""

    __slots__ = ("any_word", "any_words", "loops", "sites", "words")

    def __init__(self, *, loops: bool = False) -> None:
        self.words: dict[bytes, _Node] = {}
        self.any_word: _Node | None = None
        self.any_words: _Node | None = None
        self.loops = loops
        """True behind a `#`: any word leads back here."""
        self.sites: set[str] = set()


class TopicIndex:
    """Topic patterns as one tree of words, in which all matching nodes are followed at once: the
    time grows with the words that match, not with the patterns, and no pattern makes it explode.

    Words stand between dots; `*` is any single word, `#` any number of words. An empty key has
    none.
    """

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: bytes, site: str) -> None:
        node = self._root
        for word in _words(pattern):
            if word == b"#":
                if not node.loops:  # `#.#` equals `#`
                    node.any_words = node.any_words or _Node(loops=True)
                    node = node.any_words
            elif word == b"*":
                node.any_word = node.any_word or _Node()
                node = node.any_word
            else:
                node = node.words.setdefault(word, _Node())
        node.sites.add(site)

    def sites_for(self, key: bytes) -> frozenset[str]:
        places = _with_no_word([self._root])
        for word in _words(key):
            followed: list[_Node] = []
            for node in places:
                if (child := node.words.get(word)) is not None:
                    followed.append(child)
                if node.any_word is not None:
                    followed.append(node.any_word)
                if node.loops:
                    followed.append(node)
            places = _with_no_word(followed)
        return frozenset[str]().union(*[node.sites for node in places])


def _with_no_word(nodes: Iterable[_Node]) -> list[_Node]:
    """Return the nodes, and those that a `#` reaches without a word; each once."""
    found: dict[_Node, None] = {}
    for node in nodes:
        found[node] = None
        if node.any_words is not None:
            found[node.any_words] = None
    return list(found)


def _words(text: bytes) -> list[bytes]:
    return text.split(b".") if text else []


def may_both_match(pattern: str, other: str) -> bool:
    """Return True if some key matches both patterns."""
    left, right = pattern.split("."), other.split(".")
    # row[j]: the words of `left` so far and the first j of `right` can match the same words.
    row = [True] + [False] * len(right)
    for j, word in enumerate(right, 1):
        row[j] = row[j - 1] and word == "#"
    for first in left:
        below = [row[0] and first == "#"] + [False] * len(right)
        for j, second in enumerate(right, 1):
            if first == "#" or second == "#":
                # `#` matches no word, or the other pattern's word.
                below[j] = row[j] or below[j - 1]
            else:
                below[j] = row[j - 1] and ("*" in (first, second) or first == second)
        row = below
    return row[-1]


def literal_wildcard(pattern: str) -> str:
    """Return the first word with a `*` or `#` beside other characters, which brokers take
    literally; empty if there is none.
    """
    for word in pattern.split("."):
        if len(word) > 1 and ("*" in word or "#" in word):
            return word
    return ""
