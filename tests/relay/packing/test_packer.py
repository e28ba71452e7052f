"""The packer over queues and a log in memory, in virtual time: what it packs, and how it stops."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from relay.batches.batch import EVERY_SITE, MAX_ENTRIES, BatchKind
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.properties import DeliveryStamp
from relay.packing.packer_metrics import PackerState
from relay.packing.packer_record import PackerRecord
from tests.relay.packer_world import PackerWorld, numbered
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until


@in_virtual_time
async def test_what_is_published_is_in_the_log_once_and_in_order() -> None:
    world = PackerWorld()
    world.publish(*numbered(1000))
    process = await world.start().ready()
    world.publish(*numbered(1000, 1000))
    await process.finish()
    world.assert_exactly_once_in_order()
    world.assert_numbers_are_dense()
    assert process.packer.metrics.messages == 2000
    assert process.packer.status.state is PackerState.STOPPED


@in_virtual_time
async def test_a_batch_is_sealed_by_number_by_bytes_or_by_time() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(600))
    await world.drained()
    world.publish(*numbered(6, 600, size=100_000))
    await world.drained()
    began = asyncio.get_running_loop().time()
    world.publish(b"alone")
    await process.has_packed(607)
    assert asyncio.get_running_loop().time() - began < 0.01
    await process.stop()
    headers = [h for h in world.logged().headers if h.kind is BatchKind.MESSAGES]
    assert [h.entry_count for h in headers] == [MAX_ENTRIES, MAX_ENTRIES, 88, 2, 2, 2, 1]


@in_virtual_time
async def test_a_header_says_all_that_others_need() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(3))
    await process.finish()
    mark, statement, batch = world.logged().headers
    assert (mark.kind, statement.kind) == (BatchKind.MARK, BatchKind.MARK)
    assert mark.name.series.destinations == EVERY_SITE
    assert batch.path == ("paris",)
    assert batch.revision == "r1"
    assert (batch.total_messages, batch.entry_count) == (3, 3)
    assert batch.total_bytes == batch.byte_count > 0
    assert batch.first_published_ms <= batch.last_published_ms
    assert batch.predecessors == ()


@in_virtual_time
async def test_every_header_of_a_successor_says_where_its_predecessor_ended() -> None:
    world = PackerWorld()
    first = await world.start().ready()
    world.publish(*numbered(3))
    await world.drained()
    await first.kill()
    second = await world.start().ready()
    world.publish(b"one more")
    await second.finish()
    headers = world.logged().headers
    (told,) = headers[-1].predecessors
    assert told.incarnation == headers[0].name.series.incarnation
    assert told.end == 2
    assert [h.predecessors for h in headers[3:]] == [(), (told,), (told,)]


@in_virtual_time
async def test_our_own_deliveries_that_come_round_are_dropped() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    stamp = DeliveryStamp("orders", ("tokyo", "paris"), "relay")
    round_ = stamp.apply(NONE_PRESENT, flagged=False)
    for n in range(3000):
        world.broker.publish("egress.orders", b"key", b"ours %d" % n, round_)
        if n % 1000 == 0:
            world.publish(b"theirs %d" % n)
    await process.finish()
    world.assert_exactly_once_in_order()
    assert process.packer.metrics.own == 3000


@in_virtual_time
async def test_a_big_message_travels_in_pieces_in_its_flow_s_order() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    big = random.Random(1).randbytes(5_000_000)
    world.publish(b"before", big, b"after")
    await process.finish()
    seen = world.assert_exactly_once_in_order()
    kinds = [h.kind for h in seen.headers[2:]]
    pieces = [BatchKind.FRAGMENT] * 7
    assert kinds == [BatchKind.MESSAGES, *pieces, BatchKind.MESSAGES]
    assert [h.total_messages for h in seen.headers[2:]] == [1, *[1] * 6, 2, 3]
    assert max(len(r.data) for r in world.stream.records) < 1 << 20
    world.assert_numbers_are_dense()


@in_virtual_time
async def test_a_stop_leaves_nothing_behind() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(*numbered(700))
    await until(lambda: process.packer.metrics.messages > 0, "it packs", 60, every_s=0.001)
    await process.stop()
    left = world.broker.depth("egress.orders")
    assert len(world.logged().bodies()) + left == 700
    second = await world.pack_all()
    assert second.packer.metrics.returned == 0
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_stop_while_the_log_hangs_ends_in_time_and_loses_nothing() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.stream.confirm_s = 1000.0
    world.publish(*numbered(10))
    await until(lambda: process.packer.metrics.in_hand_messages == 10, "they are taken", 60)
    began = asyncio.get_running_loop().time()
    process.packer.stop()
    await process.log_closed_after_packer()
    assert asyncio.get_running_loop().time() - began < 10
    world.stream.confirm_s = 0.002
    await world.pack_all()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_what_comes_after_a_pause_does_not_wait_for_more() -> None:
    world = PackerWorld()
    world.settings = replace(world.settings, linger_ms=1000.0)
    process = await world.start().ready()
    for n in range(5):
        began = asyncio.get_running_loop().time()
        world.publish(*numbered(3, n * 3))
        await process.has_packed(3 * n + 3)
        assert asyncio.get_running_loop().time() - began < 0.5
        await let_pass(2.5)
    assert process.packer.metrics.batches == 5
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_while_the_log_is_slow_what_comes_is_gathered_into_fewer_batches() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.stream.confirm_s = 0.1
    for n in range(20):
        world.publish(*numbered(5, n * 5))
        await let_pass(0.01)
    await process.has_packed(100)
    headers = [h for h in world.logged().headers if h.kind is BatchKind.MESSAGES]
    assert [h.entry_count for h in headers] == [5, 45, 50]  # the first comes after a pause
    await world.drained()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_flow_does_not_linger_for_another_flow_s_batches() -> None:
    world = PackerWorld(exchanges=("orders", "prices"))
    process = await world.start().ready()
    world.stream.confirm_s = 0.1
    began = asyncio.get_running_loop().time()
    world.publish(b"slow", exchange="orders")
    await let_pass(0.05)
    world.publish(b"beside it", exchange="prices")
    await process.has_packed(2)
    assert asyncio.get_running_loop().time() - began < 0.17
    await process.kill()


@in_virtual_time
async def test_what_only_comes_round_is_acknowledged_without_a_record_each_time() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    stamp = DeliveryStamp("orders", ("tokyo", "paris"), "relay")
    round_ = stamp.apply(NONE_PRESENT, flagged=False)
    written = world.ledger.written
    for n in range(100):
        world.broker.publish("egress.orders", b"key", b"ours %d" % n, round_)
        await world.drained()
    assert world.ledger.written is written
    await let_pass(60)
    world.broker.publish("egress.orders", b"key", b"ours again", round_)
    await world.drained()
    assert PackerRecord.decode(world.ledger.written or b"").read_from > 0
    await process.stop()
