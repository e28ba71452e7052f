"""Order of a flow's chunks: the next is handed to the broker while the former is being confirmed.

Each chunk has a task, and *turns*::

    hand over   once the chunk before is with the broker, or settled
    settle      once the chunk before is settled: what is refused is tried again, and what is
                confirmed is committed, chunk by chunk

A chunk that is not plain (`DeliveryChunk.is_plain`) is handed over in its turn to settle, so alone.
At most `ANNOUNCED_AT_MOST` messages are under way: what a crash may flag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from relay.delivery.chunk import DeliveryChunk
from relay.state.flow_state import ANNOUNCED_AT_MOST
from relay.waiters import Signal, first_of

CHUNKS_AT_MOST = 2
"""Most chunks under way: one that is being confirmed, and the next. With more, chunks are smaller,
and each costs its write and its sync."""


class ChunkTurn:
    """Turns of one chunk; `former` is the turn of the chunk before, None if settled already."""

    def __init__(self, chunk: DeliveryChunk, former: ChunkTurn | None) -> None:
        self.chunk = chunk
        self.is_handed_over = Signal()
        self.is_over = Signal()
        self.is_settled = False
        """True once the whole chunk is settled and committed."""
        self.is_in_trouble = False
        """True once some message of the chunk has to be sent again."""
        self._former = former

    @property
    def is_first(self) -> bool:
        """True if every chunk before is settled and committed."""
        return self._former is None or self._former.is_settled

    @property
    def is_behind_trouble(self) -> bool:
        """True if messages of a chunk before have to be sent again."""
        former = self._former
        if former is None or former.is_settled:
            return False
        return former.is_in_trouble or former.is_behind_trouble

    async def first(self) -> bool:
        """Wait for the turn to settle; False if a chunk before was given up: the node stops."""
        if self._former is not None:
            await self._former.is_over.wait()
            if self._former.is_settled:
                self._former = None  # else each turn would keep all before
        return self._former is None

    def handed_over(self) -> None:
        """Note that the whole chunk is with the broker."""
        self.is_handed_over.set()


class ChunkOrder:
    """Chunks under way of one flow. `deliver` delivers a chunk in its turns, and returns False if
    the node stops before its end; `on_over` is called when a chunk is over.
    """

    def __init__(
        self,
        deliver: Callable[[ChunkTurn], Coroutine[Any, Any, bool]],
        on_over: Callable[[], None],
    ) -> None:
        self._deliver = deliver
        self._on_over = on_over
        self._under_way: dict[ChunkTurn, asyncio.Task[None]] = {}
        self._messages = 0
        self._last: ChunkTurn | None = None
        self._is_broken = False
        self.error: Exception | None = None
        """Error of a delivery."""

    @property
    def is_empty(self) -> bool:
        """True if no chunk is under way."""
        return not self._under_way

    async def deliver(self, chunk: DeliveryChunk) -> bool:
        """Wait for room and begin with the chunk; return once the next chunk may come. False if the
        node stops, or a chunk before was given up. Raises what a delivery raised.
        """
        while self._under_way and not self._has_room(chunk):
            await next(iter(self._under_way)).is_over.wait()
        self.raise_error()
        if self._is_broken:
            return False
        turn = self._last = ChunkTurn(chunk, self._last)
        self._messages += len(chunk)
        self._under_way[turn] = asyncio.create_task(self._deliver_whole(turn), name="chunk")
        await first_of(turn.is_handed_over, turn.is_over)
        self.raise_error()
        return not self._is_broken

    async def settled(self) -> None:
        """Wait until nothing is under way. Raises what a delivery raised."""
        while self._under_way:
            await next(iter(self._under_way)).is_over.wait()
        self.raise_error()

    def cancel(self) -> None:
        """Give up all chunks under way."""
        for task in self._under_way.values():
            task.cancel()

    def raise_error(self) -> None:
        """Raise what a delivery raised, if any did."""
        if self.error is not None:
            raise self.error

    def _has_room(self, chunk: DeliveryChunk) -> bool:
        return (
            len(self._under_way) < CHUNKS_AT_MOST
            and self._messages + len(chunk) <= ANNOUNCED_AT_MOST
        )

    async def _deliver_whole(self, turn: ChunkTurn) -> None:
        try:
            turn.is_settled = await self._deliver(turn)
        except Exception as error:
            self.error = self.error or error
        finally:
            self._is_broken = self._is_broken or not turn.is_settled
            self._messages -= len(turn.chunk)
            del self._under_way[turn]
            turn.is_over.set()
            self._on_over()
