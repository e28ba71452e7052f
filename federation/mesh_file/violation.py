"""One thing in a mesh file that its keys, taken together, may not say."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

from federation.mesh_file.nearest import nearest
from federation.mesh_file.problems import Severity
from federation.mesh_file.yaml_tree import Location

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
