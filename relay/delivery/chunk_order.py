"""Order of a flow's chunks: the next goes to the broker while the former awaits its answers.

Each chunk has a task. A chunk goes *ahead*, behind chunks that are not settled, only if nothing has
to be known of them: see `FlowDelivery._go_ahead`. All else happens in the chunk's *turn*, when all
chunks before are settled and committed: trying again, putting aside, waiting for claims, commits.

A bounded number of messages is under way: what a crash may flag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from relay.delivery.chunk import DeliveryChunk
from relay.waiters import Signal, first_of

CHUNKS_AT_MOST = 2
"""Most chunks under way: one that awaits its answers, and the next. With more, chunks are smaller,
and each costs its write and its sync."""


class ChunkTurn:
    """Turn of one chunk; `former` is the turn of the chunk before, None if settled already."""

    def __init__(self, chunk: DeliveryChunk, former: ChunkTurn | None) -> None:
        self.chunk = chunk
        self.is_handed_over = Signal()
        """Signal, set once the whole chunk is with the broker: the next may go ahead."""
        self.is_in_trouble = Signal()
        """Signal, set once some message of the chunk has to be sent again."""
        self.is_over = Signal()
        self.is_settled = False
        """True once the whole chunk is settled and committed."""
        self.sent_on: object = None
        """Channel on which the whole chunk was handed over, None if none was."""
        self._former = former

    @property
    def has_come(self) -> bool:
        """True if every chunk before is settled and committed."""
        return self._former is None or self._former.is_settled

    @property
    def channel_before(self) -> object:
        """Channel on which the chunk before was handed over and awaits its answers; None if it was
        not, or if some of its messages have to be sent again.
        """
        former = self._former
        if former is None or former.is_over.is_set() or former.is_in_trouble.is_set():
            return None
        return former.sent_on

    def handed_over(self, channel: object) -> None:
        """Note that the whole chunk is with the broker, on this channel."""
        self.sent_on = channel
        self.is_handed_over.set()

    async def come_or_trouble(self) -> bool:
        """Wait until the turn has come, or cannot for the chunk before is in trouble; return
        `has_come`.
        """
        if self._former is not None:
            await first_of(self._former.is_over, self._former.is_in_trouble)
        return self.has_come

    async def come(self) -> bool:
        """Wait for the turn; False if a chunk before was given up, as the node stops."""
        if self._former is not None:
            await self._former.is_over.wait()
            if self._former.is_settled:
                self._former = None  # else each turn would keep all before
        return self._former is None


class ChunkOrder:
    """Chunks under way of one flow. `deliver` delivers a chunk in its turn, and returns False if
    the node stops before its end; `on_over` is called when a chunk is over, `on_error` with what a
    delivery has raised. `most` messages are under way at most, or one chunk.
    """

    def __init__(
        self,
        deliver: Callable[[ChunkTurn], Coroutine[Any, Any, bool]],
        on_over: Callable[[], None],
        on_error: Callable[[Exception], None],
        most: int,
    ) -> None:
        self.is_broken = False
        """True once a chunk was given up: nothing behind it is settled."""
        self._deliver = deliver
        self._on_over = on_over
        self._on_error = on_error
        self._most = most
        self._under_way: dict[ChunkTurn, asyncio.Task[None]] = {}
        self._messages = 0
        self._last: ChunkTurn | None = None

    @property
    def is_empty(self) -> bool:
        """True if no chunk is under way."""
        return not self._under_way

    async def deliver(self, chunk: DeliveryChunk) -> bool:
        """Wait for room and begin with the chunk; return once the next chunk may come. False if the
        node stops, or a chunk before was given up.
        """
        while self._under_way and not self._has_room(chunk):
            await next(iter(self._under_way)).is_over.wait()
        if self.is_broken:
            return False
        turn = self._last = ChunkTurn(chunk, self._last)
        self._messages += len(chunk)
        self._under_way[turn] = asyncio.create_task(self._deliver_whole(turn), name="chunk")
        await first_of(turn.is_handed_over, turn.is_over)
        return not self.is_broken

    async def over_or(self, signal: Signal) -> None:
        """Wait until the last chunk is over, or the signal is set."""
        if self._under_way and self._last is not None:
            await first_of(self._last.is_over, signal)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await next(iter(self._under_way)).is_over.wait()

    async def end(self) -> None:
        """Give up all chunks under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _has_room(self, chunk: DeliveryChunk) -> bool:
        return len(self._under_way) < CHUNKS_AT_MOST and self._messages + len(chunk) <= self._most

    async def _deliver_whole(self, turn: ChunkTurn) -> None:
        try:
            turn.is_settled = await self._deliver(turn)
        except Exception as error:
            self._on_error(error)
        finally:
            self.is_broken = self.is_broken or not turn.is_settled
            self._messages -= len(turn.chunk)
            del self._under_way[turn]
            turn.is_over.set()
            self._on_over()
