"""Findings of an examination."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    UNKNOWN = "unknown"
    """Check that could not be made; the text gives the reason."""
    WARNING = "warning"
    """Weakness: the part works now, and fails under other circumstances."""
    FAULT = "fault"
    """Failure: the part does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `site` is empty for this machine and the mesh file; `mend` is the
    remedy, empty if none is needed.
    """

    grade: Grade
    site: str
    subject: str
    said: str
    mend: str = ""


class Findings:
    """Findings of one site: `ok`, `warn`, `fault` and `unknown` each add one."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.all: list[Finding] = []

    @property
    def well(self) -> bool:
        """True if all findings are OK."""
        return all(one.grade is Grade.OK for one in self.all)

    def ok(self, subject: str, said: str) -> None:
        self.all.append(Finding(Grade.OK, self.site, subject, said))

    def warn(self, subject: str, said: str, mend: str) -> None:
        self.all.append(Finding(Grade.WARNING, self.site, subject, said, mend))

    def fault(self, subject: str, said: str, mend: str) -> None:
        self.all.append(Finding(Grade.FAULT, self.site, subject, said, mend))

    def unknown(self, subject: str, said: str, mend: str = "") -> None:
        self.all.append(Finding(Grade.UNKNOWN, self.site, subject, said, mend))
