"""A packer of several partitions of one exchange: each comes back by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.partitions import partition_lane, partition_name
from relay.packing.packer_settings import PackerSettings
from tests.relay.packer_world import PackerWorld, numbered
from tests.virtual_time import in_virtual_time

PARTITIONS = tuple(partition_name("orders", number) for number in range(3))


def as_partitions(settings: PackerSettings) -> PackerSettings:
    """Make all exchanges of the world partitions of one exchange."""
    return replace(
        settings,
        exchanges=tuple(
            replace(one, name="orders", lane=partition_lane(0, number))
            for number, one in enumerate(settings.exchanges)
        ),
    )


@in_virtual_time
async def test_partitions_are_packed_each_in_order_under_numbers_of_their_own() -> None:
    world = PackerWorld(exchanges=PARTITIONS, settings=as_partitions)
    for number, name in enumerate(PARTITIONS):
        world.publish(*numbered(20, 100 * number), exchange=name)
    await world.pack_all()
    for name in PARTITIONS:
        world.assert_exactly_once_in_order(name)
    series = {header.name.series for header in world.logged().headers if header.entry_count}
    assert {(one.exchange, one.lane) for one in series} == {
        ("orders", 0),
        ("orders", 203),
        ("orders", 204),
    }


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_partitions_whose_packer_is_killed_again_and_again_lose_and_repeat_nothing(
    seed: int,
) -> None:
    world = PackerWorld(seed, exchanges=PARTITIONS, settings=as_partitions)
    count = 0

    def publish(life: int, burst: int) -> None:
        nonlocal count
        # Of the same bodies in all, which nothing but the queue tells apart.
        world.publish(*numbered(world.chance.randint(0, 9), count), exchange=PARTITIONS[0])
        world.publish(*numbered(world.chance.randint(0, 9), count), exchange=PARTITIONS[1])
        world.publish(*numbered(world.chance.randint(0, 30), count), exchange=PARTITIONS[2])
        count += 30

    await world.killed_again_and_again(publish)
    await world.pack_all()
    for name in PARTITIONS:
        world.assert_exactly_once_in_order(name)
    world.assert_numbers_are_dense()
