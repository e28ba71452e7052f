"""Delivery from a site's log to its exchange: once, in order, flagged only where in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from federation.mesh import Exchange, ExchangeMode, IdentityScope, RetryRule
from relay.batch import BatchKind, Fragment, Predecessor
from relay.batch_format import decode_entries
from relay.bulk_amqp import content_header
from relay.delivery_properties import text_field
from relay.fragments import PIECE_BYTES, split
from relay.ledger_rows import CONFLICT, OUTCOME_MASK, REDELIVERED, Event, Outcome
from relay.local_exchange import Answer, Outgoing
from relay.log_reader import LogGap
from relay.log_writer import LogSettings
from relay.memory_exchange import MemoryBroker, MemoryExchange
from tests.relay.deliverer_world import FAST, NOW_MS, WINDOW_MS, Life, World, entry, mesh
from tests.virtual_time import in_virtual_time


async def test_messages_arrive_once_in_order_with_path_and_origin() -> None:
    world = World()
    async with world.running() as life:
        first = world.batch([entry(n) for n in range(200)])
        second = world.batch([entry(n) for n in range(200, 400)])
        await life.settled(await life.log(first, second))
    assert world.delivered() == [f"body {n}" for n in range(400)]
    assert not any(world.flags())
    _, message = world.broker.messages["orders.queue"][0]
    assert content_header.text(message.properties, content_header.USER_ID) == b"relay"
    assert content_header.text(message.properties, content_header.CLUSTER_ID) == b"paris"
    assert content_header.header(message.properties, b"x-mesh-path") == b"S\0\0\0\x0bparis,tokyo"
    assert content_header.header(message.properties, b"x-mesh-exchange") == b"S\0\0\0\x06orders"


async def test_a_clean_restart_delivers_nothing_again_and_goes_on() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1), entry(2)])))
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(3)])))
        assert life.counters.delivered == 1
    assert world.delivered() == ["body 1", "body 2", "body 3"]
    assert not any(world.flags())


async def test_the_same_identity_twice_is_delivered_once() -> None:
    world = World()
    async with world.running() as life:
        batch = world.batch([entry(1), entry(1), entry(2)])
        again = world.batch([entry(1), entry(3)], origin="sydney", incarnation=b"incarn_s")
        await life.settled(await life.log(batch, again))
        assert life.counters.duplicates == 2
    assert world.delivered() == ["body 1", "body 2", "body 3"]


async def test_the_same_identity_with_other_content_is_delivered_and_counted_once_each() -> None:
    world = World()
    async with world.running() as life:
        other = entry(1, b"other")
        await life.settled(await life.log(world.batch([entry(1), other, other])))
        assert life.counters.identity_conflicts == 1
        assert life.counters.duplicates == 1
    assert world.delivered() == ["body 1", "other"]
    outcomes = b"".join(row.outcomes for row in world.rows())
    assert [o & CONFLICT for o in outcomes] == [0, CONFLICT, 0]


async def test_with_scope_origin_the_same_identity_from_two_sites_is_two_messages() -> None:
    world = World(mesh(Exchange("orders", scope=IdentityScope.ORIGIN)))
    async with world.running() as life:
        batch = world.batch([entry(1)])
        other = world.batch([entry(1)], origin="sydney", incarnation=b"incarn_s")
        await life.settled(await life.log(batch, other))
    assert world.delivered() == ["body 1", "body 1"]


async def test_own_messages_are_not_published_back_but_later_copies_are_stopped() -> None:
    world = World()
    async with world.running() as life:
        own = world.batch([entry(1)], origin="tokyo", incarnation=b"incarn_t")
        copy = world.batch([entry(1), entry(2)])
        await life.settled(await life.log(own, copy))
        assert (life.counters.own, life.counters.duplicates) == (1, 1)
    assert world.delivered() == ["body 2"]


async def test_what_was_published_and_not_committed_comes_again_flagged_and_nothing_else() -> None:
    world = World()

    def hangs(broker: MemoryBroker) -> MemoryExchange:
        return MemoryExchange(broker, lambda: asyncio.get_running_loop().create_future())

    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(n) for n in range(10)])))
        world.make_exchange = hangs
        world.exchanges[-1].break_off("test")
        await life.until(lambda: len(world.exchanges) == 2)
        await life.log(world.batch([entry(n) for n in range(10, 20)]))
        await life.until(lambda: len(world.delivered()) == 20)
        await life.log(world.batch([entry(n) for n in range(20, 300)][:200]))
        await life.kill()
    world.make_exchange = MemoryExchange
    async with world.running() as life:
        await life.until(lambda: len(world.delivered()) == 230)
        assert life.counters.redelivered == 10
    assert world.delivered()[20:30] == [f"body {n}" for n in range(10, 20)]
    assert world.flags() == [False] * 20 + [True] * 10 + [False] * 200
    outcomes = b"".join(row.outcomes for row in world.rows())
    assert [bool(o & REDELIVERED) for o in outcomes] == [False] * 10 + [True] * 10 + [False] * 200


async def test_a_lost_connection_puts_what_was_sent_in_doubt_and_it_comes_again_flagged() -> None:
    world = World()
    broken = False

    def breaks_once(broker: MemoryBroker) -> MemoryExchange:
        nonlocal broken
        if broken:
            return MemoryExchange(broker)
        broken = True
        return MemoryExchange(broker, lambda: asyncio.get_running_loop().create_future())

    world.make_exchange = breaks_once
    async with world.running() as life:
        name = await life.log(world.batch([entry(1), entry(2)]))
        await life.until(lambda: len(world.delivered()) == 2)
        world.exchanges[0].break_off("the broker went")
        await life.settled(name)
        assert life.counters.redelivered == 2
        assert life.counters.dead == 0
    assert world.flags() == [False, False, True, True]


async def test_a_refused_message_is_retried_alone_while_other_flows_go_on() -> None:
    world = World()
    world.broker.capacity["orders.queue"] = 2
    async with world.running() as life:
        await life.log(world.batch([entry(n) for n in range(4)]))
        prices = world.batch([entry("p")], exchange="prices")
        await life.log(prices)
        await life.until(lambda: world.delivered("prices") == ["body p"])
        await life.until(lambda: life.counters.dead == 2)
    assert world.delivered() == ["body 0", "body 1"]
    dead = [message for _, message in world.broker.messages["dead"]]
    assert [message.body for message in dead] == [b"body 2", b"body 3"]
    reason = content_header.header(dead[0].properties, b"x-mesh-dead-reason") or b""
    assert b"refused" in reason
    assert content_header.header(dead[0].properties, b"x-mesh-dead-attempts") == b"S\0\0\0\x013"
    outcomes = [o & OUTCOME_MASK for row in world.rows() for o in row.outcomes]
    assert outcomes.count(Outcome.DEAD) == 2


@in_virtual_time
async def test_messages_refused_together_wait_together_and_not_in_turns() -> None:
    rule = RetryRule(max_attempts=1000, backoff_first_s=2, backoff_most_s=2)
    world = World(mesh(Exchange("orders", retry=rule)))
    world.broker.capacity["orders.queue"] = 5
    async with world.running() as life:
        await life.log(world.batch([entry(n) for n in range(100)]))
        await life.until(lambda: bool(life.deliverer.standing))
        del world.broker.capacity["orders.queue"]
        await life.until(lambda: len(world.delivered()) == 100)
        assert asyncio.get_running_loop().time() < 4
    assert world.delivered() == [f"body {n}" for n in range(100)]


async def test_repeats_to_the_healthy_queue_are_all_flagged() -> None:
    world = World()
    world.broker.declare("orders", "full")
    world.broker.capacity["full"] = 0
    async with world.running() as life:
        await life.log(world.batch([entry(1)]))
        await life.until(lambda: life.counters.dead == 1)
    assert world.delivered() == ["body 1"] * 3
    assert world.flags() == [False, True, True]


async def test_a_flow_that_stands_is_passed_by_and_catches_up_in_order() -> None:
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6)), Exchange("p")))
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        for n in range(300):
            await life.log(world.batch([entry(n)]))
            if n % 10 == 0:
                await life.log(world.batch([entry(f"p{n}")], exchange="p"))
        await life.until(lambda: len(world.delivered("p")) == 30)
        assert world.delivered() == []
        flow = next(f for f in life.deliverer._flows if f.exchange == "orders")
        assert len(life.deliverer._flows[flow].queue._jobs) <= 64
        del world.broker.capacity["orders.queue"]
        await life.until(lambda: len(world.delivered()) == 300)
        name = await life.log(world.batch([entry("last")]))
        await life.settled(name)
    assert world.delivered() == [*(f"body {n}" for n in range(300)), "body last"]
    assert sum(world.flags()) <= 256


async def test_a_flow_that_has_caught_up_no_longer_holds_the_position() -> None:
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6)), Exchange("p")))
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        for n in range(200):
            await life.log(world.batch([entry(n)]))
        last = await life.log(world.batch([entry("p0")], exchange="p"))
        await life.until(lambda: len(world.delivered("p")) == 1)
        del world.broker.capacity["orders.queue"]
        await life.settled(last)
    assert len(world.delivered()) == 200


async def test_a_flow_that_stood_for_longer_than_the_log_keeps_stops_alone_and_says_gap() -> None:
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6)), Exchange("p")))
    world.log_settings = LogSettings(hot_bytes=2000)
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("first")])))
        world.broker.capacity["orders.queue"] = 1
        for n in range(200):
            await life.log(world.batch([entry(n)]))
        last = await life.log(world.batch([entry("p0")], exchange="p"))
        await life.until(lambda: len(world.delivered("p")) == 1)
        await life.until(lambda: (at := life.writer.checked) is not None and at.name == last)
        world.stream.truncate_head(world.stream.records[150].offset)
        del world.broker.capacity["orders.queue"]
        await life.until(lambda: any("gap" in why for why in life.deliverer.standing.values()))
        await life.log(world.batch([entry("p1")], exchange="p"))
        await life.until(lambda: len(world.delivered("p")) == 2)
        position = life.context.position
    delivered = world.delivered()
    assert delivered == ["body first", *(f"body {n}" for n in range(len(delivered) - 1))]
    gaps = [row for row in world.rows() if row.event is Event.GAP]
    assert [(row.exchange, row.origin) for row in gaps] == [("orders", "paris")]
    assert position is not None
    assert position.name.sequence <= len(delivered) - 1
    # The next start does not go on silently either.
    life = Life(world)
    await life.start()
    with pytest.raises(LogGap):
        await asyncio.wait_for(asyncio.shield(life.task), 10)
    await life.stop()


async def test_after_a_restart_of_a_standing_flow_only_what_was_in_doubt_is_flagged() -> None:
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6))))
    world.broker.capacity["orders.queue"] = 5
    async with world.running() as life:
        for n in range(100):
            await life.log(world.batch([entry(n)]))
        await life.until(lambda: bool(life.deliverer.standing))
    assert world.delivered() == [f"body {n}" for n in range(5)]
    del world.broker.capacity["orders.queue"]
    async with world.running() as life:
        await life.until(lambda: len(world.delivered()) == 100)
        redelivered = life.counters.redelivered
    assert world.delivered() == [f"body {n}" for n in range(100)]
    flags = world.flags()
    assert flags[5]
    assert redelivered == sum(flags) <= 64
    assert not any(flags[5 + sum(flags) :])


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


async def test_big_messages_are_published_one_by_one_however_small_their_last_pieces() -> None:
    world = World()
    entries = [entry(n, bytes([n]) * (2 * PIECE_BYTES + 1)) for n in range(4)]
    batches = [
        world.batch([piece], kind=BatchKind.FRAGMENT, fragment=fragment)
        for one in entries
        for fragment, piece in split(one)
    ]
    sizes: list[int] = []
    all_logged = asyncio.Event()

    class Noting(MemoryExchange):
        async def publish(
            self, exchange: str, messages: Sequence[Outgoing], *, timeout_s: float
        ) -> list[Answer]:
            await all_logged.wait()
            sizes.append(sum(len(message.body) for message in messages))
            return await super().publish(exchange, messages, timeout_s=timeout_s)

    world.make_exchange = Noting
    async with world.running() as life:
        last = await life.log(*batches)
        all_logged.set()
        await life.settled(last)
    assert sizes == [2 * PIECE_BYTES + 1] * 4


async def test_a_batch_that_cannot_be_opened_is_quarantined_and_the_flow_goes_on() -> None:
    world = World()
    async with world.running() as life:
        header, data = world.batch([entry(1)])
        name = await life.log((header, data[:-4]), world.batch([entry(2)]))
        await life.settled(name)
    (kept,) = [message for _, message in world.broker.messages["quarantine"]]
    assert kept.body == data[:-4]
    assert world.delivered() == ["body 2"]


async def test_void_batches_are_not_delivered() -> None:
    world = World()
    async with world.running() as life:
        valid = world.batch([entry(1)])
        void = world.batch([entry(2)])
        heir = world.batch(
            [entry(3)], incarnation=b"incarn_2", predecessors=(Predecessor(b"incarn_1", 0),)
        )
        await life.settled(await life.log(valid, heir, void))
    assert world.delivered() == ["body 1", "body 3"]


async def test_a_message_in_pieces_is_delivered_whole_also_over_a_restart() -> None:
    world = World()
    whole = entry(1, b"x" * 300)
    pieces = [
        world.batch(
            [replace(whole, body=whole.body[100 * n : 100 * n + 100])],
            kind=BatchKind.FRAGMENT,
            fragment=Fragment(n, 3),
        )
        for n in range(3)
    ]
    async with world.running() as life:
        await life.log(world.batch([entry(0)]), *pieces[:2])
        await life.until(lambda: life.context.settlement.reader.number == 3)
    async with world.running() as life:
        await life.settled(await life.log(pieces[2]))
    assert world.delivered() == ["body 0", "x" * 300]
    assert not any(world.flags())


async def test_pieces_of_a_dead_incarnation_hold_nothing_up() -> None:
    world = World()
    piece = world.batch([entry(1)], kind=BatchKind.FRAGMENT, fragment=Fragment(0, 3))
    heir = world.batch(
        [entry(1, b"whole")], incarnation=b"incarn_2", predecessors=(Predecessor(b"incarn_1", 0),)
    )
    async with world.running() as life:
        await life.settled(await life.log(piece, heir))
    assert world.delivered() == ["whole"]


async def test_split_delivers_to_the_other_exchange_and_counts_what_no_queue_wants() -> None:
    world = World(mesh(Exchange("orders", mode=ExchangeMode.SPLIT)))
    world.broker.exchanges["orders.in"] = []
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1)])))
        assert life.counters.unrouted == 1


async def test_an_exchange_that_is_missing_parks_its_flow_until_it_is_there() -> None:
    world = World()
    del world.broker.exchanges["orders"]
    async with world.running() as life:
        name = await life.log(world.batch([entry(1)]))
        await life.until(lambda: bool(life.deliverer.standing))
        assert "isthmus apply" in next(iter(life.deliverer.standing.values()))
        world.broker.declare("orders", "orders.queue")
        await life.settled(name)
    assert world.delivered() == ["body 1"]
    assert world.flags() == [False]


async def test_an_exchange_that_the_mesh_does_not_know_waits_for_a_mesh_that_does() -> None:
    world = World()
    async with world.running() as life:
        name = await life.log(world.batch([entry(1)], exchange="new"))
        await life.until(lambda: bool(life.deliverer.standing))
        world.broker.declare("new", "new.queue")
        life.context.mesh = mesh(Exchange("orders"), Exchange("new"))
        await life.settled(name)
    assert world.delivered("new") == ["body 1"]


async def test_without_a_confirm_a_publish_counts_as_unknown_and_is_tried_again_flagged() -> None:
    world = World()
    answers = iter([True])

    def silent_once(broker: MemoryBroker) -> MemoryExchange:
        loop = asyncio.get_running_loop()

        def answer() -> asyncio.Future[None]:
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


async def test_the_ledger_has_a_row_for_every_message_and_says_what_became_of_it() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1), entry(2), entry(1)])))
    rows = world.rows()
    assert [o & OUTCOME_MASK for row in rows for o in row.outcomes] == [
        Outcome.DELIVERED,
        Outcome.DELIVERED,
        Outcome.DUPLICATE,
    ]
    assert {row.path for row in rows} == {("paris", "tokyo")}
    assert [(row.first_entry, row.count) for row in rows] == [(0, 2), (2, 1)]
