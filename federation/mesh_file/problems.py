"""What is wrong with a mesh file, and where.

MeshFileError      the file cannot be used; carries every problem found, not just the first
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    """The file can be used, but somebody should look."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. Line and column count from 1; a tab is one column."""

    file: str
    line: int
    column: int
    wrong: str
    """What is wrong, and what was probably meant."""
    mend: str
    """What to do about it."""
    severity: Severity = Severity.ERROR
    site: str = ""
    """Of whom it is said; empty if it is no single site's affair."""

    def __str__(self) -> str:
        kind = "" if self.severity is Severity.ERROR else f"{self.severity.value}: "
        mend = f"; {self.mend}" if self.mend else ""
        return f"{self.file}:{self.line}:{self.column}: {kind}{self.wrong}{mend}"


class MeshFileError(Exception):
    """A mesh file that cannot be used. `problems` are in the file's order, warnings too."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))
