"""A flow that has read its missed batches, but for the last ones before the reader's place."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from relay.batches.batch import LoggedBatch
from relay.delivery.context import DeliveryContext
from relay.delivery.flow_delivery import FlowDelivery
from relay.delivery.memory_exchange import MemoryExchange
from relay.log.reader import LogGap, LogReader
from tests.relay.deliverer_world import Life, entry
from tests.relay.delivery.test_chunk_order import HeldAnswers
from tests.relay.delivery.test_chunks_in_trouble import patient
from tests.virtual_time import in_virtual_time, let_pass

Batches = list[LoggedBatch] | None


def orders_of(life: Life) -> FlowDelivery:
    flows = life.deliverer._flows.items()
    return next(delivery for flow, delivery in flows if flow.exchange == "orders")


@contextmanager
def second_reading(then: Callable[[LogReader], Awaitable[Batches]]) -> Iterator[None]:
    """Have each reading of a flow's own cursor but the first give what `then` gives."""
    genuine = DeliveryContext.next_batches
    asked = 0

    async def next_batches(self: DeliveryContext, reader: LogReader, most_bytes: int) -> Batches:
        nonlocal asked
        if reader.name.startswith("flow"):
            asked += 1
            if asked > 1:
                return await then(reader)
        return await genuine(self, reader, most_bytes)

    DeliveryContext.next_batches = next_batches  # type: ignore[method-assign]
    try:
        yield
    finally:
        DeliveryContext.next_batches = genuine  # type: ignore[method-assign]


async def fall_behind(held: HeldAnswers, life: Life) -> None:
    """Have `orders` stand until its batches have to be read from the log, in several readings."""
    world = held.world
    world.broker.capacity["orders.queue"] = 0
    await held.log_each(life, 0)
    held.waiting[0].set_result(None)
    await life.until(lambda: bool(life.deliverer.standing))
    for number in range(1, 150):
        body = b"%d " % number + random.Random(number).randbytes(5000)
        await life.log(world.batch([entry(number, body=body)]))
    await life.until(lambda: orders_of(life).queue._behind)
    await life.until(lambda: life.context.settlement.reader.number == 150)


@in_virtual_time
async def test_a_gap_met_while_rejoining_holds_the_position() -> None:
    held = patient(HeldAnswers())
    async with held.world.running() as life:

        async def then(reader: LogReader) -> Batches:
            if orders_of(life).queue._behind:
                return []
            assert reader.place is not None
            raise LogGap(reader.place, reader.place.offset + 5)

        await fall_behind(held, life)
        with second_reading(then):
            del held.world.broker.capacity["orders.queue"]
            held.answer_all_from_now_on()
            life.world.exchanges[-1]._before_answer = None
            await life.until(lambda: "gap" in str(life.deliverer.standing))
            assert orders_of(life).flow in life.context.settlement._outstanding


@in_virtual_time
async def test_a_stop_while_rejoining_keeps_the_position_before_what_was_not_read() -> None:
    held = patient(HeldAnswers())
    world = held.world
    async with world.running() as life:

        async def then(_: LogReader) -> Batches:
            life.stopping.set()
            return None

        life.context.settings.confirm_timeout_s = 30.0
        await fall_behind(held, life)
        await life.log(world.batch([entry("p")], exchange="prices"))
        await life.until(lambda: world.delivered("prices") == ["body p"])
        price = held.waiting[-1]
        with second_reading(then):
            del world.broker.capacity["orders.queue"]
            while not life.stopping.is_set() or not orders_of(life)._order.is_empty:
                for waiting in held.waiting:
                    if waiting is not price and not waiting.done():
                        waiting.set_result(None)
                await let_pass(0.002)
            await let_pass(0.1)
            price.set_result(None)
            await life.task
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
    assert len(world.broker.messages["orders.queue"]) == 151
