"""The wait for a former holder's last bytes: before a lock is used, unless nothing can be left."""

from __future__ import annotations

import asyncio

import pytest

from relay.delivery.deliverer import DeliveryConnection
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.waiters import Signal
from tests.relay.packer_world import PackerWorld, numbered, with_settings
from tests.virtual_time import in_virtual_time

SETTLE_S = 20.0
SOON_S = 5.0
"""More than everything takes but the settling."""


@pytest.mark.parametrize("was_answered", [False, True])
@in_virtual_time
async def test_a_packer_settles_unless_its_predecessor_has_left_nothing(was_answered: bool) -> None:
    world = PackerWorld(settings=with_settings(settle_s=SETTLE_S))
    world.was_answered = was_answered
    world.publish(*numbered(10))
    loop = asyncio.get_running_loop()
    began = loop.time()
    process = await world.start().ready()
    assert (loop.time() - began < SOON_S) is was_answered
    await process.has_packed(10)
    # What this process itself sent over a connection that is gone may arrive later in any case.
    began = loop.time()
    world.broker.break_connections("reset")
    world.publish(*numbered(10, 10))
    await process.has_packed(20)
    assert loop.time() - began >= SETTLE_S
    await process.finish()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("was_answered", [False, True])
@in_virtual_time
async def test_a_deliverer_settles_unless_its_predecessor_has_left_nothing(
    was_answered: bool,
) -> None:
    made: list[MemoryExchange] = []

    async def connect() -> MemoryExchange:
        made.append(MemoryExchange(MemoryBroker()))
        return made[-1]

    loop = asyncio.get_running_loop()
    connection = DeliveryConnection(
        connect, Signal(), lambda: 0.0, SETTLE_S, was_answered=was_answered
    )
    keeping = asyncio.create_task(connection.keep())
    assert await connection.exchange() is made[0]
    assert (loop.time() < SOON_S) is was_answered
    began = loop.time()
    made[0].break_off("reset")
    assert await connection.exchange() is made[1]
    assert loop.time() - began >= SETTLE_S
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
