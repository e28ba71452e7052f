"""Seam to the journal of one slot: rows that a quorum keeps, and who may write them.

At most one node at a time owns the slot. A new owner raises the *epoch*, reads the journal to its
end, and states there where the epoch before has ended. The owner writes one row after the other,
and a row *counts* once a read of the ownership, begun after the row was written, shows the owner's
own epoch. Then the row was there before any later owner began to read, so each later owner has the
row. A row that does not count may still land at any time; once a later epoch's beginning is stated,
such a row is void for everybody, for ever.

Twins: `memory_journal.MemoryJournal` and `cassandra_journal.CassandraJournal`; one contract suite
runs over both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, Protocol

from dedup.store import StoreError

ROW_BYTES = 256 * 1024
"""Size from which on a row takes no further write."""


class JournalAway(Exception):
    """No quorum answered in time: the outcome is unknown, and the same call may be made again."""


class JournalRefused(StoreError):
    """The journal's machines understood a request and will never carry it out."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the journal refuses what a node asks: {reason}; check keyspace and rights"
        )


class SlotGone(StoreError):
    """Loss of the right to write a slot's state; the node may stand by to take the slot again."""


class JournalFull(SlotGone):
    """No quorum takes rows, and more writes wait than may."""

    def __init__(self, waiting_bytes: int) -> None:
        super().__init__(
            f"{waiting_bytes // 2**20} MiB of writes wait for the journal, which is away"
        )


class SlotReserved(StoreError):
    """The slot is a command's, and no node may take it; `reason` is the command's owner name."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no node may take this site's state: {reason}")
        self.reason = reason


class SlotFenced(SlotGone):
    """Another node has taken the slot, and this one must not write any more."""

    def __init__(self, epoch: int, now: Owner | None) -> None:
        whose = "nobody's" if now is None else f"{now.node}'s, in epoch {now.epoch}"
        super().__init__(f"the slot is no longer this node's (epoch {epoch}): it is {whose}")
        self.epoch = epoch
        self.now = now


class JournalDamaged(StoreError):
    """A row of the journal cannot be read, or is missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; `isthmus recover FILE --site SITE` makes the state anew from the site's log"
        )


class JournalTooNew(StoreError):
    """A newer version of this program has written to the journal."""


class Owner(NamedTuple):
    """Node that may write, since `epoch`. `run` is random, and another one each time."""

    epoch: int
    run: bytes
    node: str
    """Name of the node. One that begins with a parenthesis is a command's, and says what to do."""

    @property
    def is_command(self) -> bool:
        """True if no node may follow this owner."""
        return self.node.startswith("(")


class Ownership(NamedTuple):
    """Present owner, and the beginnings of epochs that have stated theirs: of all that have rows
    which a copy may need.
    """

    owner: Owner
    begins: Mapping[int, int]
    """Epoch -> number of the last row before the epoch's first."""
    journal: bytes
    """Random ID of the journal, which is the run of its first owner."""

    def at(self, epoch: int) -> Ownership:
        """Return what was known while an epoch that has begun was the last."""
        begins = {one: begin for one, begin in self.begins.items() if one <= epoch}
        return Ownership(Owner(epoch, b"", ""), begins, self.journal)


class JournalRow(NamedTuple):
    """Row as it was found, of whatever worth."""

    number: int
    epoch: int
    data: bytes


class JournalSnapshot(NamedTuple):
    """State of a slot but for the replayed tables, from which a new copy begins."""

    row: int
    """Number of the row behind which a copy goes on."""
    epoch: int
    """Epoch of the owner that wrote the snapshot."""
    replay_from: int
    """Number of the first row that the replayed tables need; at most the one behind `row`."""
    parts: int


class Journal(Protocol):
    """Journal of one slot. Every method may raise JournalAway and JournalRefused."""

    async def ownership(self) -> Ownership | None:
        """Read who owns the slot, as a quorum has it; None before the first owner."""
        ...

    async def take(self, before: Ownership | None, owner: Owner) -> bool:
        """Make `owner` the owner if nobody has become so since `before` was read. Return False if
        somebody has. Decided by consensus.
        """
        ...

    async def begin(self, owner: Owner, after: int) -> bool:
        """State that the owner's epoch begins behind row `after`. Return False if the slot is
        another's by now, who has read the journal too. Decided by consensus.
        """
        ...

    async def write(self, row: JournalRow) -> None:
        """Write a row to a quorum. The same row may be written again; another one of the same
        number and epoch may not.
        """
        ...

    def rows(self, after: int) -> AsyncIterator[JournalRow]:
        """Yield all rows behind number `after` that a quorum shows, by number and epoch. Where the
        next ones are deleted, there may come later rows, or none: see `snapshot`.
        """
        ...

    async def snapshot(self) -> JournalSnapshot | None:
        """Return the latest snapshot that is complete, or None."""
        ...

    async def part(self, row: int, epoch: int, number: int) -> bytes | None:
        """Return a part of the snapshot of that row, counted from 0; None if it is gone."""
        ...

    async def write_part(self, row: int, epoch: int, number: int, data: bytes) -> None:
        """Write a part of a snapshot that is not complete yet."""
        ...

    async def complete(self, snapshot: JournalSnapshot) -> None:
        """State that all parts of a snapshot are written."""
        ...

    async def end(self) -> int:
        """Return a number behind which is neither a row, of whatever worth, nor a snapshot."""
        ...

    async def renew(self, before: Owner, owner: Owner, after: int) -> bool:
        """Put a new journal in the place of this one, which begins behind row `after` with the
        epoch of its first `owner`, if the slot is still the owner's `before`. Return False if not.
        Decided by consensus.
        """
        ...

    async def forget(self, snapshot: JournalSnapshot) -> None:
        """Delete what nobody needs with this complete snapshot: rows before its `replay_from`,
        earlier snapshots but the last one, and the beginnings of epochs that have no other rows.
        Some may stay.
        """
        ...


def outlived(begins: Mapping[int, int], first: int) -> set[int]:
    """Return the epochs whose rows that count are all before row `first`. Whatever else lands of
    them is void, as the row of an epoch without a beginning.
    """
    epochs = sorted(begins)
    return {epoch for epoch, later in pairwise(epochs) if begins[later] < first}


def counting_rows(
    rows: Iterable[JournalRow], ownership: Ownership, after: int, reader: Owner | None
) -> Iterator[JournalRow]:
    """Yield those of the rows behind number `after` that count, without a gap.

    `rows` are in order, and were read *before* `ownership`: whoever takes the slot later finds them
    too. While the present owner has not stated its beginning, only `reader`, if that is the present
    owner, knows that rows of the epoch before count.
    """
    begins = ownership.begins
    is_certain = ownership.owner.epoch in begins or ownership.owner == reader
    expected = after + 1
    for row in rows:
        if row.number > expected:
            return  # nothing behind a gap was ever confirmed
        if row.number < expected or row.epoch not in begins or row.number <= begins[row.epoch]:
            continue
        end = min((begin for epoch, begin in begins.items() if epoch > row.epoch), default=None)
        if is_certain if end is None else row.number <= end:
            yield row
            expected += 1
