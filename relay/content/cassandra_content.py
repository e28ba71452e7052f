"""Content store in a site's Cassandra, beside the journal of its state.

Chunks are written plainly, by a quorum, with a time to live, and never deleted. So a file of the
table goes as a whole once the last of its chunks has expired, and there are no tombstones to read
past: Cassandra compacts together what was written at about the same time (its *time windows*).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dedup.journal.cassandra_journal import QuorumRequests
from dedup.journal.cassandra_session import JournalSession
from dedup.journal.journal import JournalAway, JournalRefused
from relay.content.content_store import ContentAway

TABLE = "content"
_WINDOWS = 24
"""Files, about, that the chunks of a life come to lie in, besides those of the newest."""
_HINTS_S = 3 * 3600
"""Time for which Cassandra keeps a write for a node that is away; later nothing is to be told apart
from what has expired."""
_COLUMNS = """(
    id blob, chunk int, data blob, PRIMARY KEY (id, chunk))
    WITH compression = {{'enabled': false}}
    AND compaction = {{'class': 'TimeWindowCompactionStrategy',
        'compaction_window_unit': 'MINUTES', 'compaction_window_size': WINDOW}}
    AND gc_grace_seconds = GRACE AND id = {id}"""


class CassandraContent:
    """`ContentStore` over a session that is made when first needed, in the site's keyspace."""

    def __init__(
        self, connected: Callable[[], Awaitable[JournalSession]], life_s: Callable[[], float]
    ) -> None:
        """`life_s` is about how long chunks live, when the table is made."""
        self._connected = connected
        self._life_s = life_s
        self._preparing = asyncio.Lock()
        self._prepared: tuple[QuorumRequests, Sequence[Any]] | None = None

    async def lives(self, content_id: bytes) -> Mapping[int, int]:
        rows = await self._ask(0, content_id)
        return {row.chunk: row.life for row in rows if row.life is not None}

    async def write(self, content_id: bytes, number: int, chunk: bytes, life_s: int) -> None:
        await self._ask(1, content_id, number, chunk, life_s)

    async def read(self, content_id: bytes, number: int) -> bytes | None:
        rows = await self._ask(2, content_id, number)
        return bytes(rows[0].data) if rows and rows[0].data is not None else None

    async def _ask(self, statement: int, *values: object) -> Sequence[Any]:
        try:
            async with self._preparing:
                if self._prepared is None:
                    self._prepared = await self._prepare()
            requests, statements = self._prepared
            return await requests.ask(statements[statement], *values)
        except (JournalAway, JournalRefused) as error:
            # A right that is missing can be given: to end the node over it would help nobody.
            raise ContentAway(str(error)) from error

    async def _prepare(self) -> tuple[QuorumRequests, Sequence[Any]]:
        session = await self._connected()
        window = max(1, round(self._life_s() / 60 / _WINDOWS))
        columns = _COLUMNS.replace("WINDOW", str(window)).replace("GRACE", str(_HINTS_S))
        return await asyncio.to_thread(
            session.prepared,
            TABLE,
            columns,
            # Of the data itself: what a quorum reads of a column, it has from then on.
            f"SELECT chunk, TTL(data) AS life FROM {TABLE} WHERE id = ?",
            f"INSERT INTO {TABLE} (id, chunk, data) VALUES (?, ?, ?) USING TTL ?",
            f"SELECT data FROM {TABLE} WHERE id = ? AND chunk = ?",
        )
