"""What was sent and never answered for comes again, flagged, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import pytest

from relay.batches.batch import BatchHeader
from relay.delivery.local_exchange import Answer, LocalClosed, Outgoing
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.ledger.rows import REDELIVERED
from tests.relay.deliverer_world import World, entry, in_pieces

Logged: TypeAlias = tuple[BatchHeader, bytes]


async def test_what_was_published_and_not_committed_comes_again_flagged_and_nothing_else() -> None:
    world = World()

    def hangs(broker: MemoryBroker) -> MemoryExchange:
        made = MemoryExchange(broker, lambda _: asyncio.get_running_loop().create_future())
        made._is_proven = True
        return made

    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(n) for n in range(10)])))
        world.make_exchange = hangs
        world.exchanges[-1].break_off("test")
        await life.until(lambda: len(world.exchanges) == 2)
        await life.log(world.batch([entry(n) for n in range(10, 20)]))
        await life.until(lambda: len(world.delivered()) == 20)
        await life.log(world.batch([entry(n) for n in range(20, 30)]))
        await life.until(lambda: len(world.delivered()) == 30)  # ahead of the former's confirms
        await life.log(world.batch([entry(n) for n in range(30, 230)]))
        await life.until(lambda: life.context.settlement.reader.number == 4)
        await life.kill()
    assert len(world.delivered()) == 30
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.until(lambda: life.counters.delivered == 220)
        assert life.counters.redelivered == 20
    assert world.delivered()[30:50] == [f"body {n}" for n in range(10, 30)]
    assert world.flags() == [False] * 30 + [True] * 20 + [False] * 200
    outcomes = b"".join(row.outcomes for row in world.rows())
    assert [bool(o & REDELIVERED) for o in outcomes] == [False] * 10 + [True] * 20 + [False] * 200


async def test_a_lost_connection_puts_what_was_sent_in_doubt_and_it_comes_again_flagged() -> None:
    world = World()
    broken = False

    def breaks_once(broker: MemoryBroker) -> MemoryExchange:
        nonlocal broken
        if broken:
            return MemoryExchange(broker)
        broken = True
        return MemoryExchange(broker, lambda _: asyncio.get_running_loop().create_future())

    world.make_exchange = breaks_once
    async with world.running() as life:
        name = await life.log(world.batch([entry(1), entry(2)]))
        await life.until(lambda: len(world.delivered()) == 2)
        world.exchanges[0].break_off("the broker went")
        await life.settled(name)
        assert life.counters.redelivered == 2
        assert life.counters.dead_lettered == 0
    assert world.flags() == [False, False, True, True]


async def test_without_a_confirm_a_publish_counts_as_unknown_and_is_tried_again_flagged() -> None:
    world = World()
    answers = iter([True])

    def silent_once(broker: MemoryBroker) -> MemoryExchange:
        loop = asyncio.get_running_loop()

        def answer(_: str) -> asyncio.Future[None]:
            future = loop.create_future()
            if not next(answers, False):
                future.set_result(None)
            return future

        return MemoryExchange(broker, answer)

    world.make_exchange = silent_once
    async with world.running() as life:
        life.context.settings.confirm_timeout_s = 0.01
        await life.settled(await life.log(world.batch([entry(1)])))
        assert life.counters.redelivered == 1
    assert world.flags() == [False, True]


async def test_a_queue_that_never_answers_holds_up_its_own_exchange_and_no_other() -> None:
    # One without a leader gives neither yes nor no, for as long as it takes to mend it.
    world = World()
    without_leader = True

    def answer(exchange: str) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        if exchange != "orders" or not without_leader:
            future.set_result(None)
        return future

    world.make_exchange = lambda broker: MemoryExchange(broker, answer)
    async with world.running() as life:
        life.context.settings.confirm_timeout_s = 0.05
        await life.log(world.batch([entry(1)]))
        for n in range(20):
            await life.log(world.batch([entry(f"p{n}")], exchange="prices"))
        await life.until(lambda: len(world.delivered("prices")) == 20)
        await life.until(lambda: life.counters.redelivered + len(world.delivered()) > 1)
        without_leader = False
        await life.settled(await life.log(world.batch([entry(2)])))
    assert world.flags("prices") == [False] * 20
    firsts = [body for body, flag in zip(world.delivered(), world.flags(), strict=True) if not flag]
    assert firsts == ["body 1", "body 2"]


def unreachable(broker: MemoryBroker) -> MemoryExchange:
    raise LocalClosed("the broker cannot be reached")


async def test_what_a_stop_finds_announced_and_never_sent_goes_out_unflagged() -> None:
    world = World(make_exchange=unreachable)
    async with world.running() as life:
        name = await life.log(world.batch([entry(1), entry(2)]))
        await life.until(lambda: any(life.context.announced()))
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.settled(name)
    assert world.delivered() == ["body 1", "body 2"]
    assert not any(world.flags())


async def test_so_does_what_an_exchange_that_is_missing_did_not_take() -> None:
    world = World()
    queues = world.broker.exchanges.pop("orders")
    async with world.running() as life:
        name = await life.log(world.batch([entry(1)]))
        await life.until(lambda: "not declared" in life.deliverer.standing.get("paris/orders", ""))
    world.broker.exchanges["orders"] = queues
    async with world.running() as life:
        await life.settled(name)
    assert world.flags() == [False]


async def test_what_was_sent_before_the_broker_went_is_in_doubt_after_a_stop_too() -> None:
    world = World(
        make_exchange=lambda broker: MemoryExchange(
            broker, lambda _: asyncio.get_running_loop().create_future()
        )
    )
    async with world.running() as life:
        name = await life.log(world.batch([entry(1), entry(2)]))
        await life.until(lambda: len(world.delivered()) == 2)
        world.make_exchange = unreachable
        world.exchanges[0].break_off("the broker went")
        await life.until(lambda: life.deliverer.away == "the broker cannot be reached")
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.settled(name)
    assert world.flags() == [False, False, True, True]


SYDNEY: dict[str, Any] = {"origin": "sydney", "incarnation": b"incarn_2"}


class BrokerWithFullQueue(MemoryBroker):
    """Broker with a full queue behind the routing key `full`."""

    is_full = True

    def take(self, exchange: str, message: Outgoing) -> Answer:
        if message.routing_key == b"full" and self.is_full:
            return Answer.REFUSED
        return super().take(exchange, message)


async def killed_beside_a_standing_flow(world: World, copy: Logged, in_doubt: list[Logged]) -> None:
    """Kill a deliverer that has published a message, a copy of which stands before in the log, in a
    flow of SYDNEY that stands.
    """
    async with world.running() as life:
        await life.log(world.batch([entry(0, routing_key=b"full")], **SYDNEY))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.log(copy)
        world.make_exchange = unanswering
        world.exchanges[-1].break_off("test")
        await life.until(lambda: len(world.exchanges) == 2)
        await life.log(*in_doubt)
        await life.until(lambda: bool(world.delivered()))
        await life.kill()
    world.make_exchange = MemoryExchange


def unanswering(broker: MemoryBroker) -> MemoryExchange:
    return MemoryExchange(broker, lambda _: asyncio.get_running_loop().create_future())


@pytest.mark.parametrize("is_big", [False, True])
async def test_a_copy_before_a_message_in_doubt_is_not_judged_first_after_a_restart(
    *, is_big: bool
) -> None:
    broker, message = BrokerWithFullQueue(), entry(1, b"x" * 300)
    world = World(broker=broker)
    in_doubt = in_pieces(world, message) if is_big else [world.batch([message])]
    await killed_beside_a_standing_flow(world, world.batch([message], **SYDNEY), in_doubt)
    broker.is_full = False
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
        await life.until(lambda: life.counters.duplicates == 1)
        assert not life.context.barrier.claims
    sent = sorted(zip(world.delivered(), world.flags(), strict=True))
    assert sent == [("body 0", True), ("body last", False), ("x" * 300, False), ("x" * 300, True)]


async def test_a_batch_in_doubt_that_the_log_has_lost_holds_nobody_up() -> None:
    broker = BrokerWithFullQueue()
    world = World(broker=broker)
    copy, in_doubt = world.batch([entry(1)], **SYDNEY), world.batch([entry(1)])
    await killed_beside_a_standing_flow(world, copy, [in_doubt])
    world.stream.lose_tail(1)
    broker.is_full = False
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
    assert world.delivered() == ["body 1", "body 0", "body 1", "body last"]
