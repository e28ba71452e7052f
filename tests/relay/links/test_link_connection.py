"""How one end of a link connects, and how long it waits before it does so again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from relay import ticks
from relay.links.transport.connection import LASTED_S, LinkConnection, LinkParts
from relay.links.transport.link_end import LinkUnreachable
from relay.links.transport.memory import MemoryEnd, MemoryMeeting
from relay.log.writer import LogWriter
from tests.log_world import LogWorld, in_one_life
from tests.relay.link_chain import LoopClock
from tests.virtual_time import let_pass


class Connector:
    """Of as many ends as it is told to make; notes when it was asked."""

    def __init__(self, makes: Callable[[int], bool]) -> None:
        self.asked: list[float] = []
        self._makes = makes
        loop = asyncio.get_running_loop()
        self._meeting = MemoryMeeting(loop.call_later)

    async def connect(self) -> MemoryEnd:
        self.asked.append(asyncio.get_running_loop().time())
        if not self._makes(len(self.asked)):
            raise LinkUnreachable("nobody there")
        return self._meeting.sender_end("sender")

    @property
    def waits(self) -> list[float]:
        """Seconds from each attempt to the next."""
        pairs = zip(self.asked, self.asked[1:], strict=False)
        return [later - earlier for earlier, later in pairs]


def connection_of(connector: Connector, writer: LogWriter) -> LinkConnection:
    parts = LinkParts(
        name="test", connector=connector, writer=writer, clock=LoopClock(), random=lambda: 1.0
    )
    return LinkConnection("test", parts)


async def never_lives(end: object) -> str:
    raise AssertionError("there was no connection")


async def never_fails(reason: str) -> None:
    raise AssertionError(reason)


@in_one_life()
async def test_the_waits_after_failures_grow_and_each_is_told(
    world: LogWorld, writer: LogWriter
) -> None:
    connector = Connector(lambda attempt: False)
    told: list[str] = []

    async def not_connected(reason: str) -> None:
        told.append(reason)

    connection = connection_of(connector, writer)
    await connection.keep(never_lives, not_connected, lambda: len(told) < 12)
    assert told == ["nobody there"] * 12
    assert connector.waits[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6], abs=0.01)
    assert connector.waits[-1] == pytest.approx(30.0, abs=0.01)


@in_one_life()
async def test_a_connection_that_lasted_makes_the_next_wait_short(
    world: LogWorld, writer: LogWriter
) -> None:
    connector = Connector(lambda attempt: True)
    lives = [0.0, 0.0, 0.0, LASTED_S + 1, 0.0]

    async def live(end: object) -> str:
        await asyncio.sleep(lives.pop(0))
        return "over"

    await connection_of(connector, writer).keep(live, never_fails, lambda: bool(lives))
    assert connector.waits == pytest.approx([0.4, 0.8, 1.6, LASTED_S + 1 + 0.2], abs=0.01)


@in_one_life()
async def test_nothing_is_connected_while_the_log_is_away(
    world: LogWorld, writer: LogWriter
) -> None:
    connector = Connector(lambda attempt: True)
    world.stream.reachable = False
    run = await writer.running()
    world.stream.break_connections()
    await run.ended
    over = asyncio.Event()

    async def live(end: object) -> str:
        over.set()
        return "over"

    keeping = asyncio.ensure_future(
        connection_of(connector, writer).keep(live, never_fails, lambda: not over.is_set())
    )
    await let_pass(100)
    assert connector.asked == []
    world.stream.reachable = True
    await keeping
    assert len(connector.asked) == 1


@in_one_life()
async def test_a_nap_ends_when_woken_when_due_or_after_the_most(
    world: LogWorld, writer: LogWriter
) -> None:
    connection = connection_of(Connector(lambda attempt: True), writer)
    loop = asyncio.get_running_loop()

    async def length(due: float | None, most_s: float) -> float:
        began = loop.time()
        connection.wake.clear()
        await connection.nap(due, most_s)
        return loop.time() - began

    # Long ones end on the next tick.
    assert 5.0 <= await length(None, 5.0) <= 5.01 + ticks.TICK_S
    assert 2.0 <= await length(loop.time() + 2, 5.0) <= 2.01 + ticks.TICK_S
    assert await length(loop.time() + 0.2, 5.0) == pytest.approx(0.2, abs=0.01)
    assert await length(loop.time() - 2, 5.0) == pytest.approx(0.0, abs=0.01)
    loop.call_later(1.0, connection.wake.set)
    assert await length(None, 5.0) == pytest.approx(1.0, abs=0.01)
