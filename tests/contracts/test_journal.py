"""Contract of a slot's journal, run over both twins."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dedup.journal.journal import (
    Journal,
    JournalAway,
    JournalRefused,
    JournalRow,
    JournalSnapshot,
    Owner,
    Ownership,
    counting_rows,
)
from dedup.journal.memory_journal import MemoryJournal, SlotRows

Open = Callable[[], Journal]
"""Open another node's way to the same slot."""


@asynccontextmanager
async def cassandra_session(
    folder: Path,
) -> AsyncIterator[tuple[Any, Open]]:
    """Run a Cassandra of one node: a session with it, and ways to its slot 0."""
    from dedup.journal.cassandra_journal import CassandraJournal
    from dedup.journal.cassandra_session import CassandraAccess, connect
    from isthmus.cluster_parts.cassandra_nodes import CassandraNodes

    async with CassandraNodes(folder, 1) as nodes:
        access = CassandraAccess(
            hosts=[(address, nodes.port) for address in nodes.addresses],
            datacenter="datacenter1",
            keyspace="paris",
            replication=1,
        )
        session = await asyncio.to_thread(connect, access)
        try:
            yield session, lambda: CassandraJournal(session, 0)
        finally:
            session.cluster.shutdown()


@pytest.fixture(params=["memory", pytest.param("cassandra", marks=pytest.mark.slow)])
async def open_journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    if request.param == "memory":
        rows = SlotRows()
        yield lambda: MemoryJournal(rows)
        return
    async with cassandra_session(tmp_path) as (_, open_slot):
        yield open_slot


def owner(epoch: int, node: str = "paris-a") -> Owner:
    return Owner(epoch, os.urandom(16), node)


async def found(journal: Journal, after: int = 0) -> list[tuple[int, int]]:
    return [(row.number, row.epoch) async for row in journal.rows(after)]


async def test_owners_follow_each_other_and_rows_are_written_once(open_journal: Open) -> None:
    paris, other = open_journal(), open_journal()

    # The first owner, and only one of two who try.
    assert await paris.ownership() is None
    first = owner(1)
    assert await paris.take(None, first)
    assert await paris.take(None, first), "the same call again, its answer lost"
    assert not await other.take(None, owner(1, "paris-b"))
    assert await other.ownership() == Ownership(first, {}, first.run)
    assert await paris.begin(first, 0)
    assert await paris.begin(first, 0)
    assert await other.ownership() == Ownership(first, {1: 0}, first.run)

    # Rows are written once; the same row may come again.
    assert await found(other) == []
    for number in range(1, 4):
        await paris.write(JournalRow(number, 1, bytes([number]) * 1000))
    await paris.write(JournalRow(2, 1, bytes([2]) * 1000))
    assert [row async for row in other.rows(1)] == [
        JournalRow(2, 1, bytes([2]) * 1000),
        JournalRow(3, 1, bytes([3]) * 1000),
    ]

    # The next owner, behind the rows that it has read.
    before = await other.ownership()
    second = owner(2, "paris-b")
    assert await other.take(before, second)
    assert not await paris.take(before, owner(2)), "somebody was quicker"
    assert not await paris.begin(first, 3), "not its slot any more"
    assert await other.begin(second, 3)
    assert await paris.ownership() == Ownership(second, {1: 0, 2: 3}, first.run)
    await paris.write(JournalRow(4, 1, b"late"))
    await other.write(JournalRow(4, 2, b"of the new owner"))
    assert await found(paris, 2) == [(3, 1), (4, 1), (4, 2)]


async def test_a_journal_of_many_rows_is_read_whole_and_from_anywhere(open_journal: Open) -> None:
    journal = open_journal()
    await journal.take(None, owner(1))
    for begin in range(1, 4500, 300):
        writes = (
            journal.write(JournalRow(n, 1, b"x")) for n in range(begin, min(begin + 300, 4500))
        )
        await asyncio.gather(*writes)
    for after in (0, 1, 2046, 2047, 2048, 4094, 4095, 4499):
        assert await found(journal, after) == [(n, 1) for n in range(after + 1, 4500)]


async def test_the_latest_complete_snapshot_counts_and_what_it_replaces_goes(
    open_journal: Open,
) -> None:
    journal = open_journal()
    await journal.take(None, owner(1))
    for begin in range(1, 5000, 250):
        await asyncio.gather(*(journal.write(JournalRow(begin + n, 1, b"")) for n in range(250)))
    assert await journal.snapshot() is None
    made = [
        JournalSnapshot(100, 1, 1, 2),
        JournalSnapshot(3000, 1, 1, 1),
        JournalSnapshot(3000, 2, 2500, 2),
        JournalSnapshot(5000, 2, 4500, 1),
    ]
    for snapshot in made:
        for number in range(snapshot.parts):
            data = b"%d %d %d" % (snapshot.row, snapshot.epoch, number)
            await journal.write_part(snapshot.row, snapshot.epoch, number, data)
        await journal.complete(snapshot)
        assert await journal.snapshot() == snapshot
        await journal.forget(snapshot)
        rest = await found(open_journal(), snapshot.replay_from - 1)
        assert rest == [(number, 1) for number in range(snapshot.replay_from, 5001)]
    await journal.complete(made[1])
    assert await journal.snapshot() == made[-1], "that was late"
    assert await journal.part(5000, 2, 0) == b"5000 2 0"
    assert await journal.part(5000, 2, 1) is None
    assert await journal.part(3000, 2, 1) == b"3000 2 1", "somebody may be reading it"
    assert await journal.part(100, 1, 0) is None
    # At least the rows of whole partitions are gone.
    assert all(number > 4000 for number, _ in await found(journal, 0))


async def test_the_beginnings_of_epochs_go_with_their_rows(open_journal: Open) -> None:
    journal = open_journal()
    number = 0
    for epoch in range(1, 6):
        now = owner(epoch)
        await journal.take(await journal.ownership(), now)
        await journal.begin(now, number)
        for begin in range(number + 1, number + 2001, 250):
            rows = (JournalRow(begin + n, epoch, b"") for n in range(250))
            await asyncio.gather(*map(journal.write, rows))
        number += 2000
    snapshot = JournalSnapshot(9000, 5, 6200, 1)
    await journal.write_part(9000, 5, 0, b"")
    await journal.complete(snapshot)
    await journal.forget(snapshot)
    found = await journal.ownership()
    assert found is not None
    # At least those whose rows were in partitions that are gone.
    assert set(found.begins) >= {4, 5}
    assert not {1, 2} & set(found.begins)
    await journal.write(JournalRow(2500, 2, b"late"))
    rest = [row async for row in journal.rows(8990)]
    assert [row.number for row in counting_rows(rest, found, 8990, None)] == list(
        range(8991, 10001)
    )
    late = [JournalRow(8991, 2, b"late"), *rest[1:]]
    assert not list(counting_rows(late, found, 8990, None))
    third = owner(6)
    assert await journal.take(found, third), "whoever has read the former list may go on"
    assert await journal.begin(third, 10_000)
    again = await journal.ownership()
    assert again is not None
    assert again.begins == {**found.begins, 6: 10_000}


async def test_a_new_journal_in_the_place_of_another_begins_behind_all_that_is_there(
    open_journal: Open,
) -> None:
    paris, other = open_journal(), open_journal()
    assert await paris.end() == 0
    former = owner(4)
    await paris.take(None, former)
    await paris.begin(former, 0)
    for begin in range(0, 1_200_000, 120_000):  # more partitions than an answer has
        numbers = range(begin, begin + 120_000, 2000)
        await asyncio.gather(*(paris.write(JournalRow(n, 9, b"left")) for n in numbers))
    assert 1_198_000 <= await other.end() < 1_202_000
    await paris.complete(JournalSnapshot(7_000_000, 3, 1, 1))
    after = await other.end()
    assert after >= 7_000_000
    anew = owner(5, "(recovery)")
    assert await other.renew(former, anew, after)
    assert await other.renew(former, anew, after), "the same call again, its answer lost"
    assert not await paris.renew(former, owner(5), after), "somebody was quicker"
    assert not await paris.begin(former, 0)
    assert await paris.ownership() == Ownership(anew, {5: after}, anew.run)
    row = JournalRow(after + 1, 5, b"new")
    await other.write(row)
    assert [row async for row in paris.rows(after)] == [row]
    assert await paris.end() > after


@pytest.mark.long
async def test_what_cassandra_will_never_do_is_refused_and_its_absence_is_not(
    tmp_path: Path,
) -> None:
    async with cassandra_session(tmp_path) as (session, open_slot):
        journal = open_slot()
        await journal.take(None, owner(1))
        await asyncio.to_thread(session.execute, "DROP TABLE journal")
        with pytest.raises(JournalRefused, match="check keyspace and rights"):
            await journal.write(JournalRow(1, 1, b""))
        assert await journal.ownership() is not None
    # Its node has ended, and the session with it.
    with pytest.raises(JournalAway):
        await journal.ownership()


@pytest.mark.long
async def test_nodes_that_make_the_tables_at_once_have_the_same_tables(tmp_path: Path) -> None:
    from dedup.journal.cassandra_session import CassandraAccess, JournalSession
    from isthmus.cluster_parts.cassandra_nodes import CassandraNodes

    async with CassandraNodes(tmp_path, 3) as nodes:

        async def opened(address: str) -> JournalSession:
            access = CassandraAccess(
                hosts=[(address, nodes.port)], datacenter="datacenter1", keyspace="paris"
            )
            while True:
                try:
                    return await asyncio.to_thread(JournalSession, access)
                except JournalAway:
                    continue  # one has not heard yet what another one has made

        async with asyncio.timeout(60):
            found = await asyncio.gather(*(opened(nodes.addresses[n % 3]) for n in range(6)))
        journals = [session.journal(0) for session in found]
        try:
            for number, journal in enumerate(journals):
                await journal.write(JournalRow(number, 1, b"row"))
            for journal in journals:
                rows = [row.number async for row in journal.rows(-1)]
                assert rows == list(range(6))
        finally:
            for session in found:
                session.close()
