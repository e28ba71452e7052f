"""Does a site's own ledger have a delivery of these messages? Asked before a repair repeats one.

    python -m relay.ledger.proof FOLDER < JSON

looks through the files, in a process of its own: pyarrow and numpy never give their memory back. It
is asked only about messages that the barrier remembers and an audit calls lost, so seldom ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator
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
from relay.state.node_state import NodeState

_THERE = (Outcome.DELIVERED, Outcome.UNROUTED, Outcome.OWN)
"""The site's broker has, or had, the message."""
_ROWS_AT_ONCE = 1024
_COLUMNS = ["exchange", "origin", "kind", "position", "identities", "contents", "outcomes"]


class Sought(NamedTuple):
    """A message. `origin`: a cluster ID where identities are an origin's; empty for any."""

    exchange: str
    origin: str
    identity: bytes
    content: bytes
    """8 bytes of its content hash."""


class LedgerUnreadable(Exception):
    """The ledger's files cannot be looked through; the text says why."""


class LedgerProof:
    """One site's: rows that are still in the state, and the files of `folder`."""

    def __init__(self, state: NodeState, folder: Path) -> None:
        self._state = state
        self._folder = folder

    async def delivered(self, sought: Collection[Sought], since_ms: int) -> set[Sought]:
        """Those that were delivered here at or after that time. Raises LedgerUnreadable."""
        # The files first: a row that is exported meanwhile is still in the state, or in a file.
        first = next((number for number, _ in self._state.rows(Stage.DELIVERED)), None)
        if first is None:
            first = self._state.next_row(Stage.DELIVERED)
        before = self._in_state(sought)
        left = set(sought) - before
        found = before | (await self._in_files(left, since_ms, first) if left else set())
        left = set(sought) - found
        return found | self._in_state(left)

    def _in_state(self, sought: Collection[Sought]) -> set[Sought]:
        rows = (decode_row(data) for _, data in self._state.rows(Stage.DELIVERED))
        try:
            return set(_found(sought, rows)) if sought else set()
        except BadLedgerRow as error:
            raise LedgerUnreadable(f"a row that is not exported yet: {error}") from error

    async def _in_files(
        self, sought: Collection[Sought], since_ms: int, first_row: int
    ) -> set[Sought]:
        asked = {
            "since_ms": since_ms,
            "state": (self._state.get("state_id") or b"").hex(),
            "first_row": first_row,
            "sought": [
                (one.exchange, one.origin, one.identity.hex(), one.content.hex()) for one in sought
            ],
        }
        try:
            process = await asyncio.create_subprocess_exec(
                # -P: what lies in the working directory is nobody's module.
                *(sys.executable, "-P", "-m", "relay.ledger.proof", str(self._folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LedgerUnreadable(f"no process to look through its files: {error}") from error
        try:
            out, said = await process.communicate(json.dumps(asked).encode())
        finally:
            if process.returncode is None:  # cancelled
                process.kill()
        if process.returncode:
            words = said.decode(errors="replace").strip().splitlines()
            raise LedgerUnreadable(words[-1] if words else f"exit {process.returncode}")
        try:
            return set(_decoded(json.loads(out)))
        except ValueError as error:
            raise LedgerUnreadable(f"no answer from who looks through its files: {error}") from None


def _decoded(told: Iterable[Iterable[str]]) -> Iterator[Sought]:
    for exchange, origin, identity, content in told:
        yield Sought(exchange, origin, bytes.fromhex(identity), bytes.fromhex(content))


def _found(sought: Collection[Sought], rows: Iterable[LedgerRow]) -> Iterator[Sought]:
    for row in rows:
        if not row.identities:
            continue
        for one in sought:
            origin = row.position if row.kind == BatchKind.REPAIR else row.origin
            if one.exchange == row.exchange and one.origin in ("", origin):
                yield from _in_row(one, row.identities, row.contents, row.outcomes)


def _in_row(one: Sought, identities: bytes, contents: bytes, outcomes: bytes) -> Iterator[Sought]:
    at = identities.find(one.identity)
    while at >= 0:
        number, rest = divmod(at, IDENTITY_BYTES)
        content = contents[CONTENT_BYTES * number : CONTENT_BYTES * (number + 1)]
        if not rest and content == one.content and outcomes[number] & OUTCOME_MASK in _THERE:
            yield one
            return
        at = identities.find(one.identity, at + 1)


def why_incomplete(names: Iterable[str], state: str, first_row: int, since: date) -> str:
    """Why files of these names (`date=.../delivered-STATE-FIRST-LAST.parquet`) do not have all rows
    from that day on up to `first_row`, without, of this state folder; empty if they have. A folder
    that was made anew since has not told what its predecessor did last.
    """
    mine: list[tuple[int, int, str]] = []
    is_first_folder = True
    for name in names:
        day, _, file = name.partition("/")
        of, first, last = file.removesuffix(".parquet").split("-")[1:]
        if of == state[:8]:
            mine.append((int(first), int(last), day.removeprefix("date=")))
        else:
            is_first_folder = False
    missing_before = first_row
    for first_of_file, last_of_file, begun in sorted(mine, reverse=True):
        if last_of_file + 1 < missing_before:
            return f"rows {last_of_file + 1} to {missing_before - 1} of its files are missing"
        if begun < since.isoformat():
            return ""
        missing_before = min(missing_before, first_of_file)
    if missing_before > 0:
        return f"rows 0 to {missing_before - 1} of its files are missing"
    if is_first_folder:
        return ""
    return "this site's state folder was made anew since the message was published"


def look_through(folder: Path, sought: Collection[Sought], since_ms: int) -> set[Sought]:
    """Those that a file of this ledger has a delivery of, recorded at or after that time."""
    import numpy as np
    import pyarrow.parquet as pq

    # The site's clock, which dates the files, may differ from that of who asks.
    first = datetime.fromtimestamp(since_ms / 1000, UTC).date() - timedelta(days=1)
    by_head: dict[int, list[Sought]] = {}
    for one in sought:
        by_head.setdefault(int(np.frombuffer(one.identity, np.uint64)[0]), []).append(one)
    heads = np.array(sorted(by_head), np.uint64)
    found: set[Sought] = set()
    for file in sorted(folder.glob("date=*/delivered-*.parquet")):
        if file.parent.name < f"date={first.isoformat()}":
            continue
        for batch in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=_COLUMNS):
            columns = [batch.column(name) for name in _COLUMNS]
            for nth, packed in enumerate(columns[4]):
                if not packed.is_valid:
                    continue
                identities = packed.as_py()
                mine = np.frombuffer(identities, np.uint64)[:: IDENTITY_BYTES // 8]
                hits = np.flatnonzero(np.isin(mine, heads))
                if not len(hits):
                    continue
                exchange, origin, kind, position = (c[nth].as_py() for c in columns[:4])
                contents, outcomes = columns[5][nth].as_py() or b"", columns[6][nth].as_py() or b""
                for head in {int(mine[hit]) for hit in hits}:
                    for one in by_head[head]:
                        whose = position if kind == "repair" else origin
                        if one.exchange == exchange and one.origin in ("", whose):
                            found.update(_in_row(one, identities, contents, outcomes))
    return found


def main() -> None:
    os.nice(5)  # the relay's work goes before
    asked = json.loads(sys.stdin.buffer.read())
    folder, since_ms = Path(sys.argv[1]), int(asked["since_ms"])
    sought = set(_decoded(asked["sought"]))
    found = look_through(folder, sought, since_ms)
    if found < sought:
        files = folder.glob("date=*/delivered-*.parquet")
        names = [str(file.relative_to(folder)) for file in files]
        since = datetime.fromtimestamp(since_ms / 1000, UTC).date()
        if why := why_incomplete(names, asked["state"], int(asked["first_row"]), since):
            sys.exit(why)
    told = [(one.exchange, one.origin, one.identity.hex(), one.content.hex()) for one in found]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
