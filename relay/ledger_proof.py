"""Search of a site's own ledger for deliveries of messages, before a repair repeats them.

Rows are in the state, and in files that `delivered_files` looks through. Searching a whole ledger
takes its time: a caller that knows beforehand what a repair is about to bring announces the
identities (`expect`), and later searches only read files that are new since.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from relay.batches.batch import BatchKind
from relay.ledger.rows import (
    CONTENT_BYTES,
    IDENTITY_BYTES,
    OUTCOME_MASK,
    BadLedgerRow,
    LedgerRow,
    Outcome,
    Stage,
    decode_row,
)
from relay.state.node_state import Commit, NodeState

_ARRIVED = (Outcome.DELIVERED, Outcome.UNROUTED, Outcome.OWN)
"""Outcomes with which the site's broker has, or had, the message."""
MOST_EXPECTED = 4
"""Repairs at a time."""
EXPECTED_FOR_S = 3600.0


class Sought(NamedTuple):
    """Message to look for. `origin`: a cluster ID where identities are an origin's; empty for
    any.
    """

    exchange: str
    origin: str
    identity: bytes
    content: bytes
    """First 8 bytes of its content hash."""


class LedgerUnreadable(Exception):
    """The ledger's files cannot be looked through; the text has the reason."""


@dataclass(eq=False, slots=True)
class _Expected:
    """Messages that a repair is about to bring, and their deliveries in files from `day` on."""

    identities: frozenset[bytes]
    day: date
    deliveries: set[Sought]
    files: set[str]
    """Files that were looked through."""
    until: float
    """Time, by the loop's clock, when the object is forgotten unless used before."""


class FormerLedger(NamedTuple):
    """Ledger of a state that ended in order, and whose exchanges a present state has."""

    slot: int
    state_id: str
    """ID of the state, in hexadecimal digits."""
    rows: int
    """Number of its delivered rows, all of which were exported."""
    ended_ms: int
    """Time of its last row, in ms since 1970."""


_FORMER = "former ledgers"
"""Key of the node's state."""


def former_ledgers(state: NodeState) -> list[FormerLedger]:
    """Return the ledgers from before the present state."""
    kept = state.get(_FORMER)
    return [] if kept is None else [FormerLedger(*one) for one in json.loads(kept)]


def put_former_ledgers(commit: Commit, ledgers: Iterable[FormerLedger]) -> None:
    """Give a state the ledgers from before."""
    commit.put(_FORMER, json.dumps([*dict.fromkeys(ledgers)]).encode())


class LedgerProof:
    """Deliveries of one slot: rows that are still in the state, the files of `folder`, and those of
    former slots, whose folders `folder_of` returns.
    """

    def __init__(self, state: NodeState, folder: Path, folder_of: Callable[[int], Path]) -> None:
        self._state = state
        self._folder = folder
        self._former = former_ledgers(state)
        self._folders = {one.slot: folder_of(one.slot) for one in self._former}
        self._expected: list[_Expected] = []

    async def expect(self, identities: Iterable[bytes], since_ms: int) -> None:
        """Look through the files now, while deliveries go on, for identities published since
        `since_ms` that a repair is about to bring. Raises LedgerUnreadable.
        """
        known = frozenset(identities)
        if not known:
            return
        day = _first_day(since_ms)
        files = _since(self._files(), day)
        deliveries = await self._look_through(files, known) if files else set()
        until = asyncio.get_running_loop().time() + EXPECTED_FOR_S
        expected = _Expected(known, day, deliveries, set(files), until)
        self._expected = [*self._expected, expected][-MOST_EXPECTED:]
        self._forget_later(expected)

    def _forget_later(self, expected: _Expected) -> None:
        """Forget `expected` when due; a repair that goes on keeps it, however long the repair
        takes.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < expected.until:
            loop.call_at(expected.until, self._forget_later, expected)
        else:
            self._expected = [one for one in self._expected if one is not expected]

    async def delivered(self, sought: Collection[Sought], since_ms: int) -> set[Sought]:
        """Messages that were delivered here at or after that time. Raises LedgerUnreadable."""
        # The state's first row before the files: a row exported meanwhile is in a file.
        first_row = next((number for number, _ in self._state.rows(Stage.DELIVERED)), None)
        if first_row is None:
            first_row = self._state.next_row(Stage.DELIVERED)
        before = self._in_state(sought)
        left = set(sought) - before
        found = before | (await self._in_files(left, since_ms, first_row) if left else set())
        left = set(sought) - found
        return found | self._in_state(left)

    def _in_state(self, sought: Collection[Sought]) -> set[Sought]:
        rows = (decode_row(data) for _, data in self._state.rows(Stage.DELIVERED))
        try:
            return _of(sought, _deliveries(sought, rows)) if sought else set()
        except BadLedgerRow as error:
            raise LedgerUnreadable(f"a row that is not exported yet: {error}") from error

    async def _in_files(self, sought: set[Sought], since_ms: int, first_row: int) -> set[Sought]:
        files, day = self._files(), _first_day(since_ms)
        found = _of(sought, await self._deliveries(_since(files, day), sought, day))
        if found < sought:
            since = datetime.fromtimestamp(since_ms / 1000, UTC).date()
            if why := self._why_incomplete(first_row, since):
                raise LedgerUnreadable(why)
        return found

    def _why_incomplete(self, first_row: int, since: date) -> str:
        """Return why the files do not have all rows from a day on; empty if they have."""
        state = (self._state.get("state_id") or b"").hex()
        known = {state[:8], *(one.state_id[:8] for one in self._former)}
        names = _files_of(self._folder)
        reasons = [why_incomplete(names, state, first_row, since, known)]
        for one in self._former:
            if datetime.fromtimestamp(one.ended_ms / 1000, UTC).date() < since:
                continue
            names = _files_of(self._folders[one.slot])
            reasons.append(why_incomplete(names, one.state_id, one.rows, since, known))
        return next(filter(None, reasons), "")

    async def _deliveries(
        self, files: list[str], sought: Collection[Sought], day: date
    ) -> set[Sought]:
        identities = frozenset(one.identity for one in sought)
        for expected in self._expected:
            if identities <= expected.identities and expected.day <= day:
                if new := [file for file in files if file not in expected.files]:
                    expected.deliveries |= await self._look_through(new, expected.identities)
                    expected.files.update(new)
                expected.until = asyncio.get_running_loop().time() + EXPECTED_FOR_S
                return expected.deliveries
        return await self._look_through(files, identities) if files else set()

    def _files(self) -> list[str]:
        folders = {self._folder, *self._folders.values()}
        return sorted(str(folder / name) for folder in folders for name in _files_of(folder))

    async def _look_through(self, files: list[str], identities: frozenset[bytes]) -> set[Sought]:
        request = {
            "files": files,
            "identities": [one.hex() for one in identities],
        }
        try:
            process = await asyncio.create_subprocess_exec(
                # -P: no modules from the working directory.
                *(sys.executable, "-P", "-m", "relay.delivered_files"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LedgerUnreadable(f"no process to look through its files: {error}") from error
        try:
            out, errors = await process.communicate(json.dumps(request).encode())
        finally:
            if process.returncode is None:  # cancelled
                process.kill()
        if process.returncode:
            words = errors.decode(errors="replace").strip().splitlines()
            raise LedgerUnreadable(words[-1] if words else f"exit {process.returncode}")
        try:
            return {
                Sought(exchange, origin, bytes.fromhex(identity), bytes.fromhex(content))
                for exchange, origin, identity, content in json.loads(out)
            }
        except ValueError as error:
            raise LedgerUnreadable(f"no answer from who looks through its files: {error}") from None


def _first_day(since_ms: int) -> date:
    """First day to search; the site's clock, which dates the files, may differ from the
    caller's.
    """
    return datetime.fromtimestamp(since_ms / 1000, UTC).date() - timedelta(days=1)


def _since(files: Iterable[str], day: date) -> list[str]:
    return [file for file in files if Path(file).parent.name >= f"date={day.isoformat()}"]


def _files_of(folder: Path) -> list[str]:
    """Return the names of a ledger's files of deliveries: `date=.../delivered-....parquet`."""
    files = folder.glob("date=*/delivered-*.parquet")
    return sorted(str(file.relative_to(folder)) for file in files)


def _of(sought: Collection[Sought], deliveries: Collection[Sought]) -> set[Sought]:
    """Sought messages that have a delivery."""
    anyones = {one._replace(origin="") for one in deliveries}
    return {one for one in sought if one in (deliveries if one.origin else anyones)}


def _deliveries(sought: Collection[Sought], rows: Iterable[LedgerRow]) -> set[Sought]:
    """Deliveries in these rows of the sought identities."""
    wanted = {one.identity for one in sought}
    found: set[Sought] = set()
    for row in rows:
        if not row.identities:
            continue
        publisher = row.position if row.kind == BatchKind.REPAIR else row.origin
        numbers = [
            at // IDENTITY_BYTES
            for at in range(0, len(row.identities), IDENTITY_BYTES)
            if row.identities[at : at + IDENTITY_BYTES] in wanted
        ]
        found.update(
            deliveries_in(
                row.exchange, publisher, row.identities, row.contents, row.outcomes, numbers
            )
        )
    return found


def deliveries_in(
    exchange: str,
    publisher: str,
    identities: bytes,
    contents: bytes,
    outcomes: bytes,
    numbers: Iterable[int],
) -> Iterator[Sought]:
    """Yield those numbered messages of a row that the site's broker has got."""
    for number in numbers:
        if outcomes[number] & OUTCOME_MASK in _ARRIVED:
            identity = identities[IDENTITY_BYTES * number : IDENTITY_BYTES * (number + 1)]
            content = contents[CONTENT_BYTES * number : CONTENT_BYTES * (number + 1)]
            yield Sought(exchange, publisher, identity, content)


def why_incomplete(
    names: Iterable[str], state: str, first_row: int, since: date, known: Collection[str]
) -> str:
    """Reason why files of these names (`date=.../delivered-STATE-FIRST-LAST.parquet`) do not have
    all rows of this state folder from that day on up to `first_row` (exclusive); empty if they
    have. A folder that was made anew since lacks the last rows of its predecessor, unless that is
    one of `known` states, by the first 8 digits of their IDs.
    """
    mine: list[tuple[int, int, str]] = []
    others: list[str] = []
    for name in names:
        day, _, file = name.partition("/")
        of, first, last = file.removesuffix(".parquet").split("-")[1:]
        if of == state[:8]:
            mine.append((int(first), int(last), day.removeprefix("date=")))
        elif of not in known:
            others.append(day.removeprefix("date="))
    missing_before = first_row
    for first_of_file, last_of_file, begun in sorted(mine, reverse=True):
        if last_of_file + 1 < missing_before:
            return f"rows {last_of_file + 1} to {missing_before - 1} of its files are missing"
        if begun < since.isoformat():
            return ""
        missing_before = min(missing_before, first_of_file)
    if missing_before > 0:
        return f"rows 0 to {missing_before - 1} of its files are missing"
    # Of a former state, a later one of the same folder is none of its predecessors.
    begun = min((day for _, _, day in mine), default="9999")
    if all(day > begun for day in others):
        return ""
    return "this site's state folder was made anew since the message was published"
