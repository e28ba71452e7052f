"""Journal in Cassandra, which only this file and `cassandra_session` import.

Rows are written once and plainly, by a quorum; the ownership is changed by lightweight transactions
alone, so that no clock decides anything. A plain read by a quorum shows each transaction that has
ended before, which is all that the proof in `journal` asks for.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from cassandra import (
    ConsistencyLevel,
    DriverException,
    OperationTimedOut,
    RequestExecutionException,
    protocol,
)
from cassandra.cluster import NoHostAvailable, ResponseFuture, Session
from cassandra.connection import ConnectionException

from dedup.journal.journal import (
    JournalAway,
    JournalRefused,
    JournalRow,
    JournalSnapshot,
    Owner,
    Ownership,
    outlived,
)

BUCKET_ROWS = 2048
"""Rows of a partition: half a gigabyte of the biggest ones."""
_PAGE_ROWS = 200
_FIRST_PAGE_ROWS = 32
"""Rows of the first page, whose size nobody knows: enough for a copy that follows."""
_PAGE_BUCKETS = 500
_PAGE_BYTES = 2 * 1024 * 1024
"""Size of later pages, about."""

UNCERTAIN = (
    *(OperationTimedOut, NoHostAvailable, ConnectionException, RequestExecutionException),
    *(protocol.RequestExecutionException, protocol.ServerError),
)
"""Errors after which the request may have been carried out, and is made again."""


def is_passing(error: Exception) -> bool:
    """Return True for what Cassandra says while some of its nodes are away or slow, though the
    driver has it for a refusal.
    """
    # The driver has no class of its own for the code, such as 0x1700: some replicas have accepted a
    # transaction, and nobody knows whether it is carried out.
    if type(error) is protocol.ErrorMessage:
        return True
    # Roles and rights are in tables too, whose replicas may be away.
    return "Unable to perform auth" in str(error)


_TABLES = {
    "owner": """(
        slot int PRIMARY KEY, epoch bigint, run blob, node text, begins map<bigint, bigint>,
        journal blob)
        WITH id = {id}""",
    "journal": """(
        slot int, bucket bigint, number bigint, epoch bigint, data blob,
        PRIMARY KEY ((slot, bucket), number, epoch))
        WITH compression = {{'enabled': false}} AND id = {id}""",
    "snapshot": """(
        slot int, row bigint, epoch bigint, part int, data blob,
        PRIMARY KEY ((slot, row, epoch), part))
        WITH id = {id}""",
    "snapshots": """(
        slot int, row bigint, epoch bigint, replay_from bigint, parts int,
        PRIMARY KEY (slot, row, epoch))
        WITH CLUSTERING ORDER BY (row DESC, epoch DESC) AND id = {id}""",
    "site": "(name text PRIMARY KEY, value text) WITH id = {id}",
}


def table_statements(keyspace: str) -> Iterator[tuple[str, str]]:
    """Yield a keyspace's tables, each with the statement that makes the table. The table's ID
    follows from its name: two nodes that make a table at once would else make two tables, of which
    one loses its rows.
    """
    for name, columns in _TABLES.items():
        yield name, table_statement(keyspace, name, columns)


def table_statement(keyspace: str, name: str, columns: str) -> str:
    """Return the statement that makes a table; `{id}` in `columns` stands for the table's ID."""
    table_id = uuid.uuid5(uuid.NAMESPACE_URL, f"isthmus:{keyspace}.{name}")
    return f"CREATE TABLE IF NOT EXISTS {keyspace}.{name} {columns.format(id=table_id)}"


class QuorumRequests:
    """Requests to a quorum over a session that is in the site's keyspace."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def prepare(self, text: str) -> Any:
        """Prepare a statement, which blocks for a round trip. Raises DriverException."""
        statement = self._session.prepare(text)
        statement.consistency_level = ConsistencyLevel.LOCAL_QUORUM
        statement.serial_consistency_level = ConsistencyLevel.LOCAL_SERIAL
        statement.is_idempotent = " IF " not in text
        return statement

    async def ask(self, statement: Any, *values: object) -> Sequence[Any]:
        """Return the rows of the answer. Raises JournalAway, JournalRefused."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[Any]] = loop.create_future()

        def answered(rows: Sequence[Any] | None) -> None:
            if not answer.done():
                answer.set_result(rows or ())

        def failed(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        request: ResponseFuture = self._session.execute_async(statement, values)
        request.add_callbacks(
            lambda rows: loop.call_soon_threadsafe(answered, rows),
            lambda error: loop.call_soon_threadsafe(failed, error),
        )
        try:
            return await answer
        except UNCERTAIN as error:
            raise JournalAway(str(error)) from error
        except (DriverException, protocol.ErrorMessage) as error:
            if is_passing(error):
                raise JournalAway(str(error)) from error
            raise JournalRefused(str(error)) from error
        finally:
            if answer.done() and not answer.cancelled():
                # A circle of references keeps the request until the garbage is collected: let it
                # not keep half a megabyte, sent or read, as well.
                request.message = request.query = request.query_plan = None
                request._final_result = None
                request.clear_callbacks()


class CassandraJournal:
    """`Journal` of one slot over a session that is in the site's keyspace."""

    def __init__(self, session: Session, slot: int) -> None:
        """Prepare the statements, which blocks for some round trips. Raises DriverException."""
        requests = QuorumRequests(session)
        self._ask = requests.ask
        self._slot = slot
        prepare = requests.prepare
        self._read_owner = prepare(
            "SELECT epoch, run, node, begins, journal FROM owner WHERE slot = ?"
        )
        self._first_owner = prepare(
            "INSERT INTO owner (slot, epoch, run, node, journal) VALUES (?, ?, ?, ?, ?)"
            " IF NOT EXISTS"
        )
        self._next_owner = prepare(
            "UPDATE owner SET epoch = ?, run = ?, node = ? WHERE slot = ? IF epoch = ? AND run = ?"
        )
        self._begin = prepare(
            "UPDATE owner SET begins[?] = ? WHERE slot = ? IF epoch = ? AND run = ?"
        )
        self._renew = prepare(
            "UPDATE owner SET epoch = ?, run = ?, node = ?, begins = ?, journal = ?"
            " WHERE slot = ? IF epoch = ? AND run = ?"
        )
        self._unbegin = prepare("UPDATE owner SET begins = begins - ? WHERE slot = ? IF EXISTS")
        self._write = prepare(
            "INSERT INTO journal (slot, bucket, number, epoch, data) VALUES (?, ?, ?, ?, ?)"
        )
        self._read = prepare(
            "SELECT number, epoch, data FROM journal WHERE slot = ? AND bucket = ?"
            " AND (number, epoch) > (?, ?) LIMIT ?"
        )
        self._buckets = prepare(
            "SELECT DISTINCT slot, bucket, token(slot, bucket) AS place FROM journal"
            f" WHERE token(slot, bucket) > ? LIMIT {_PAGE_BUCKETS}"
        )
        self._delete_rows = prepare("DELETE FROM journal WHERE slot = ? AND bucket = ?")
        self._snapshots = prepare(
            "SELECT row, epoch, replay_from, parts FROM snapshots WHERE slot = ?"
        )
        self._complete = prepare(
            "INSERT INTO snapshots (slot, row, epoch, replay_from, parts) VALUES (?, ?, ?, ?, ?)"
        )
        self._delete_snapshot = prepare(
            "DELETE FROM snapshots WHERE slot = ? AND row = ? AND epoch = ?"
        )
        self._read_part = prepare(
            "SELECT data FROM snapshot WHERE slot = ? AND row = ? AND epoch = ? AND part = ?"
        )
        self._write_part = prepare(
            "INSERT INTO snapshot (slot, row, epoch, part, data) VALUES (?, ?, ?, ?, ?)"
        )
        self._delete_parts = prepare(
            "DELETE FROM snapshot WHERE slot = ? AND row = ? AND epoch = ?"
        )

    async def ownership(self) -> Ownership | None:
        found = await self._ask(self._read_owner, self._slot)
        if not found:
            return None
        (row,) = found
        owner = Owner(row.epoch, row.run, row.node)
        return Ownership(owner, dict(row.begins or {}), row.journal or b"")

    async def take(self, before: Ownership | None, owner: Owner) -> bool:
        if before is None:
            answer = await self._ask(self._first_owner, self._slot, *owner, owner.run)
        else:
            former = before.owner
            answer = await self._ask(self._next_owner, *owner, self._slot, former.epoch, former.run)
        # Not applied, and ours: the transaction of an earlier call, whose answer was lost.
        return bool(answer[0].applied) or answer[0].run == owner.run

    async def begin(self, owner: Owner, after: int) -> bool:
        answer = await self._ask(
            self._begin, owner.epoch, after, self._slot, owner.epoch, owner.run
        )
        return bool(answer[0].applied)

    async def write(self, row: JournalRow) -> None:
        bucket = row.number // BUCKET_ROWS
        await self._ask(self._write, self._slot, bucket, row.number, row.epoch, row.data)

    async def rows(self, after: int) -> AsyncIterator[JournalRow]:
        bucket, last = (after + 1) // BUCKET_ROWS, (after, 2**62)
        limit = _FIRST_PAGE_ROWS
        while True:
            page = await self._ask(self._read, self._slot, bucket, *last, limit)
            size = 1
            for number, epoch, data in page:
                yield JournalRow(number, epoch, data)
                last = (number, epoch)
                size += len(data)
            if len(page) == limit:
                limit = max(1, min(_PAGE_ROWS, _PAGE_BYTES * limit // size))
                continue
            if last[0] + 1 < (bucket + 1) * BUCKET_ROWS:
                return
            bucket += 1

    async def _complete_ones(self) -> list[JournalSnapshot]:
        """Return the complete snapshots, the latest first."""
        return [JournalSnapshot(*row) for row in await self._ask(self._snapshots, self._slot)]

    async def snapshot(self) -> JournalSnapshot | None:
        found = await self._complete_ones()
        return found[0] if found else None

    async def part(self, row: int, epoch: int, number: int) -> bytes | None:
        found = await self._ask(self._read_part, self._slot, row, epoch, number)
        return bytes(found[0].data) if found else None

    async def write_part(self, row: int, epoch: int, number: int, data: bytes) -> None:
        await self._ask(self._write_part, self._slot, row, epoch, number, data)

    async def complete(self, snapshot: JournalSnapshot) -> None:
        await self._ask(self._complete, self._slot, *snapshot)

    async def end(self) -> int:
        last, token = 0, -(2**63)
        # Not of this slot alone: that would take one request, as long as all partitions take.
        while page := await self._ask(self._buckets, token):
            token = page[-1].place
            buckets = [int(row.bucket) for row in page if row.slot == self._slot]
            last = max([last, *((bucket + 1) * BUCKET_ROWS - 1 for bucket in buckets)])
        return max([last, *(one.row for one in await self._complete_ones())])

    async def renew(self, before: Owner, owner: Owner, after: int) -> bool:
        answer = await self._ask(
            *(self._renew, *owner, {owner.epoch: after}, owner.run),
            *(self._slot, before.epoch, before.run),
        )
        return bool(answer[0].applied) or answer[0].run == owner.run

    async def forget(self, snapshot: JournalSnapshot) -> None:
        earlier = [one for one in await self._complete_ones() if one < snapshot]
        # Rows first: the earliest snapshot tells from where on there may be some.
        begin = earlier[-1].replay_from if earlier else 0
        for bucket in range(begin // BUCKET_ROWS, snapshot.replay_from // BUCKET_ROWS):
            await self._ask(self._delete_rows, self._slot, bucket)
        now = await self.ownership()
        first = snapshot.replay_from // BUCKET_ROWS * BUCKET_ROWS
        if now is not None and (gone := outlived(now.begins, first)):
            await self._ask(self._unbegin, gone, self._slot)
        for one in earlier[1:]:
            await self._ask(self._delete_parts, self._slot, one.row, one.epoch)
            await self._ask(self._delete_snapshot, self._slot, one.row, one.epoch)
