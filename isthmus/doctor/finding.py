"""What an examination finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    UNKNOWN = "unknown"
    """Nobody could look; what is said tells why."""
    WARNING = "warning"
    """It works now, and will not when something else happens."""
    FAULT = "fault"
    """It does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `site` is empty for what belongs to this machine or the file.

    `mend` says what to do; empty where nothing is to be done.
    """

    grade: Grade
    site: str
    subject: str
    said: str
    mend: str = ""


class Findings:
    """Of one site, collected: `ok`, `warn`, `fault` and `unknown` each add one."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.all: list[Finding] = []

    @property
    def well(self) -> bool:
        """Has nothing been found that is not as it should be?"""
        return all(one.grade is Grade.OK for one in self.all)

    def ok(self, subject: str, said: str) -> None:
        self.all.append(Finding(Grade.OK, self.site, subject, said))

    def warn(self, subject: str, said: str, mend: str) -> None:
        self.all.append(Finding(Grade.WARNING, self.site, subject, said, mend))

    def fault(self, subject: str, said: str, mend: str) -> None:
        self.all.append(Finding(Grade.FAULT, self.site, subject, said, mend))

    def unknown(self, subject: str, said: str, mend: str = "") -> None:
        self.all.append(Finding(Grade.UNKNOWN, self.site, subject, said, mend))
