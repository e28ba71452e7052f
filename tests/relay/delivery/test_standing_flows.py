"""Flows that stand: behind a refusing queue or a missing exchange, while others go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from federation.mesh import Exchange, RetryRule
from relay.batches.batch import LoggedBatch, Place
from relay.batches.format import read_header
from relay.bulk_amqp import content_header
from relay.delivery import flow_queue
from relay.delivery.chunk_order import CHUNKS_AT_MOST
from relay.delivery.flow_queue import QUEUE_BATCHES, FlowQueue, Job
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.delivery.settlement import Point
from relay.ledger.rows import OUTCOME_MASK, Event, Outcome
from relay.log.reader import LogGap
from relay.log.run import LogSettings
from relay.operator.gaps import SiteGaps, accept
from tests.relay.deliverer_world import FAST, Life, World, entry, mesh
from tests.virtual_time import in_virtual_time


async def test_a_refused_message_is_retried_alone_while_other_flows_go_on() -> None:
    world = World()
    world.broker.capacity["orders.queue"] = 2
    async with world.running() as life:
        await life.log(world.batch([entry(n) for n in range(4)]))
        prices = world.batch([entry("p")], exchange="prices")
        await life.log(prices)
        await life.until(lambda: world.delivered("prices") == ["body p"])
        await life.until(lambda: life.counters.dead_lettered == 2)
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


async def test_a_held_site_delivers_nothing_announces_nothing_and_then_goes_on() -> None:
    world = World()
    life = Life(world)
    await life.start()
    life.context.hold("the site is paused")
    await life.log(world.batch([entry(n) for n in range(4)]))
    await life.until(lambda: life.deliverer.standing == {"paris/orders": "the site is paused"})
    assert not world.delivered()
    await life.kill()
    async with world.running() as life:
        await life.until(lambda: len(world.delivered()) == 4)
    assert not any(world.flags()), "what was never sent is not in doubt"


async def test_a_held_site_stops_at_once_and_goes_on_when_it_is_released() -> None:
    world = World()
    async with world.running() as life:
        life.context.hold("the site is paused")
        await life.log(world.batch([entry(1)]))
        await life.until(lambda: bool(life.deliverer.standing))
    assert not world.delivered()
    async with world.running() as life:
        life.context.hold("the site is paused")
        last = await life.log(world.batch([entry(2)]))
        await life.until(lambda: bool(life.deliverer.standing) or bool(world.delivered()))
        life.context.hold("")
        await life.settled(last)
    assert world.delivered() == ["body 1", "body 2"]


async def test_a_batch_for_every_site_is_delivered_though_our_file_says_otherwise_by_now() -> None:
    # Its origin did not know that this site was taken out of the exchange's `to`.
    world = World(mesh(Exchange("orders", destinations=("lima",))))
    async with world.running() as life:
        await life.log(world.batch([entry(1)]))
        await life.until(lambda: world.delivered() == ["body 1"])


async def test_repeats_to_the_healthy_queue_are_all_flagged() -> None:
    world = World()
    world.broker.declare("orders", "full")
    world.broker.capacity["full"] = 0
    async with world.running() as life:
        await life.log(world.batch([entry(1)]))
        await life.until(lambda: life.counters.dead_lettered == 1)
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


async def test_of_what_is_logged_and_not_delivered_yet_a_second_copy_changes_nothing() -> None:
    # By another way, or sent again: neither is it logged twice, nor the first taken for delivered.
    world = World()
    async with world.running() as life:
        life.context.hold("the site is paused")
        copies = world.batch([entry(n) for n in range(3)])
        name = await life.log(copies, copies)
        await life.until(lambda: bool(life.deliverer.standing))
        assert name in life.writer.logged
        assert name not in life.context.settled
        await life.log(copies)
        assert len(world.stream.records) == 1
        life.context.hold("")
        await life.settled(name)
        await life.log(copies)
    assert len(world.stream.records) == 1
    assert world.delivered() == [f"body {n}" for n in range(3)]


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


async def test_a_flow_that_catches_up_does_not_pass_the_reader_and_then_wait_for_it() -> None:
    # The reader waits for another flow's room, or for what its own packer is about to say.
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6)), Exchange("p")))
    world.broker.capacity["orders.queue"] = 0
    async with world.running() as life:
        for n in range(200):
            passed_by = await life.log(world.batch([entry(n)]))
        await life.until(lambda: life.context.settlement.reader.place.name == passed_by)
        is_undecided, reader_waits = life.context.voids.is_undecided, True
        life.context.voids.is_undecided = lambda header: reader_waits or is_undecided(header)
        for n in range(200, 210):
            last = await life.log(world.batch([entry(n)]))
        del world.broker.capacity["orders.queue"]
        await life.until(lambda: len(world.delivered()) >= 200)
        reader_waits = False
        await life.settled(last)
        after = await life.log(world.batch([entry("p")], exchange="p"))
        await life.settled(after)
    assert world.delivered() == [f"body {n}" for n in range(210)]


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


async def test_what_is_eaten_before_anything_was_ever_settled_is_a_gap_too() -> None:
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6))))
    world.stream.skip_offsets(1)  # as a stored mark takes one
    async with world.running() as life:
        world.broker.capacity["orders.queue"] = 0
        for n in range(20):
            last = await life.log(world.batch([entry(n)]))
        await life.until(lambda: (at := life.writer.checked) is not None and at.name == last)
    assert world.delivered() == []
    world.stream.truncate_head(world.stream.records[15].offset)
    life = Life(world)
    await life.start()
    with pytest.raises(LogGap):
        await asyncio.wait_for(asyncio.shield(life.task), 10)
    await life.stop()


async def test_a_deliverer_that_cannot_learn_where_its_log_begins_ends_when_it_is_to() -> None:
    world = World(mesh(Exchange("orders")))
    life = Life(world)
    await life.start()
    world.stream.reachable = False
    world.stream.break_connections()
    await asyncio.sleep(0)  # it asks, and nobody answers
    life.stopping.set()
    await asyncio.wait_for(life.task, 10)
    await life.stop()


async def test_a_flow_whose_gap_a_person_accepts_goes_on_with_what_there_is(tmp_path: Path) -> None:
    world = World(mesh(Exchange("orders", retry=replace(FAST, max_attempts=10**6)), Exchange("p")))
    world.log_settings = LogSettings(hot_bytes=2000)
    gaps = SiteGaps(tmp_path)
    async with world.running() as life:
        life.context.gaps = gaps
        await life.settled(await life.log(world.batch([entry("first")])))
        world.broker.capacity["orders.queue"] = 1
        for n in range(200):
            last = await life.log(world.batch([entry(n)]))
        await life.until(lambda: (at := life.writer.checked) is not None and at.name == last)
        world.stream.truncate_head(world.stream.records[150].offset)
        del world.broker.capacity["orders.queue"]
        await life.until(lambda: bool(gaps.open))
        (gap,) = gaps.open
        had = len(world.delivered()) - 1
        # By name, each: the flow was done with these, and the log begins with number 150 there.
        assert [(one.first, one.last, one.messages) for one in gap.gone] == [
            (had + 1, 149, 149 - had)
        ]
        life.deliverer.go_on(gap.key)  # of its own accord: nobody has accepted anything
        await life.until(lambda: [row.event for row in world.rows()].count(Event.GAP) == 2)
        accept(tmp_path, gaps.open[0], "ann@host", "today")
        life.deliverer.go_on(gap.key)
        await life.settled(last)
    rest = [f"body {n}" for n in range(149, 200)]
    assert world.delivered() == ["body first", *(f"body {n}" for n in range(had)), *rest]
    accepted = [row for row in world.rows() if row.event is Event.GAP_ACCEPTED]
    assert [(row.exchange, row.origin) for row in accepted] == [("orders", "paris")]
    assert accepted[0].reason.startswith("accepted by ann@host at today")
    assert not gaps.open
    async with world.running() as life:  # nor does the next start ask again
        await life.settled(await life.log(world.batch([entry("after")])))


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


@in_virtual_time
async def test_a_flow_that_catches_up_while_the_reader_is_sent_back_keeps_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_queue, "REREAD_BYTES", 1)
    world = World()
    life = Life(world)
    await life.start(deliver=False)
    context, settlement = life.context, life.context.settlement
    for n in range(QUEUE_BATCHES + 20):
        await life.log(world.batch([entry(n)]))
    reader = life.writer.reader(None, name="the site's")
    batches: list[LoggedBatch] = []
    while len(batches) < QUEUE_BATCHES + 20:
        batches += await reader.next_batches()
    flow = batches[0].header.name.series.flow
    queue = FlowQueue(flow, context)

    def meet(batch: LoggedBatch) -> None:
        settlement.outstanding(flow, settlement.reader)
        before = settlement.reader.place
        queue.offer(Job(settlement.met(batch.place), batch, before))

    *most, one_more = batches
    for batch in most:
        meet(batch)
    given: list[int] = []
    is_back = False
    async for jobs in queue.jobs():
        given += [job.batch.place.name.sequence for job in jobs]
        if len(given) == QUEUE_BATCHES:
            settlement.settled(flow, jobs[-1].point)
        elif is_back and settlement.reader.place != one_more.place:
            for batch in batches[QUEUE_BATCHES + 1 :]:
                meet(batch)
        elif len(given) == QUEUE_BATCHES + 2:
            meet(one_more)  # the queue takes again, behind what is still read
            settlement.sent_back(batches[QUEUE_BATCHES].place, life.writer.is_after)
            is_back = True
        if given[-1] == QUEUE_BATCHES + 19:
            break
    assert list(dict.fromkeys(given)) == list(range(QUEUE_BATCHES + 20))
    await life.kill()


async def test_what_a_reader_that_was_sent_back_gives_twice_has_one_row() -> None:
    world = World()
    async with world.running() as life:
        life.context.hold("the site is paused")
        await life.log(world.batch([entry(1)]))
        await life.until(lambda: bool(life.deliverer.standing))
        last = await life.log(world.batch([entry(2)]))
        (delivery,) = life.deliverer._flows.values()
        await life.until(lambda: len(delivery.queue._jobs) == 1)
        delivery.queue.offer(delivery.queue._jobs[-1])
        life.context.hold("")
        await life.settled(last)
    assert world.delivered() == ["body 1", "body 2"]
    assert [list(row.outcomes) for row in world.rows()] == [[Outcome.DELIVERED]] * 2
    assert life.counters.delivered == 2


async def test_a_reader_sent_back_while_it_waits_for_room_meets_what_is_new_first() -> None:
    world = World()
    stuck: list[asyncio.Future[None]] = []

    def before_answer(_: str) -> asyncio.Future[None]:
        stuck.append(asyncio.get_running_loop().create_future())
        return stuck[-1]

    def make_exchange(broker: MemoryBroker) -> MemoryExchange:
        made = MemoryExchange(broker, before_answer)
        made._is_proven = True
        return made

    world.make_exchange = make_exchange
    async with world.running() as life:
        met: list[int] = []
        settlement = life.context.settlement
        meet = settlement.met

        def note(place: Place, whole: int = -1) -> Point:
            met.append(whole)
            return meet(place, whole)

        settlement.met = note  # type: ignore[method-assign]
        for number in range(CHUNKS_AT_MOST):
            await life.log(world.batch([entry(number)]))
            await life.until(lambda number=number: len(stuck) == number + 1)
        # The next is a chunk that waits for room; then the queue is full.
        first = CHUNKS_AT_MOST
        await life.log(world.batch([entry(first)]))
        await life.until(lambda: len(met) == first + 1)
        behind = range(first + 1, first + QUEUE_BATCHES + 10)
        await life.log(*(world.batch([entry(n)]) for n in behind))
        count = first + 1 + QUEUE_BATCHES
        await life.until(lambda: len(met) == count)
        reader = next(one for one in life.writer.readers if one.name == "deliverer")
        record = world.stream.records[5]
        reader.rewind(Place(record.offset, read_header(record.data).name))
        await life.until(lambda: len(met) > count)
    assert met[: count + 1] == [*range(count), 6]
