"""What is not delivered: expired, too old, too big for the broker, unreadable. The flow goes on."""

from __future__ import annotations

from random import Random

import pytest

from relay.batches.format import decode_entries
from relay.bulk_amqp import content_header
from relay.delivery.properties import text_field
from tests.relay.deliverer_world import NOW_MS, WINDOW_MS, World, entry


async def test_a_message_past_its_deadline_expires_and_one_before_it_keeps_what_is_left() -> None:
    world = World()
    async with world.running() as life:
        batch = world.batch(
            [entry(1, deadline_ms=NOW_MS - 1), entry(2, deadline_ms=NOW_MS + 5000), entry(3)]
        )
        await life.settled(await life.log(batch))
        assert life.counters.expired == 1
    assert world.delivered() == ["body 2", "body 3"]
    _, message = world.broker.messages["orders.queue"][0]
    assert content_header.text(message.properties, content_header.EXPIRATION) == b"5000"


async def test_what_is_older_than_the_window_is_quarantined_and_not_seen() -> None:
    world = World()
    async with world.running() as life:
        old = entry(1, published_ms=NOW_MS - WINDOW_MS - 1)
        name = await life.log(world.batch([old]), world.batch([entry(1)]))
        await life.settled(name)
        assert life.counters.quarantined == 1
    assert [m.body for _, m in world.broker.messages["quarantine"]] == [b"body 1"]
    assert world.delivered() == ["body 1"]


@pytest.mark.parametrize("lacks", ["its exchange", "the right to write"])
async def test_before_apply_has_run_what_is_put_aside_waits_in_its_flow_and_nothing_is_lost(
    lacks: str,
) -> None:
    world = World()
    if lacks == "its exchange":
        del world.broker.exchanges["quarantine"]
    else:
        world.broker.closed.add("quarantine")
    async with world.running() as life:
        old = entry(1, published_ms=NOW_MS - WINDOW_MS - 1)
        name = await life.log(world.batch([old]), world.batch([entry(2)]))
        await life.until(
            lambda: "`isthmus apply`" in life.deliverer.standing.get("paris/orders", "")
        )
        assert life.counters.quarantined == 0
        world.broker.closed.clear()
        world.broker.exchanges["quarantine"] = ["quarantine"]
        await life.settled(name)
    assert [m.body for _, m in world.broker.messages["quarantine"]] == [b"body 1"]
    assert world.delivered() == ["body 2"]


async def test_a_clock_that_is_ahead_makes_older_and_one_that_is_behind_not_younger() -> None:
    world = World()
    async with world.running() as life:
        life.context.clock_differences_ms["paris"] = 5_000
        just_too_old = entry(1, published_ms=NOW_MS - WINDOW_MS + 4_999)
        await life.settled(await life.log(world.batch([just_too_old])))
        assert life.counters.quarantined == 1
        # It may have been right when that was published: the barrier may not remember it.
        life.context.clock_differences_ms["paris"] = -5_000
        name = await life.log(world.batch([entry(2, published_ms=NOW_MS - WINDOW_MS - 1)]))
        await life.settled(name)
        assert life.counters.quarantined == 2
        await life.settled(await life.log(world.batch([entry(3, published_ms=NOW_MS - WINDOW_MS)])))
    assert world.delivered() == ["body 3"]


async def test_what_the_broker_can_never_take_is_quarantined_and_the_flow_goes_on() -> None:
    world = World()
    world.broker.most_property_bytes = 400
    world.broker.most_body_bytes = 1000
    big = text_field(b"big", b"x" * 350)
    large = entry(2, properties=content_header.rewrite(content_header.NONE_PRESENT, {}, big))
    async with world.running() as life:
        await life.settled(
            await life.log(world.batch([entry(1), large, entry(3, Random(3).randbytes(2000))]))
        )
        await life.settled(await life.log(world.batch([entry(4)])))
        assert (life.counters.quarantined, life.counters.redelivered) == (2, 0)
    assert world.delivered() == ["body 1", "body 4"]
    record, note = [message for _, message in world.broker.messages["quarantine"]]
    assert decode_entries(record.body) == [large]
    assert b"2000 bytes, only in the log: paris/" in note.properties
    assert note.body == b""


async def test_a_batch_that_cannot_be_opened_is_quarantined_and_the_flow_goes_on() -> None:
    world = World()
    async with world.running() as life:
        header, data = world.batch([entry(1)])
        name = await life.log((header, data[:-4]), world.batch([entry(2)]))
        await life.settled(name)
    (kept,) = [message for _, message in world.broker.messages["quarantine"]]
    assert kept.body == data[:-4]
    assert world.delivered() == ["body 2"]
