"""One thing in a mesh file that its keys, taken together, may not say."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from federation.mesh_file.nearest import nearest
from federation.mesh_file.problems import Severity
from federation.mesh_file.yaml_tree import Location
from federation.topic_keys import literal_wildcard

EVERY_SITE = ("all", "any", "every", "*")
"""What people write for all sites, which is said by leaving the key out."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`on_key`: it is the key at `location` that is wrong, not its value. `depends_on` are keys of
    the same site or exchange: where one of them could not be read, this may be wrongly said.
    """

    location: Location
    wrong: str
    mend: str
    on_key: bool = False
    severity: Severity = Severity.ERROR
    depends_on: tuple[str, ...] = ()

    @property
    def site(self) -> str:
        """Of whom it is said; empty if it is no single site's affair."""
        match self.location:
            case ("sites", str(name), *_):
                return name
        return ""


def unknown_site(
    at: Location, site: str, sites: Collection[str], *, on_key: bool = False
) -> Violation:
    """Where only a site's name may stand."""
    return Violation(at, f"there is no site `{site}`", _meant(site, tuple(sites)), on_key)


def unknown_word(
    at: Location, word: str, sites: Collection[str], tags: Collection[str]
) -> Violation:
    """Where a site's name or a tag may stand."""
    if word in EVERY_SITE:
        return Violation(at, f"there is no site `{word}`", f"leave `{at[-2]}` out for all sites")
    if not tags:
        return unknown_site(at, word, sites)
    return Violation(
        at, f"there is no site or tag `{word}`", _meant(word, tuple(sites), tuple(tags))
    )


def literal_wildcards(at: Location, pattern: str) -> Iterator[Violation]:
    """Of a topic pattern: stars and hashes that stand for nothing but themselves."""
    if word := literal_wildcard(pattern):
        yield Violation(
            at,
            f"* and # stand for words only by themselves, between dots: `{word}` is taken as it "
            "stands",
            f"write {_with_whole_words(pattern)} if any words are meant",
            severity=Severity.WARNING,
        )


def _with_whole_words(pattern: str) -> str:
    """What was probably meant: `order.**` is `order.#`, `order.new*` is `order.*`."""
    words = [
        word if not literal_wildcard(word) else "#" if "#" in word or "**" in word else "*"
        for word in pattern.split(".")
    ]
    return ".".join(words)


# A template may have the same mistake made five hundred times over, among five hundred sites.
@functools.lru_cache(maxsize=16)
def _meant(word: str, sites: tuple[str, ...], tags: tuple[str, ...] = ()) -> str:
    meant = nearest(word, (*sites, *tags))
    if meant:
        return f"did you mean `{meant}`?"
    listed = f"the sites are {_listed(sites)}"
    return f"{listed}; the tags are {_listed(tags)}" if tags else listed


def _listed(words: Collection[str], most: int = 8) -> str:
    shown = ", ".join(list(words)[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown
