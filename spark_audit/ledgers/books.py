"""Judge whether the ledgers are whole, by each file's own summary. Pure.

`number` counts the rows of a stage within a state folder without a gap, and every stage writes a
row a minute whatever happens. So a hole is a missing row, and a stage whose rows end before the
period is incomplete. Nothing is green by absence: every gap is named, and messages missing at a
site with such books are *not proven* rather than lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from spark_audit.ledgers.files import LedgerListing, LedgerPath
from spark_audit.ledgers.states import StateRun, renewed_ms, until_lost
from spark_audit.period import Period

PACKED = "packed"
DELIVERED = "delivered"
LEAVING_MS = 120_000
"""Time before a site's departure at which its ledger may end: rows come once a minute, and the node
need not end in the second in which the others go on without it."""
STAGES = (PACKED, "linked_out", "linked_in", DELIVERED)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one stage in a file. `last` is inclusive; times are of recording. `through_ms`, for
    stage packed: every message published before has its row; -1 if unknown. `is_end`: True if the
    last row is `ended`, by which the state ended in order.
    """

    uri: str
    site: str
    state: str
    stage: str
    first: int
    last: int
    count: int
    from_ms: int
    to_ms: int
    through_ms: int = -1
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class LedgerProblem:
    """Reason why something is not proven. `file`: site, date and name, or empty for none."""

    site: str
    what: str
    file: str = ""
    stage: str = ""

    def __str__(self) -> str:
        where = self.file or " ".join(part for part in (self.site, self.stage) if part)
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Former:
    """Site that has left the mesh. `stages`: stages that must have a ledger; `left_ms`: time at
    which others went on without it, or None if none has yet.
    """

    stages: tuple[str, ...]
    left_ms: int | None

    def needed(self, period: Period) -> Period | None:
        """Return the part of the period for which the site needs a ledger, or None."""
        if self.left_ms is None:
            return period
        end_ms = min(period.to_ms, self.left_ms - LEAVING_MS)
        return Period(period.from_ms, end_ms) if end_ms > period.from_ms else None

    def text(self) -> str:
        return "the site left the mesh" + (
            "" if self.left_ms is None else f" ({_time(self.left_ms)})"
        )


@dataclass(slots=True)
class Books:
    """Judgement on the ledgers. Sites by name."""

    problems: list[LedgerProblem] = field(default_factory=list)
    not_counted: dict[str, str] = field(default_factory=dict)
    """URIs of files whose rows another file repeats -> reason for leaving them out."""
    overlap: bool = False
    incomplete: set[tuple[str, str]] = field(default_factory=set)
    """(site, stage) with missing rows."""
    renewed: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """(site, stage) of which a state was lost and has a successor -> the states that began before.
    Rows that the lost one had not exported went with it, so that only rows from before show passed
    positions. States that ended in order have lost nothing."""
    begun: set[str] = field(default_factory=set)
    """Sites that delivered before the first row read, since older files were removed or not opened.
    A barrier's memory from then has no row here."""

    def lack(self, problem: LedgerProblem) -> None:
        self.problems.append(problem)
        self.incomplete.add((problem.site, problem.stage))


def judge_books(
    listing: LedgerListing,
    rows: Sequence[FileRows],
    unreadable: Mapping[str, str],
    must_have: Mapping[str, Collection[str]],
    period: Period,
    former: Mapping[str, Former] | None = None,
    opened: Collection[str] | None = None,
    slots: Mapping[str, int] | None = None,
) -> Books:
    """Judge all ledgers for the period.

    `must_have`: site -> stages that need rows. `unreadable`: URI -> reason, of files that Spark
    could not read. `former`: departed sites, which need rows until they left; their last minutes
    may lack rows of packing. `opened`: URIs of opened files, or None for all. `slots`: site ->
    number of its slots, each of which needs rows; 1 for others. Slots that a site had before need
    rows until their states ended in order, or like the others.
    """
    books = Books()
    by_uri = {file.uri: file for file in listing.files}
    _judge_files(books, listing, by_uri, rows, unreadable)
    by_stage: _ByStage = defaultdict(lambda: defaultdict(list))
    for one in rows:
        if one.uri not in unreadable:
            by_stage[one.site, by_uri[one.uri].slot, one.stage][one.state].append(one)
    runs: dict[tuple[str, str], list[StateRun]] = defaultdict(list)
    for (site, slot, stage), states in by_stage.items():
        first = min(states, key=lambda state: min(one.from_ms for one in states[state]))
        for state, files in states.items():
            is_later = state != first
            is_whole = _judge_run(books, by_uri, site, stage, files, period, is_later=is_later)
            runs[site, stage].append(_state_run(slot, state, files, is_whole=is_whole))
        if stage == DELIVERED and (
            site in listing.older
            or min(one.first for one in states[first]) > 0
            or any(
                one.uri not in opened
                for files in states.values()
                for one in files
                if opened is not None
            )
        ):
            books.begun.add(site)
    books.renewed = {
        one: until_lost(of_stage)
        for one, of_stage in runs.items()
        if renewed_ms(of_stage) is not None
    }
    counts = slots or {}
    for site, stages in must_have.items():
        found = _slots_of(by_stage, site, counts.get(site, 1), period)
        _judge_site(books, listing, site, stages, found, period)
    for site, left in (former or {}).items():
        books.incomplete.add((site, PACKED))
        needed = left.needed(period)
        if needed is not None:
            ends = "the period does" if needed.to_ms == period.to_ms else left.text()
            found = _slots_of(by_stage, site, 1, needed)
            _judge_site(books, listing, site, left.stages, found, needed, ends)
        if not _has_files(listing, site):
            books.incomplete |= {(site, stage) for stage in STAGES}
    return books


def judge_former_slots(
    books: Books,
    listing: LedgerListing,
    site: str,
    slots: Iterable[int],
    stages: Collection[str],
) -> None:
    """Check that slots which the site had in the period, and has no more, have files: without any,
    nothing else shows that rows are missing.
    """
    there = {file.slot for file in listing.files if file.site == site}
    for slot in slots:
        if there and slot not in there:
            for stage in stages:
                what = f"not one row of this stage of slot {slot}, which the site had in this time"
                books.lack(LedgerProblem(site, what, stage=stage))


_ByStage = dict[tuple[str, int, str], dict[str, list[FileRows]]]
"""(site, slot, stage) -> state folder -> its files."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Files of one slot of a site. `is_former`: True if the site has fewer slots by now."""

    number: int
    is_former: bool
    stages: dict[str, Mapping[str, list[FileRows]]] = field(default_factory=dict)
    """Stage -> state folder -> its files."""

    def __str__(self) -> str:
        return f" of slot {self.number}" if self.number else ""

    def has_ended(self, stage: str) -> bool:
        """True if the site has no more of this slot, whose latest state ended in order."""
        return self.is_former and _last_file(self.stages[stage]).is_end

    def ended_before(self, ms: int) -> bool:
        """True if all stages with rows ended before `ms`: files of others need not be read."""
        return all(
            self.has_ended(stage) and _last_file(states).to_ms < ms
            for stage, states in self.stages.items()
        )


def _slots_of(by_stage: _ByStage, site: str, count: int, period: Period) -> list[_Slot]:
    """Return the `count` slots of a site, and all others that have files, unless their states ended
    in order before the period.
    """
    found = {number: _Slot(number, is_former=False) for number in range(count)}
    for (name, number, stage), states in by_stage.items():
        if name == site:
            slot = found.setdefault(number, _Slot(number, is_former=True))
            slot.stages[stage] = states
    return [
        slot
        for slot in found.values()
        if not slot.is_former or not slot.ended_before(period.from_ms)
    ]


def _last_file(states: Mapping[str, list[FileRows]]) -> FileRows:
    """Return the last file of a slot's latest state."""
    latest = max(states.values(), key=lambda files: min(one.from_ms for one in files))
    return max(latest, key=lambda one: one.last)


def _state_run(slot: int, state: str, files: list[FileRows], *, is_whole: bool) -> StateRun:
    return StateRun(
        slot,
        state,
        min(one.first for one in files),
        min(one.from_ms for one in files),
        max(one.to_ms for one in files),
        is_whole and max(files, key=lambda one: one.last).is_end,
    )


def _has_files(listing: LedgerListing, site: str) -> bool:
    return any(file.site == site for file in listing.files)


def _judge_site(
    books: Books,
    listing: LedgerListing,
    site: str,
    stages: Collection[str],
    found: Iterable[_Slot],
    period: Period,
    what_ends: str = "the period does",
) -> None:
    """Check that all stages of a site cover the period, in each of these slots."""
    if not _has_files(listing, site):
        for stage in stages:
            books.incomplete.add((site, stage))
        books.problems.append(LedgerProblem(site, "no ledger of this site for these dates"))
        return
    for slot in found:
        for stage in stages:
            _judge_reach(books, site, stage, slot, period, what_ends)


def _judge_files(
    books: Books,
    listing: LedgerListing,
    by_uri: Mapping[str, LedgerPath],
    rows: Iterable[FileRows],
    unreadable: Mapping[str, str],
) -> None:
    seen: dict[str, list[FileRows]] = defaultdict(list)
    for one in rows:
        seen[one.uri].append(one)
    for file in listing.files:
        found = seen.get(file.uri, [])
        why = unreadable.get(file.uri)
        named = file.last - file.first + 1 if file.last >= 0 else None
        if why is None and not found:
            why = "cannot be read: truncated, corrupt or empty"
        elif why is None and named is not None and sum(one.count for one in found) < named:
            why = f"has {sum(one.count for one in found)} of the {named} rows that its name says"
        if why is not None:
            stages = [file.stage] if file.stage else [PACKED, DELIVERED]
            for stage in stages:
                books.incomplete.add((file.site, stage))
            books.problems.append(LedgerProblem(file.site, why, file.name, file.stage))
        for one in found:
            if one.site != file.site:
                books.lack(
                    LedgerProblem(file.site, f"has rows of site {one.site}", by_uri[one.uri].name)
                )


def _judge_run(
    books: Books,
    by_uri: Mapping[str, LedgerPath],
    site: str,
    stage: str,
    files: list[FileRows],
    period: Period,
    *,
    is_later: bool,
) -> bool:
    """Check the files of a stage in one state folder, in order, for holes and repeats, and return
    True if there is no hole. A later folder (`is_later`) began with row 0 within the dates read,
    unlike the first, which may be much older.
    """

    def order(one: FileRows) -> tuple[int, int, bool, str]:
        path = by_uri[one.uri]
        return one.first, -one.last, (path.first, path.last) != (one.first, one.last), one.uri

    reached, before, is_whole = -1, None, True
    ordered = sorted(files, key=order)
    first = ordered[0]
    if is_later and first.first > 0 and first.from_ms >= period.from_ms:
        is_whole = False
        books.lack(
            LedgerProblem(
                site,
                f"rows 0 to {first.first - 1} of state {first.state[:8]} are missing, "
                f"before {_time(first.from_ms)}",
                stage=stage,
            )
        )
    for one in ordered:
        if before is not None and one.last <= reached:
            twin = by_uri[before.uri].name
            why = f"its rows stand in {twin} as well; they were counted once"
            books.not_counted[one.uri] = why
            books.problems.append(LedgerProblem(site, why, by_uri[one.uri].name, stage))
            continue
        if before is not None and one.first <= reached:
            books.overlap = True
            books.problems.append(
                LedgerProblem(
                    site,
                    f"its first rows stand in {by_uri[before.uri].name} as well",
                    by_uri[one.uri].name,
                    stage,
                )
            )
        elif before is not None and one.first > reached + 1:
            is_whole = False
            books.lack(
                LedgerProblem(
                    site,
                    f"rows {reached + 1} to {one.first - 1} of state {one.state[:8]} are missing, "
                    f"between {_time(before.to_ms)} and {_time(one.from_ms)}",
                    stage=stage,
                )
            )
        if one.count < one.last - one.first + 1:
            is_whole = False
            books.lack(LedgerProblem(site, "rows are missing in it", by_uri[one.uri].name, stage))
        reached, before = one.last, one
    return is_whole


def _judge_reach(
    books: Books,
    site: str,
    stage: str,
    slot: _Slot,
    period: Period,
    what_ends: str,
) -> None:
    """Check that a stage's rows begin before the period, or with row 0, and end after it, or with
    a slot that the site has no more.
    """
    if stage not in slot.stages:
        books.lack(LedgerProblem(site, f"not one row of this stage{slot}", stage=stage))
        return
    files = [one for run in slot.stages[stage].values() for one in run]
    begin = min(files, key=lambda one: (one.from_ms, one.first))
    if begin.first > 0 and begin.from_ms >= period.from_ms:
        books.lack(
            LedgerProblem(
                site,
                f"the ledger{slot} begins at {_time(begin.from_ms)} with row {begin.first}: "
                "those before it are missing",
                stage=stage,
            )
        )
    if slot.has_ended(stage):
        return
    end_ms = max(one.to_ms for one in files)
    if end_ms < period.to_ms:
        books.lack(
            LedgerProblem(
                site,
                f"the ledger{slot} ends at {_time(end_ms)}, before {what_ends}",
                stage=stage,
            )
        )
    elif stage == PACKED:
        _judge_through(books, site, max(one.through_ms for one in files), period)


def _judge_through(books: Books, site: str, through_ms: int, period: Period) -> None:
    """Check that the packer's rows reach the period's end: rows go on while the packer is down,
    when its logged messages have none yet.
    """
    if through_ms >= period.to_ms:
        return
    reached = f"only until {_time(through_ms)}" if through_ms >= 0 else "nowhere"
    books.lack(
        LedgerProblem(
            site,
            f"that all it had packed has its row is told {reached}: see `isthmus status` for why "
            "the site packs nothing, and audit again when it does",
            stage=PACKED,
        )
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")


class AcceptedGap(NamedTuple):
    """Gap that a person accepted, from the ledger. `neighbour` for a link's gap, else a delivery's:
    of the flow `origin` (cluster ID) and `exchange`, or of all flows. `why`: person, time, and
    missing entries.
    """

    ms: int
    site: str
    neighbour: str
    origin: str
    exchange: str
    why: str

    def __str__(self) -> str:
        if self.neighbour:
            where = f"link {self.site}-{self.neighbour}"
        else:
            where = f"delivery at {self.site}"
        return f"{where}: {self.why}"
