"""One thing in a mesh file that its keys, taken together, may not say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from federation.nearest import nearest
from federation.problems import Severity
from federation.yaml_tree import Location


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


def unknown_site(at: Location, site: str, sites: Collection[str]) -> Violation:
    meant = nearest(site, sites)
    mend = f"did you mean `{meant}`?" if meant else f"the sites are {_listed(sites)}"
    return Violation(at, f"there is no site `{site}`", mend)


def _listed(words: Collection[str], most: int = 8) -> str:
    shown = ", ".join(list(words)[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown
