"""Problems of a mesh file, from a rule's violation to the ordered list for people. Pure.

MeshFileError      the file cannot be used; carries every problem found, not just the first
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from federation.destinations import literal_wildcard
from federation.mesh_file.tree import Location, Position
from federation.wording import few, nearest


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    """The file can be used, but a person should look."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its place. Line and column count from 1; a tab is one column."""

    file: str
    line: int
    column: int
    wrong: str
    """Mistake, in words."""
    mend: str
    """Remedy, often with the likely intention."""
    severity: Severity = Severity.ERROR
    site: str = ""
    """Site that alone is affected, or an empty text."""

    def __str__(self) -> str:
        kind = "" if self.severity is Severity.ERROR else f"{self.severity.value}: "
        mend = f"; {self.mend}" if self.mend else ""
        return f"{self.file}:{self.line}:{self.column}: {kind}{self.wrong}{mend}"


class MeshFileError(Exception):
    """A mesh file that cannot be used. `problems` are in the file's order, warnings included."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


@dataclass(slots=True)
class ProblemList:
    """Collector of problems: in order, and each mistake once. `file` is the mesh file's own
    name.
    """

    file: str
    _found: dict[tuple[Position, str], Problem] = field(default_factory=dict)
    _settled: set[Position] = field(default_factory=set)

    def add(
        self,
        at: Position,
        wrong: str,
        mend: str,
        severity: Severity = Severity.ERROR,
        site: str = "",
    ) -> None:
        """Add a problem; the same problem at the same place counts once."""
        if at._replace(row=None) in self._settled:
            return
        problem = Problem(at.file or self.file, at.line, at.column, wrong, mend, severity, site)
        known = self._found.setdefault((at, wrong), problem)
        if known.site != site:  # an alias: several sites have it
            self._found[at, wrong] = replace(known, site="")

    def settle(self, at: Position, wrong: str, mend: str) -> None:
        """Add a problem, and ignore later ones at its place, which only follow from it."""
        self.add(at, wrong, mend)
        self._settled.add(at)

    def problems(self) -> tuple[Problem, ...]:
        """Return the problems in the order of the mesh file, then those of other files, file by
        file.
        """
        found = dict.fromkeys(self._without_copies())
        return tuple(sorted(found, key=lambda p: (p.file != self.file, p.file, p.line, p.column)))

    def _without_copies(self) -> Iterable[Problem]:
        """Yield a mistake of most branches of a template once, at the template; a mistake of some
        branches only, where these are named.
        """
        copies: dict[tuple[Position, Severity], list[tuple[Position, Problem]]] = {}
        for (at, _), problem in self._found.items():
            if at.row is None:
                yield problem
            else:
                place = at._replace(row=None)
                copies.setdefault((place, problem.severity), []).append((at, problem))
        for (template, _), found in copies.items():
            rows = dict.fromkeys(at.row for at, _ in found)
            first = found[0][0].row
            assert first is not None
            if 2 * len(rows) > first.of:
                yield from (
                    _and_others(problem, len(rows) - 1) for at, problem in found if at.row == first
                )
                continue
            for at, problem in found:
                assert at.row is not None
                yield Problem(
                    at.row.file or self.file,
                    at.row.line,
                    at.row.column,
                    f"{problem.wrong} (by line {template.line} of {problem.file})",
                    problem.mend,
                    problem.severity,
                    problem.site,
                )


def _and_others(problem: Problem, count: int) -> Problem:
    if not count:
        return problem
    of_it = "branch" if count == 1 else "branches"
    wrong = f"{problem.wrong} (and at {count} other {of_it} of this template)"
    return Problem(
        problem.file, problem.line, problem.column, wrong, problem.mend, problem.severity
    )


EVERY_SITE = ("all", "any", "every", "*")
"""Words that people write for all sites, for which the key has to be left out."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A breach of a rule by keys taken together. `on_key`: the key at `location` is wrong, not its
    value. `depends_on`: keys of the same site or exchange; if one of them could not be read, the
    violation may be mistaken.
    """

    location: Location
    wrong: str
    mend: str
    on_key: bool = False
    severity: Severity = Severity.ERROR
    depends_on: tuple[str, ...] = ()

    @property
    def site(self) -> str:
        """Site that alone is affected, or an empty text."""
        match self.location:
            case ("sites", str(name), *_):
                return name
        return ""


def unknown_site(
    at: Location, site: str, sites: Collection[str], *, on_key: bool = False
) -> Violation:
    """Return the violation of an unknown name where only a site's name may stand."""
    return Violation(at, f"there is no site `{site}`", _site_mend(site, tuple(sites)), on_key)


def unknown_word(
    at: Location, word: str, sites: Collection[str], tags: Collection[str]
) -> Violation:
    """Return the violation of an unknown word where a site's name or a tag may stand."""
    if word in EVERY_SITE:
        return Violation(at, f"there is no site `{word}`", f"leave `{at[-2]}` out for all sites")
    if not tags:
        return unknown_site(at, word, sites)
    return Violation(
        at, f"there is no site or tag `{word}`", _site_mend(word, tuple(sites), tuple(tags))
    )


def literal_wildcards(at: Location, pattern: str) -> Iterator[Violation]:
    """Yield a warning for a topic pattern with stars or hashes that brokers take literally."""
    if word := literal_wildcard(pattern):
        yield Violation(
            at,
            f"* and # stand for words only by themselves, between dots: `{word}` is taken as it "
            "stands",
            f"write {_with_whole_words(pattern)} if any words are meant",
            severity=Severity.WARNING,
        )


def _with_whole_words(pattern: str) -> str:
    """Return the likely pattern: `order.#` for `order.**`, `order.*` for `order.new*`."""
    words = [
        word if not literal_wildcard(word) else "#" if "#" in word or "**" in word else "*"
        for word in pattern.split(".")
    ]
    return ".".join(words)


# A template may repeat a mistake five hundred times, among five hundred sites.
@functools.lru_cache(maxsize=16)
def _site_mend(word: str, sites: tuple[str, ...], tags: tuple[str, ...] = ()) -> str:
    likely = nearest(word, (*sites, *tags))
    if likely:
        return f"did you mean `{likely}`?"
    listed = f"the sites are {few(sites, 8)}"
    return f"{listed}; the tags are {few(tags, 8)}" if tags else listed
