"""End of a log whose leader was just elected, or is cut off from the others."""

from __future__ import annotations

import asyncio

import pytest

from federation.brokers.addresses import StreamAddress
from relay.log.rabbit.rabbit_log import RabbitLog
from relay.log.rabbit.stream_connection import StreamConnection, StreamEdge
from relay.log.rabbit.stream_frames import Chunk
from relay.log.site_log import UNCONFIRMED_S, LogClosed, Record
from tests.virtual_time import in_virtual_time


class LeaderOfFew(StreamConnection):
    """Sends the first chunk of two, and the last once a majority has confirmed it."""

    def __init__(self, confirms_after_s: float) -> None:
        super().__init__(StreamAddress("127.0.0.1", 0, "/", "nobody", ""), 10, "test")
        self._confirms_at = asyncio.get_running_loop().time() + confirms_after_s
        self.log = RabbitLog(self, "log", "mark", self._open_further)

    async def _open_further(self) -> RabbitLog:
        raise AssertionError("one connection has readers enough for this")

    async def subscribe_at(self, stream: str, number: int, where: int | StreamEdge) -> None:
        is_confirmed = asyncio.get_running_loop().time() >= self._confirms_at
        if where is StreamEdge.FIRST:
            self.log.on_chunk(Chunk(number, 0, 1, 1, [Record(0, b"0")]))
        elif is_confirmed:
            self.log.on_chunk(Chunk(number, 1, 2, 1, [Record(1, b"1")]))

    async def unsubscribe(self, subscriber_id: int) -> None:
        pass


@in_virtual_time
async def test_the_end_is_waited_for_while_a_majority_may_yet_confirm_it() -> None:
    log = LeaderOfFew(confirms_after_s=UNCONFIRMED_S / 2).log
    assert await log.end() == 1
    log.fail(LogClosed("over"))


@in_virtual_time
async def test_a_last_chunk_that_nobody_confirms_ends_the_question() -> None:
    log = LeaderOfFew(confirms_after_s=2 * UNCONFIRMED_S).log
    with pytest.raises(LogClosed, match="not confirmed for 10 s"):
        await log.end()
    log.fail(LogClosed("over"))
