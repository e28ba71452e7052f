"""Contract of a site's content store, run over both twins."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from relay.content.content_store import CHUNK_BYTES, ContentStore
from relay.content.contents import MARGIN_S, ContentGone, Contents, StoringRule
from relay.content.memory_content import KeptContent, MemoryContent
from relay.content.reference import ContentReference, id_of
from tests.waiting import until

if TYPE_CHECKING:
    from dedup.journal.cassandra_session import JournalSession

pytestmark = pytest.mark.asyncio(loop_scope="module")

Open = Callable[[], ContentStore]
"""Open another node's way to the same store."""
DAY_S = 24 * 3600


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["memory", pytest.param("cassandra", marks=pytest.mark.slow)],
)
async def open_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Open]:
    if request.param == "memory":
        kept = KeptContent(time.monotonic)
        yield lambda: MemoryContent(kept)
        return
    from relay.content.cassandra_content import CassandraContent

    async with AsyncExitStack() as opened:
        session = await session_of(opened, tmp_path_factory.mktemp("cassandra"))

        async def connected() -> JournalSession:
            return session

        yield lambda: CassandraContent(connected, lambda: DAY_S)


async def session_of(opened: AsyncExitStack, folder: Path) -> JournalSession:
    """Start a Cassandra of one node and connect."""
    from dedup.journal.cassandra_session import CassandraAccess, JournalSession

    nodes = await opened.enter_async_context(CassandraNodes(folder, 1))
    access = CassandraAccess(
        hosts=[(address, nodes.port) for address in nodes.addresses],
        datacenter="datacenter1",
        keyspace="paris",
        replication=1,
    )
    session = await asyncio.to_thread(JournalSession, access)
    opened.callback(session.close)
    return session


def contents(store: ContentStore) -> Contents:
    return Contents(store, lambda: 0.5, StoringRule(1, DAY_S))


def reference(content: bytes) -> ContentReference:
    return ContentReference(b"", id_of(content), len(content))


async def test_a_chunk_is_there_for_everybody_until_it_expires(open_store: Open) -> None:
    paris, other, content_id = open_store(), open_store(), os.urandom(32)
    assert await paris.lives(content_id) == {}
    assert await paris.read(content_id, 0) is None
    await paris.write(content_id, 0, b"first", 100)
    await other.write(content_id, 1, bytes(CHUNK_BYTES), 200)
    assert await other.read(content_id, 0) == b"first"
    assert await paris.read(content_id, 1) == bytes(CHUNK_BYTES)
    assert await paris.read(content_id, 2) is None
    lives = await other.lives(content_id)
    assert lives.keys() == {0, 1}
    assert 60 < lives[0] <= 100 < 160 < lives[1] <= 200


async def test_a_chunk_written_again_lives_as_the_last_write_says(open_store: Open) -> None:
    store, content_id = open_store(), os.urandom(32)
    await store.write(content_id, 0, b"same", 100)
    await store.write(content_id, 0, b"same", 5000)
    assert (await store.lives(content_id))[0] > 4000
    assert await store.read(content_id, 0) == b"same"


async def test_nothing_is_left_behind_the_time(open_store: Open) -> None:
    store, content_id = open_store(), os.urandom(32)
    await store.write(content_id, 0, b"short", 2)
    await store.write(content_id, 1, b"long", 1000)

    async def is_over() -> bool:
        return await store.read(content_id, 0) is None

    await until(is_over, "the chunk expires", 20)
    assert (await store.lives(content_id)).keys() == {1}


async def test_contents_are_put_once_and_taken_whole(open_store: Open) -> None:
    for size in (1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES):
        content = os.urandom(size)
        paris, other = contents(open_store()), contents(open_store())
        assert await paris.put(memoryview(content), DAY_S) == id_of(content)
        assert await other.put(memoryview(content), DAY_S) == id_of(content)
        assert await other.take(reference(content)) == content
        assert (paris.counts.stored, other.counts.stored, other.counts.shared) == (1, 0, 1)
        lives = await paris.store.lives(id_of(content))
        assert set(lives) == set(range(-(-size // CHUNK_BYTES)))
        assert DAY_S + MARGIN_S - 60 < min(lives.values()) <= DAY_S + MARGIN_S


async def test_a_content_that_would_expire_too_soon_is_written_anew(open_store: Open) -> None:
    content = os.urandom(2 * CHUNK_BYTES)
    store = open_store()
    await store.write(id_of(content), 0, content[:CHUNK_BYTES], DAY_S + MARGIN_S)
    await store.write(id_of(content), 1, content[CHUNK_BYTES:], DAY_S)
    paris = contents(store)
    await paris.put(memoryview(content), DAY_S)
    assert (paris.counts.stored, paris.counts.shared) == (1, 0)
    assert min((await store.lives(id_of(content))).values()) > DAY_S


async def test_what_is_gone_or_damaged_is_told_apart(open_store: Open) -> None:
    content = os.urandom(2 * CHUNK_BYTES)
    paris = contents(open_store())
    await paris.store.write(id_of(content), 0, content[:CHUNK_BYTES], 100)
    with pytest.raises(ContentGone, match=f"chunk 1 of content {id_of(content).hex()} is gone"):
        await paris.take(reference(content))
    await paris.store.write(id_of(content), 1, bytes(CHUNK_BYTES), 100)
    with pytest.raises(ContentGone, match="is damaged: its digest does not match"):
        await paris.take(reference(content))
    assert paris.counts.gone == 2
