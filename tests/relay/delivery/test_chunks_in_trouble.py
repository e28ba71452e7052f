"""Chunks behind a chunk that is refused, given up or in error: they wait, and hold up nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from federation.mesh import Exchange, RetryRule
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.ledger.rows import REDELIVERED
from relay.log.run import LogSettings
from tests.relay.deliverer_world import FAST, NOW_MS, Life, World, entry, mesh
from tests.relay.delivery.test_chunk_order import HeldAnswers, bodies
from tests.virtual_time import in_virtual_time, let_pass

PATIENT = replace(FAST, max_attempts=10**6)


def patient(held: HeldAnswers) -> HeldAnswers:
    held.world = World(mesh(Exchange("orders", retry=PATIENT), Exchange("prices", retry=PATIENT)))
    held.world.make_exchange = held._make
    held.world.log_settings = LogSettings(check_every_s=0.01)
    return held


async def stop_as_prices_commits(held: HeldAnswers, life: Life) -> None:
    """Stop while `prices` has a message in flight, which is committed after `orders` gave up."""
    world = held.world
    await life.log(world.batch([entry("p")], exchange="prices"))
    await life.until(lambda: world.delivered("prices") == ["body p"])
    life.stopping.set()
    await let_pass(0.05)
    held.answer_all_from_now_on()
    await life.task


async def assert_first_and_last_arrive(world: World) -> None:
    """Check in the next life that the position stored is not behind what was given up."""
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
    assert world.delivered() == ["body 0", "body last"]


@in_virtual_time
async def test_what_a_stop_gave_up_is_behind_no_position() -> None:
    slow = RetryRule(max_attempts=10**6, backoff_first_s=1000, backoff_most_s=1000)
    held = HeldAnswers()
    world = held.world = World(mesh(Exchange("orders", retry=slow), Exchange("prices")))
    world.make_exchange = held._make
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        await held.log_each(life, 0)
        held.waiting[0].set_result(None)
        await life.until(lambda: bool(life.deliverer.standing))
        await stop_as_prices_commits(held, life)
    del world.broker.capacity["orders.queue"]
    await assert_first_and_last_arrive(world)


@in_virtual_time
async def test_a_chunk_given_up_for_want_of_its_exchange_is_behind_no_position() -> None:
    held = HeldAnswers()
    world = held.world
    async with world.running() as life:
        life.context.mesh = replace(
            world.mesh, exchanges={"prices": world.mesh.exchanges["prices"]}
        )
        await life.log(world.batch([entry(0)]))
        await life.until(lambda: bool(life.deliverer.standing))
        await stop_as_prices_commits(held, life)
    await assert_first_and_last_arrive(world)


@in_virtual_time
async def test_a_kill_during_a_stop_ends_the_chunks_as_well() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, 0, 1)
        life.stopping.set()
        await let_pass(0.01)
        life.task.cancel()
        await asyncio.gather(life.task, return_exceptions=True)
        left = [t for t in asyncio.all_tasks() if t.get_name() == "chunk"]
        writes: list[object] = []
        write, life.state.write = life.state.write, writes.append  # type: ignore[method-assign]
        await let_pass(0.05)
        life.state.write = write  # type: ignore[method-assign]
        assert (len(left), len(writes)) == (0, 0)


@in_virtual_time
async def test_an_error_ends_the_node_though_the_next_chunk_has_no_answer() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        life.context.settings.confirm_timeout_s = 30.0
        await held.log_each(life, 0, 1)

        def fails(*_: object, **__: object) -> None:
            raise OSError("the disk is full")

        life.context.barrier.commit = fails  # type: ignore[method-assign]
        held.waiting[0].set_result(None)
        try:
            with pytest.raises(OSError, match="disk is full"):
                await asyncio.wait_for(asyncio.shield(life.task), 2)
        finally:
            held.answer_all_from_now_on()


@in_virtual_time
async def test_what_expires_behind_a_refused_chunk_is_not_delivered() -> None:
    held = patient(HeldAnswers())
    world = held.world
    world.make_exchange = MemoryExchange
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        await life.log(world.batch([entry(0)]))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.log(world.batch([entry(1, deadline_ms=NOW_MS + 1000)]))
        await let_pass(0.02)
        world.now_ms += 3_600_000
        del world.broker.capacity["orders.queue"]
        await life.until(lambda: life.counters.delivered + life.counters.expired == 2)
    assert world.delivered() == bodies(0)


@in_virtual_time
async def test_a_site_held_while_a_chunk_waits_behind_a_refused_one_delivers_nothing() -> None:
    held = patient(HeldAnswers())
    world = held.world
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        await held.log_each(life, 0)
        held.waiting[0].set_result(None)
        await life.until(lambda: len(held.waiting) == 2)  # tried again, refused, not answered
        held.waiting[1].set_result(None)
        await life.until(lambda: len(held.waiting) == 3)
        await life.log(world.batch([entry(1)]))
        del world.broker.capacity["orders.queue"]
        held.waiting[2].set_result(None)
        await life.until(lambda: len(held.waiting) == 4)  # tried again, taken, not answered
        assert world.delivered() == bodies(0)
        life.context.hold("the site is paused")
        await let_pass(0.01)
        held.waiting[3].set_result(None)
        await life.until(lambda: life.counters.delivered == 1)
        await let_pass(0.03)
        got = world.delivered()
        held.answer_all_from_now_on()
        life.context.hold("")
    assert got == bodies(0)


@in_virtual_time
async def test_what_cannot_be_read_waits_for_the_chunk_before() -> None:
    held = patient(HeldAnswers())
    world = held.world
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        await held.log_each(life, 0)
        await life.log(world.batch([entry(1, properties=b"\xff\xff\xff")]))
        await let_pass(0.02)
        early = len(world.broker.messages["quarantine"])
        for waiting in held.waiting:
            if not waiting.done():
                waiting.set_result(None)
        await life.until(lambda: bool(life.deliverer.standing))
        life.stopping.set()
        held.answer_all_from_now_on()
        await life.task
    del world.broker.capacity["orders.queue"]
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
    assert (early, len(world.broker.messages["quarantine"])) == (0, 1)


@in_virtual_time
async def test_a_crash_flags_nothing_that_waited_behind_a_refused_chunk() -> None:
    held = patient(HeldAnswers())
    world = held.world
    world.make_exchange = MemoryExchange
    world.broker.capacity["orders.queue"] = 0
    life = Life(world)
    await life.start()
    await life.log(world.batch([entry(0)]))
    await life.until(lambda: bool(life.deliverer.standing))
    await life.log(world.batch([entry(n) for n in range(1, 257)]))
    await let_pass(0.05)
    await life.kill()
    del world.broker.capacity["orders.queue"]
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
    assert sum(world.flags()) <= 1


@in_virtual_time
async def test_what_waits_behind_a_refused_chunk_holds_up_no_other_flow() -> None:
    world = World(mesh(Exchange("orders", retry=PATIENT), Exchange("prices", retry=PATIENT)))
    refused = [True]

    class Picky(MemoryBroker):
        def take(self, exchange: str, message: Outgoing) -> Answer:
            if refused[0] and message.body == b"body 0":
                return Answer.REFUSED
            return MemoryBroker.take(self, exchange, message)

    world.broker = Picky(world.broker.exchanges, world.broker.messages)
    async with world.running() as life:
        await life.log(world.batch([entry(0)]))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.log(world.batch([entry(1)]))
        await let_pass(0.02)
        await life.log(world.batch([entry(1), entry(2)], origin="sydney", incarnation=b"incarn_s"))
        await let_pass(0.2)
        got = world.delivered()
        standing = life.deliverer.standing
        refused[0] = False
        await life.until(lambda: life.counters.delivered == 3)
    assert got == bodies(1, 2), standing


@in_virtual_time
async def test_a_stop_leaves_nothing_flagged_that_was_confirmed() -> None:
    held = HeldAnswers()
    world = held.world
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        await held.log_each(life, 0)
        del world.broker.capacity["orders.queue"]
        await held.log_each(life, 1)
        world.broker.capacity["orders.queue"] = 1
        held.waiting[1].set_result(None)
        held.waiting[0].set_result(None)
        await life.until(lambda: bool(life.deliverer.standing))
        life.stopping.set()
        await life.task
    del world.broker.capacity["orders.queue"]
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.until(lambda: life.counters.delivered == 2)
        flagged = [bool(row.outcomes[0] & REDELIVERED) for row in world.rows()]
    assert world.flags() == [False, True]
    assert flagged == [True, False]
