"""The packer over queues and a log in memory, in virtual time."""

from __future__ import annotations

import asyncio

from tests.relay.packer_world import PackerWorld
from tests.virtual_time import run_in_virtual_time


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % n for n in range(start, start + count)]


def test_what_is_published_is_in_the_log_once_and_in_order() -> None:
    async def scenario() -> None:
        world = PackerWorld()
        world.publish(*numbered(1000))
        process = await world.start().ready()
        world.publish(*numbered(1000, 1000))
        await world.drained()
        await process.stop()
        world.assert_exactly_once_in_order()
        world.assert_numbers_are_dense()

    run_in_virtual_time(scenario())


def test_a_killed_packer_s_successor_packs_nothing_twice() -> None:
    async def scenario(seed: int) -> None:
        world = PackerWorld(seed)
        for round_ in range(5):
            process = await world.start().ready()
            for burst in range(20):
                world.publish(*numbered(50, 1000 * round_ + 50 * burst))
                await asyncio.sleep(world.chance.uniform(0, 0.006))
            await process.kill()
        process = await world.start().ready()
        await world.drained()
        await process.stop()
        world.assert_exactly_once_in_order()

    for seed in range(20):
        run_in_virtual_time(scenario(seed))
