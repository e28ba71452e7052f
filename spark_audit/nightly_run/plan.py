"""Which files a night opens. Pure.

Those of the day and of the outage window before it, in which the barrier promises that nothing
comes twice. While something of earlier days is open, also every file that nobody has looked into
since, and those that have rows of the batches in question. What an earlier night has looked into is
known by what it wrote down of it: a file that has its name never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_audit.ledgers.books import FileRows
from spark_audit.ledgers.files import LedgerPath


@dataclass(slots=True)
class KnownFile:
    """What a night wrote down of a file. `is_held`: it has rows of batches that were open then."""

    size: int
    rows: list[FileRows] = field(default_factory=list)
    is_held: bool = False

    @property
    def to_ms(self) -> int:
        return max(one.to_ms for one in self.rows)


@dataclass(frozen=True, slots=True)
class NightPlan:
    """`of_day`: files that the day's books are judged by. `opened`: all that are. `day_opened`:
    URIs of those of them that tell of the day. `known_rows`: of what stays closed. `unseen`: URIs
    of the day's files that no earlier night has looked into.
    """

    of_day: tuple[LedgerPath, ...]
    opened: tuple[LedgerPath, ...]
    day_opened: frozenset[str]
    known_rows: tuple[FileRows, ...] = ()
    unseen: frozenset[str] = frozenset()

    @classmethod
    def of_all(cls, files: Iterable[LedgerPath]) -> NightPlan:
        """Without any earlier night."""
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
    """`window_date`, `window_ms`: the first folder and moment of recording that the day needs.
    `is_open`: something of earlier days is.
    """
    of_day, opened, day_opened, closed, unseen = [], [], set(), [], set()
    for file in files:
        told = known.get(file.uri)
        if told is not None and told.size != file.size:
            told = None
        is_of_day = file.date >= window_date
        if is_of_day:
            of_day.append(file)
        needs_day = is_of_day and (told is None or told.to_ms >= window_ms)
        if needs_day or (is_open and (told is None or told.is_held)):
            opened.append(file)
            if needs_day:
                day_opened.add(file.uri)
                if told is None:
                    unseen.add(file.uri)
        elif told is not None:
            closed += told.rows
    return NightPlan(
        tuple(of_day), tuple(opened), frozenset(day_opened), tuple(closed), frozenset(unseen)
    )
