"""Messages of the site's own gather before they are entered, unless a copy may come."""

from __future__ import annotations

import asyncio

import pytest

from relay.batches.batch import BatchHeader, Entry
from relay.batches.opened_batch import content_of
from relay.delivery.flow_queue import GATHER_ENTRIES, GATHER_S
from tests.relay.deliverer_world import Life, World, entry, in_pieces
from tests.virtual_time import in_virtual_time, let_pass

SHORT_S = GATHER_S / 10


def own(world: World, *numbers: int) -> tuple[BatchHeader, bytes]:
    return world.batch([entry(n) for n in numbers], origin="tokyo", incarnation=b"incarn_t")


async def entered(life: Life, count: int) -> float:
    """Wait until so many are entered; return how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await life.until(lambda: life.counters.own == count)
    return loop.time() - began


@in_virtual_time
async def test_batches_that_come_one_by_one_are_entered_together() -> None:
    world = World()
    async with world.running() as life:
        for number in range(5):
            await life.log(own(world, number))
            await let_pass(SHORT_S)
        assert life.counters.own == 0
        await entered(life, 5)
        await life.log(own(world, 5))
        assert SHORT_S < await entered(life, 6) <= 2 * GATHER_S


@in_virtual_time
async def test_a_chunk_waits_for_no_more() -> None:
    world = World()
    async with world.running() as life:
        half = GATHER_ENTRIES // 2
        await life.log(own(world, *range(half)))
        await let_pass(SHORT_S)
        await life.log(own(world, *range(half, 2 * half)))
        assert await entered(life, 2 * half) < SHORT_S


@in_virtual_time
async def test_a_batch_of_another_origin_finds_what_stands_before_it_in_the_log_entered() -> None:
    world = World()
    async with world.running() as life:
        await life.log(own(world, 1))
        await let_pass(SHORT_S)
        prices = world.batch([entry("p")], exchange="prices")
        await life.log(prices)
        await life.until(lambda: world.delivered("prices") == ["body p"])
        assert life.counters.own == 0  # no copy of it can come with another exchange
        await life.log(world.batch([entry(1), entry(2)]))
        assert await entered(life, 1) < SHORT_S
        await life.until(lambda: life.counters.delivered == 2)
        assert life.counters.duplicates == 1
    assert world.delivered() == ["body 2"]


@in_virtual_time
async def test_own_messages_behind_a_copy_do_not_keep_those_before_it_waiting() -> None:
    world = World()
    async with world.running() as life:
        await life.log(own(world, 0), world.batch([entry("p")]))
        await life.until(lambda: life.counters.own == life.counters.delivered == 1)
        at_once = own(world, 1), world.batch([entry(1)]), own(world, 2)
        await asyncio.gather(*(life.writer.append(*batch) for batch in at_once))
        await life.until(lambda: life.counters.own == 3)
        await life.until(lambda: life.counters.duplicates + life.counters.delivered == 2)
    assert world.delivered() == ["body p"]


@in_virtual_time
async def test_a_node_that_stops_enters_what_has_gathered() -> None:
    world = World()
    async with world.running() as life:
        await life.log(own(world, 1))
        await life.until(lambda: life.context.settlement.reader.number == 1)
        life.stopping.set()
        await life.task
        assert life.counters.own == 1
    async with world.running() as life:
        await let_pass(2 * GATHER_S)
        assert life.counters.own == 0


@pytest.mark.parametrize("was_just_packed", [True, False])
async def test_an_own_message_in_pieces_is_entered_with_the_hash_of_the_whole(
    *, was_just_packed: bool
) -> None:
    world, whole = World(), entry(1, b"x" * 300)
    content = content_of(whole)
    pieces = own_pieces(world, whole, content if was_just_packed else b"")
    async with world.running() as life:
        await life.settled(await life.log(*pieces))
        assert life.counters.own == 1
        await life.settled(await life.log(world.batch([whole]), world.batch([entry(2)])))
        assert (life.counters.duplicates, life.counters.identity_conflicts) == (1, 0)
    assert world.delivered() == ["body 2"]
    assert {row.contents[:8] for row in world.rows() if row.contents} >= {content[:8]}


async def test_pieces_that_this_process_packed_are_not_put_together_to_be_hashed() -> None:
    world, whole = World(), entry(1, b"x" * 300)
    async with world.running() as life:
        await life.settled(await life.log(*own_pieces(world, whole, b"another's hash")))
        await life.settled(await life.log(world.batch([whole])))
        assert (life.counters.own, life.counters.identity_conflicts) == (1, 1)


def own_pieces(world: World, whole: Entry, content: bytes) -> list[tuple[BatchHeader, bytes]]:
    return in_pieces(world, whole, content=content, origin="tokyo", incarnation=b"incarn_t")
