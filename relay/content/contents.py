"""Contents put into a store by their digest, and taken back, for the log of one slot.

A put or a take waits for as long as the store is away, and says so: nothing is given up, and the
log waits with it. A content that is gone, or is not what its ID says, will never come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from relay.content.content_store import CHUNK_BYTES, ContentAway, ContentStore
from relay.content.reference import ContentReference, id_of
from relay.retry import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")
OnAway = Callable[[str], None]
"""Callback for the reason why a call waits, at each attempt in vain."""

MARGIN_S = 24 * 3600
"""Time that a content is kept beyond the retention of the log."""
_FIRST_S = 0.2
_MOST_S = 5.0


class ContentGone(Exception):
    """The content is not in the store any more, or is damaged there: taking it again is in vain."""


async def fetch(store: ContentStore, content_id: bytes) -> bytes:
    """Return the content of this ID, whole and as the ID says. Raises ContentGone, ContentAway."""
    numbers = sorted(await store.lives(content_id))
    if not numbers:
        raise ContentGone("the store has no such content: it never had, or its time is over")
    chunks = [await store.read(content_id, number) for number in numbers]
    content = b"".join(chunk for chunk in chunks if chunk is not None)
    if id_of(content) != content_id:
        raise ContentGone("the store does not have all of this content, or it is damaged there")
    return content


@dataclass(slots=True)
class ContentCounts:
    """Counts since the node started."""

    stored: int = 0
    """Contents written."""
    stored_bytes: int = 0
    shared: int = 0
    """Contents that were there already, and were not written again."""
    taken: int = 0
    """Contents read."""
    gone: int = 0
    """Contents that were read and are gone or damaged."""


class StoringRule(NamedTuple):
    """Rule of a site for what its log has in the content store."""

    above: int
    """Size in bytes of the messages that stay in the log."""
    retention_s: float
    """Time that the log keeps a record."""


@dataclass(slots=True)
class Contents:
    """Contents of one slot's log in the site's store."""

    store: ContentStore
    random: Callable[[], float]
    """Random numbers in [0, 1)."""
    rule: StoringRule | None = None
    """Present rule; None: nothing more is put into the store."""
    counts: ContentCounts = field(default_factory=ContentCounts)
    waits: dict[object, str] = field(default_factory=dict)
    """Reasons for which calls wait for the store at present; empty where the caller hears them."""

    @property
    def is_used(self) -> bool:
        """True if the site stores contents, or its log had some to take."""
        return self.rule is not None or self.counts != ContentCounts()

    @property
    def reason(self) -> str:
        """Reason why the log waits for the store; empty while the log does not wait."""
        return next(filter(None, self.waits.values()), "")

    async def put(
        self, content: memoryview, retention_s: float, on_away: OnAway | None = None
    ) -> bytes:
        """Store a content that something refers to for `retention_s`, unless the store has the
        content for long enough; return its ID. Waits while the store is away.
        """
        content_id, size = id_of(content), len(content)
        # Half of the margin is left to a log that keeps a record for longer than it says.
        needed_s = retention_s + MARGIN_S / 2
        lives = await self._asked("writing", partial(self.store.lives, content_id), on_away)
        chunks = range(-(-size // CHUNK_BYTES))
        if all(lives.get(number, -1) >= needed_s for number in chunks):
            self.counts.shared += 1
            return content_id
        life_s = int(retention_s + MARGIN_S)
        await asyncio.gather(
            *(self._write(content_id, n, content, life_s, on_away) for n in chunks)
        )
        self.counts.stored += 1
        self.counts.stored_bytes += size
        return content_id

    async def _write(
        self,
        content_id: bytes,
        number: int,
        content: memoryview,
        life_s: int,
        on_away: OnAway | None,
    ) -> None:
        chunk = bytes(content[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])
        write = partial(self.store.write, content_id, number, chunk, life_s)
        await self._asked("writing", write, on_away)

    async def take(self, reference: ContentReference) -> bytes:
        """Return the content of a reference. Waits while the store is away. Raises ContentGone."""
        content_id, size = reference.content_id, reference.size
        chunks = []
        for number in range(-(-size // CHUNK_BYTES)):
            chunk = await self._asked("reading", partial(self.store.read, content_id, number))
            if chunk is None:
                raise self._gone(f"chunk {number} of content {content_id.hex()} is gone")
            chunks.append(chunk)
        content = b"".join(chunks)
        if len(content) != size or id_of(content) != content_id:
            raise self._gone(f"content {content_id.hex()} is damaged: its digest does not match")
        self.counts.taken += 1
        return content

    def _gone(self, reason: str) -> ContentGone:
        self.counts.gone += 1
        return ContentGone(reason)

    async def _asked(
        self, what: str, ask: Callable[[], Awaitable[T]], on_away: OnAway | None = None
    ) -> T:
        """Return the answer, asked for until there is one."""
        backoff, failures, waiting = Backoff(_FIRST_S, _MOST_S, self.random), 0, object()
        try:
            while True:
                try:
                    return await ask()
                except ContentAway as error:
                    failures += 1
                    if not self.waits:
                        log.warning(
                            "the content store is away, %s waits: %s",
                            what,
                            error,
                            extra={"event": "content-away"},
                        )
                    reason = f"{what} content: {error}"
                    self.waits[waiting] = "" if on_away else reason
                    if on_away is not None:
                        on_away(reason)
                await asyncio.sleep(backoff.delay_s(failures))
        finally:
            self.waits.pop(waiting, None)
