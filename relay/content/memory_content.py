"""Content store in memory, for simulation and tests, with the faults of a distant quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from relay.content.content_store import ContentAway


async def _at_once() -> None:
    await asyncio.sleep(0)


class KeptContent:
    """Quorum's side of a site's contents, which outlives all nodes. `now` is in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.chunks: dict[bytes, dict[int, tuple[bytes, float]]] = {}
        """Chunks and the time when each expires, by content ID and then by number."""
        self.writes = 0
        """Number of chunks written."""

    def write(self, content_id: bytes, number: int, chunk: bytes, life_s: int) -> None:
        self.writes += 1
        self.chunks.setdefault(content_id, {})[number] = (chunk, self._now() + life_s)

    def living(self, content_id: bytes) -> dict[int, tuple[bytes, int]]:
        """Return the chunks of a content by number, each with the seconds that it still has."""
        now = self._now()
        return {
            number: (chunk, int(end - now))
            for number, (chunk, end) in self.chunks.get(content_id, {}).items()
            if end > now
        }


class MemoryContent:
    """`ContentStore` of a node over what is `kept`. Each step awaits `delay`."""

    def __init__(self, kept: KeptContent, delay: Callable[[], Awaitable[None]] = _at_once) -> None:
        self._kept = kept
        self._delay = delay
        self.away = False
        """True while no quorum answers, and nothing is done."""
        self.lost_answers = 0
        """Number of next calls that are done, and whose answer never comes."""

    async def lives(self, content_id: bytes) -> Mapping[int, int]:
        await self._ask()
        found = {number: life for number, (_, life) in self._kept.living(content_id).items()}
        await self._answer()
        return found

    async def write(self, content_id: bytes, number: int, chunk: bytes, life_s: int) -> None:
        await self._ask()
        self._kept.write(content_id, number, chunk, life_s)
        await self._answer()

    async def read(self, content_id: bytes, number: int) -> bytes | None:
        await self._ask()
        found = self._kept.living(content_id).get(number)
        await self._answer()
        return None if found is None else found[0]

    async def _ask(self) -> None:
        await self._delay()
        if self.away:
            raise ContentAway("no quorum in memory")

    async def _answer(self) -> None:
        await self._delay()
        if self.lost_answers:
            self.lost_answers -= 1
            raise ContentAway("the answer is lost")
