"""Choice of the files that a night opens. Pure.

A night opens files of the day and of the outage window before it, in which the barrier promises no
duplicates. While messages of earlier days are open, it also opens every file that no night has
opened, and files with rows of the open batches. A file that an earlier night opened is known by its
description there: a named file never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_audit.ledgers.books import FileRows
from spark_audit.ledgers.files import LedgerPath


@dataclass(slots=True)
class KnownFile:
    """Description of a file by an earlier night. `is_held`: it has rows of batches that
    were open.
    """

    size: int
    rows: list[FileRows] = field(default_factory=list)
    is_held: bool = False

    @property
    def to_ms(self) -> int:
        return max(one.to_ms for one in self.rows)


@dataclass(frozen=True, slots=True)
class NightPlan:
    """Files of a night. `of_day`: files that decide the day's books. `opened`: all opened files;
    `day_opened`: URIs of those that concern the day. `known_rows`: rows of closed files. `unseen`:
    URIs of the day's files that no earlier night has opened.
    """

    of_day: tuple[LedgerPath, ...]
    opened: tuple[LedgerPath, ...]
    day_opened: frozenset[str]
    known_rows: tuple[FileRows, ...] = ()
    unseen: frozenset[str] = frozenset()

    @classmethod
    def of_all(cls, files: Iterable[LedgerPath]) -> NightPlan:
        """Return the plan without earlier nights: open every file."""
        every = tuple(files)
        return cls(every, every, frozenset(one.uri for one in every))


def plan_night(
    files: Iterable[LedgerPath],
    known: Mapping[str, KnownFile],
    window_date: str,
    window_ms: int,
    *,
    is_open: bool,
) -> NightPlan:
    """Choose the files. `window_date`, `window_ms`: first date folder and recording time that the
    day needs. `is_open`: True if messages of earlier days are open.
    """
    of_day, opened, day_opened, closed, unseen = [], [], set(), [], set()
    for file in files:
        earlier = known.get(file.uri)
        if earlier is not None and earlier.size != file.size:
            earlier = None
        is_of_day = file.date >= window_date
        if is_of_day:
            of_day.append(file)
        needs_day = is_of_day and (earlier is None or earlier.to_ms >= window_ms)
        if needs_day or (is_open and (earlier is None or earlier.is_held)):
            opened.append(file)
            if needs_day:
                day_opened.add(file.uri)
                if earlier is None:
                    unseen.add(file.uri)
        elif earlier is not None:
            closed += earlier.rows
    return NightPlan(
        tuple(of_day), tuple(opened), frozenset(day_opened), tuple(closed), frozenset(unseen)
    )
