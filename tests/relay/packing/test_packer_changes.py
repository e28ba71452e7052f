"""A packer whose settings change while it packs."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from relay.batches.batch import BatchKind
from relay.packing.packer_settings import PackerSettings
from tests.relay.packer_world import PackerWorld, Process, numbered
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until


def only(settings: PackerSettings, *names: str, revision: str = "r2") -> PackerSettings:
    exchanges = tuple(one for one in settings.exchanges if one.name in names)
    return replace(settings, exchanges=exchanges, revision=revision)


def in_lanes(settings: PackerSettings, *lanes: int) -> PackerSettings:
    pairs = zip(settings.exchanges, lanes, strict=False)
    return replace(settings, exchanges=tuple(replace(one, lane=lane) for one, lane in pairs))


async def killed_with_50_unacknowledged() -> PackerWorld:
    """A packer that had logged 50 messages has died, and all of them will come back."""
    world = PackerWorld()
    world.publish(*numbered(50))
    world.broker.ack_s = 5.0  # the broker hears of no acknowledgement before the kill
    process = await world.start().ready()
    await process.has_packed(50)
    await process.kill()
    world.broker.ack_s = 0.001
    return world


async def incarnations(process: Process, count: int) -> None:
    metrics, status = process.packer.metrics, process.packer.status
    await until(
        lambda: metrics.incarnations == count and status.state == "running",
        lambda: f"{metrics.incarnations} of {count} incarnations, {status}",
        60,
        every_s=0.001,
    )


@in_virtual_time
async def test_a_revision_that_changes_nothing_here_only_changes_what_headers_say() -> None:
    world = PackerWorld()
    world.publish(*numbered(10))
    process = await world.start().ready()
    await world.drained()
    process.packer.change(replace(world.settings, revision="r2"))
    world.publish(*numbered(10, 10))
    await process.finish()
    world.assert_exactly_once_in_order()
    packed = [one for one in world.logged().headers if one.kind is BatchKind.MESSAGES]
    assert [one.revision for one in packed] == ["r1", "r2"]
    assert process.packer.metrics.incarnations == 1


@in_virtual_time
async def test_an_exchange_that_comes_is_packed_and_what_was_in_hand_is_packed_once() -> None:
    world = PackerWorld(exchanges=("orders", "stock"))
    whole = world.settings
    world.settings = only(whole, "orders")
    process = await world.start().ready()
    world.publish(*numbered(1000))
    world.publish(*numbered(10), exchange="stock")
    await process.has_packed(1000)
    process.packer.change(replace(whole, revision="r3"))
    world.publish(*numbered(100, 1000))
    await incarnations(process, 2)
    await process.finish()
    for exchange in ("orders", "stock"):
        world.assert_exactly_once_in_order(exchange)
    world.assert_numbers_are_dense()


@in_virtual_time
async def test_paused_it_takes_nothing_and_forgets_nothing_of_what_may_come_back() -> None:
    world = await killed_with_50_unacknowledged()
    world.settings = replace(world.settings, paused=True)
    process = await world.start().ready()
    world.publish(*numbered(50, 50))
    await let_pass(600)  # far longer than what was acknowledged is remembered
    assert len(world.logged().bodies()) == 50
    process.packer.change(replace(world.settings, paused=False))
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_what_comes_back_is_recognised_after_its_exchange_was_put_into_another_lane() -> None:
    world = await killed_with_50_unacknowledged()
    world.settings = in_lanes(replace(world.settings, revision="r2"), 2)
    process = await world.start().ready()
    world.publish(*numbered(50, 50))
    await process.finish()
    world.assert_exactly_once_in_order()
    packed = [one for one in world.logged().headers if one.kind is BatchKind.MESSAGES]
    assert {one.name.series.lane for one in packed} == {0, 2}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_changes_while_packers_are_killed_nothing_is_lost_nor_repeated(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        world = PackerWorld(seed, exchanges=("orders", "stock"))
        whole, chance = world.settings, world.chance
        for life in range(4):
            process = await world.start().ready()
            for burst in range(12):
                world.publish(b"o %d %d" % (life, burst))
                world.publish(b"s %d %d" % (life, burst), exchange="stock")
                await asyncio.sleep(chance.choice([0.0, 0.002, 0.05, 1.5]))
                if chance.random() < 0.3:
                    names = chance.choice([("orders",), ("stock",), ("orders", "stock")])
                    settings = only(whole, *names, revision=f"r{life}.{burst}")
                    settings = in_lanes(settings, *chance.choices((0, 1, 2), k=2))
                    world.settings = replace(settings, paused=chance.random() < 0.3)
                    process.packer.change(world.settings)
            await process.kill()
        world.settings = whole
        process = await world.pack_all()
        for exchange in ("orders", "stock"):
            world.assert_nothing_lost_nor_repeated(exchange)
        world.assert_numbers_are_dense()

    trial()


@in_virtual_time
async def test_a_message_in_pieces_bears_one_revision_whatever_changes_between_them() -> None:
    world = PackerWorld()
    world.settings = replace(world.settings, unconfirmed_bytes=1)  # a piece at a time
    process = await world.start().ready()
    world.publish(random.Random(1).randbytes(5_000_000), b"after")
    await until(lambda: process.packer.metrics.batches > 3, "some pieces", 60, every_s=0.001)
    process.packer.change(replace(world.settings, revision="r2"))
    await process.finish()
    packed = [one for one in world.logged().headers if one.kind is not BatchKind.MARK]
    assert [one.revision for one in packed] == ["r1"] * 7 + ["r2"]
