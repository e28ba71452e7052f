"""What was found wrong, as problems for people: in order, and each mistake once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from federation.mesh_file.problems import Problem, Severity
from federation.mesh_file.yaml_tree import Position


@dataclass(slots=True)
class Told:
    """Collects findings. `file` is the mesh file's own name."""

    file: str
    _found: dict[tuple[Position, str], Problem] = field(default_factory=dict)
    _settled: set[Position] = field(default_factory=set)

    def say(
        self,
        at: Position,
        wrong: str,
        mend: str,
        severity: Severity = Severity.ERROR,
        site: str = "",
    ) -> None:
        """The same thing at the same place counts once."""
        if at._replace(row=None) in self._settled:
            return
        problem = Problem(at.file or self.file, at.line, at.column, wrong, mend, severity, site)
        known = self._found.setdefault((at, wrong), problem)
        if known.site != site:  # an alias: several sites have it
            self._found[at, wrong] = replace(known, site="")

    def settle(self, at: Position, wrong: str, mend: str) -> None:
        """The same, and whatever is said of that place later only follows from it."""
        self.say(at, wrong, mend)
        self._settled.add(at)

    def problems(self) -> tuple[Problem, ...]:
        """In the order of the mesh file; after it those of other files, file by file."""
        told = dict.fromkeys(self._without_copies())
        return tuple(sorted(told, key=lambda p: (p.file != self.file, p.file, p.line, p.column)))

    def _without_copies(self) -> Iterable[Problem]:
        """What a template is wrong about is told once, at the template; what only some of its
        branches are wrong about, where these are named.
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
