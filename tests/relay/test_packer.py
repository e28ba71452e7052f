"""The packer over queues and a log in memory, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Callable

import pytest

from federation.mesh import IdentityKind, IdentityRule
from relay.batch import EVERY_SITE, MAX_ENTRIES, BatchKind
from relay.batch_format import read_header
from relay.bulk_amqp.content_header import MESSAGE_ID, NONE_PRESENT, rewrite
from relay.delivery_properties import DeliveryStamp
from relay.egress_acks import HOLD_S
from relay.packer_metrics import PackerState
from relay.packer_record import PackerRecord
from relay.packer_settings import PackerSettings
from tests.relay.packer_world import PackerWorld, Process
from tests.virtual_time import VirtualTimeLoop, run_in_virtual_time


def numbered(count: int, start: int = 0, size: int = 0) -> list[bytes]:
    return [(b"message %d" % n).ljust(size, b".") for n in range(start, start + count)]


async def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)


def with_settings(**changes: object) -> Callable[[PackerSettings], PackerSettings]:
    return lambda made: dataclasses.replace(made, **changes)  # type: ignore[arg-type]


class TestPacking:
    def test_what_is_published_is_in_the_log_once_and_in_order(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            world.publish(*numbered(1000))
            process = await world.start().ready()
            world.publish(*numbered(1000, 1000))
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()
            world.assert_numbers_are_dense()
            assert process.packer.metrics.messages == 2000
            assert process.packer.status.state is PackerState.STOPPED

        run_in_virtual_time(scenario())

    def test_a_batch_is_sealed_by_number_by_bytes_or_by_time(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.publish(*numbered(600))
            await world.drained()
            world.publish(*numbered(6, 600, size=100_000))
            await world.drained()
            began = asyncio.get_running_loop().time()
            world.publish(b"alone")
            await until(lambda: process.packer.metrics.messages == 607)
            assert asyncio.get_running_loop().time() - began < 0.01
            await process.stop()
            headers = [h for h in world.logged().headers if h.kind is BatchKind.MESSAGES]
            assert [h.entry_count for h in headers] == [MAX_ENTRIES, MAX_ENTRIES, 88, 2, 2, 2, 1]

        run_in_virtual_time(scenario())

    def test_a_header_says_all_that_others_need(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.publish(*numbered(3))
            await world.drained()
            await process.stop()
            mark, statement, batch = world.logged().headers
            assert (mark.kind, statement.kind) == (BatchKind.MARK, BatchKind.MARK)
            assert mark.name.series.destinations == EVERY_SITE
            assert batch.path == ("paris",)
            assert batch.revision == "r1"
            assert (batch.total_messages, batch.entry_count) == (3, 3)
            assert batch.total_bytes == batch.byte_count > 0
            assert batch.first_published_ms <= batch.last_published_ms
            assert batch.predecessors == ()

        run_in_virtual_time(scenario())

    def test_every_header_of_a_successor_says_where_its_predecessor_ended(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            first = await world.start().ready()
            world.publish(*numbered(3))
            await world.drained()
            await first.kill()
            second = await world.start().ready()
            world.publish(b"one more")
            await world.drained()
            await second.stop()
            headers = world.logged().headers
            (told,) = headers[-1].predecessors
            assert told.incarnation == headers[0].name.series.incarnation
            assert told.end == 2
            assert [h.predecessors for h in headers[3:]] == [(), (told,), (told,)]

        run_in_virtual_time(scenario())

    def test_our_own_deliveries_that_come_round_are_dropped(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            stamp = DeliveryStamp("orders", ("tokyo", "paris"), "relay")
            round_ = stamp.apply(NONE_PRESENT, flagged=False)
            for n in range(3000):
                world.broker.publish("egress.orders", b"key", b"ours %d" % n, round_)
                if n % 1000 == 0:
                    world.publish(b"theirs %d" % n)
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()
            assert process.packer.metrics.own == 3000

        run_in_virtual_time(scenario())

    def test_a_big_message_travels_in_pieces_in_its_flow_s_order(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            big = random.Random(1).randbytes(5_000_000)
            world.publish(b"before", big, b"after")
            await world.drained()
            await process.stop()
            seen = world.assert_exactly_once_in_order()
            kinds = [h.kind for h in seen.headers[2:]]
            pieces = [BatchKind.FRAGMENT] * 7
            assert kinds == [BatchKind.MESSAGES, *pieces, BatchKind.MESSAGES]
            assert [h.total_messages for h in seen.headers[2:]] == [1, *[1] * 6, 2, 3]
            assert max(len(r.data) for r in world.stream.records) < 1 << 20
            world.assert_numbers_are_dense()

        run_in_virtual_time(scenario())


class TestAfterACrash:
    def test_a_killed_packer_s_successor_packs_nothing_twice(self) -> None:
        async def scenario(seed: int) -> None:
            world = PackerWorld(seed)
            for round_ in range(3):
                process = await world.start().ready()
                for burst in range(20):
                    world.publish(*numbered(50, 1000 * round_ + 50 * burst))
                    await asyncio.sleep(world.chance.uniform(0, 0.006))
                await process.kill()
            process = await world.start().ready()
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        for seed in range(6):
            run_in_virtual_time(scenario(seed))

    def test_what_the_log_had_confirmed_and_nobody_acknowledged_is_recognised(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            world.broker.ack_s = 1000.0
            first = await world.start().ready()
            world.publish(*numbered(1500))
            await until(lambda: first.packer.metrics.messages == 1500)
            await first.kill()
            world.broker.ack_s = 0.001
            second = await world.start().ready()
            world.publish(b"fresh")
            await world.drained()
            await second.stop()
            world.assert_exactly_once_in_order()
            assert second.packer.metrics.returned == 1500

        run_in_virtual_time(scenario())

    def test_a_process_that_stood_still_acknowledges_nothing_on_what_it_takes_for_its_connection(
        self,
    ) -> None:
        async def scenario(phase: float) -> None:
            world = PackerWorld()
            world.broker.ack_s = 5.0  # what is on its way will be lost
            process = await world.start().ready()
            await asyncio.sleep(phase)
            world.publish(*numbered(50))
            await until(lambda: process.packer.metrics.messages == 50)
            await asyncio.sleep(HOLD_S - 0.1)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.stand_still(25.0)
            await asyncio.sleep(0.1)
            world.broker.break_connections()
            world.broker.ack_s = 0.001
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()
            assert process.packer.metrics.returned == 50
            assert process.packer.metrics.doubtful == 0

        for tenth in range(10):  # whichever of its timers comes first
            run_in_virtual_time(scenario(tenth / 20))

    def test_an_append_in_doubt_that_was_stored_is_not_packed_again(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.stream.break_after_storing()
            world.publish(*numbered(10))
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()
            assert process.packer.metrics.incarnations == 2

        run_in_virtual_time(scenario())

    def test_an_append_in_doubt_that_was_not_stored_is_packed_again(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.publish(*numbered(10))
            await asyncio.sleep(0.004)
            world.stream.break_connections()
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    @pytest.mark.parametrize("lands", ["before the mark", "before the statement", "much later"])
    def test_a_dead_packer_s_last_bytes_do_no_harm_whenever_they_land(self, lands: str) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            first = await world.start().ready()
            world.publish(*numbered(5))
            await world.drained()
            world.stream.hold_next_appends()
            world.publish(*numbered(5, 5))
            await asyncio.sleep(0.02)
            await first.kill()
            if lands == "before the mark":
                world.stream.release_held()
            second = world.start()
            if lands == "before the statement":
                size = len(world.stream.records)
                await until(lambda: len(world.stream.records) > size)
                world.stream.release_held()
            await second.ready()
            world.publish(b"last")
            await world.drained()
            late = world.stream.records[-1].offset
            world.stream.release_held()
            await second.stop()
            seen = world.assert_exactly_once_in_order()
            assert seen.void == (0 if lands == "before the mark" else 1)
            for record in world.stream.records:
                header = read_header(record.data)
                if header.name.series.incarnation == seen.headers[0].name.series.incarnation:
                    second_says = second.voids.is_void(header)
                    assert second_says == (header.incarnation_sequence > 2 and seen.void == 1)
            assert late

        run_in_virtual_time(scenario())

    def test_a_packer_that_dies_in_the_middle_of_a_big_message_leaves_no_half(self) -> None:
        async def scenario(seed: int) -> None:
            world = PackerWorld(seed)
            bodies = [
                world.chance.randbytes(3_000_000) if n % 2 else b"small %d" % n for n in range(6)
            ]
            process = await world.start().ready()
            world.publish(*bodies)
            await asyncio.sleep(world.chance.uniform(0, 0.02))
            await process.kill()
            process = await world.start().ready()
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        for seed in range(8):
            run_in_virtual_time(scenario(seed))

    def test_flows_are_compared_each_for_itself(self) -> None:
        async def scenario(seed: int) -> None:
            world = PackerWorld(seed, exchanges=("orders", "prices", "idle"))
            for round_ in range(3):
                process = await world.start().ready()
                for n in range(30):
                    world.publish(*numbered(10, 1000 * round_ + 10 * n))
                    world.publish(*numbered(3, 1000 * round_ + 3 * n), exchange="prices")
                    await asyncio.sleep(world.chance.uniform(0, 0.004))
                await process.kill()
            process = await world.start().ready()
            await world.drained()
            await world.drained("prices")
            await process.stop()
            world.assert_exactly_once_in_order()
            world.assert_exactly_once_in_order("prices")

        for seed in range(4):
            run_in_virtual_time(scenario(seed))


class TestWhatCannotBeTold:
    def test_a_repeated_message_is_never_taken_for_one_that_was_acknowledged(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            first = await world.start().ready()
            world.publish(b"hello")
            await world.drained()
            world.stream.hold_next_appends()
            world.publish(b"hello")
            await asyncio.sleep(0.02)
            await first.kill()  # the second hello was taken, and its batch never landed
            second = await world.start().ready()
            await world.drained()
            await second.stop()
            seen = world.assert_nothing_lost_nor_repeated()
            assert [e.doubtful for e in seen.entries["orders"]] == [False, True]

        run_in_virtual_time(scenario())

    def test_messages_that_are_all_alike_are_flagged_where_in_doubt_and_never_lost(self) -> None:
        async def scenario(seed: int) -> None:
            world = PackerWorld(seed)
            for _ in range(3):
                process = await world.start().ready()
                for _ in range(20):
                    world.publish(*[world.chance.choice([b"a", b"b"])] * 20)
                    await asyncio.sleep(world.chance.uniform(0, 0.006))
                await process.kill()
            process = await world.start().ready()
            await world.drained()
            await process.stop()
            world.assert_nothing_lost_nor_repeated()

        for seed in range(6):
            run_in_virtual_time(scenario(seed))

    @pytest.mark.parametrize("what", ["state", "boot"])
    def test_without_a_record_to_trust_only_what_names_itself_is_unflagged(self, what: str) -> None:
        async def scenario(identity: IdentityRule, flagged: bool) -> None:
            world = PackerWorld(identity=identity)
            world.broker.ack_s = 1000.0
            first = await world.start().ready()
            for n in range(100):
                name = rewrite(NONE_PRESENT, {MESSAGE_ID: b"id %d" % n})
                world.publish(b"message %d" % n, properties=name)
            await until(lambda: first.packer.metrics.messages == 100)
            await first.kill()
            if what == "state":
                world.ledger.written = None
            else:
                world.boot = "another boot"
            world.broker.ack_s = 0.001
            second = await world.start().ready()
            await world.drained()
            await second.stop()
            seen = world.assert_nothing_lost_nor_repeated()
            doubtful = sum(entry.doubtful for entry in seen.entries["orders"])
            assert doubtful == (100 if flagged else 0)

        run_in_virtual_time(scenario(IdentityRule(IdentityKind.NONE), True))
        run_in_virtual_time(scenario(IdentityRule(IdentityKind.MESSAGE_ID), False))

    @pytest.mark.parametrize("killed", [True, False])
    def test_what_the_log_lost_and_egress_still_has_is_packed_again_flagged(
        self, killed: bool
    ) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            world.broker.ack_s = 1000.0
            process = await world.start().ready()
            for n in range(5):
                world.publish(*numbered(10, 10 * n))
                await asyncio.sleep(0.05)
            await asyncio.sleep(2.0)
            if killed:
                await process.kill()
            else:
                world.broker.break_connections()
            world.stream.lose_tail(3)
            world.broker.ack_s = 0.001
            if killed:
                process = await world.start().ready()
            await world.drained()
            await process.stop()
            seen = world.logged()
            copies = Counter(seen.bodies())
            assert set(copies) == set(world.published["orders"])
            # Twenty are there still; nobody can say of the others who may have them.
            again = [e for e in seen.entries["orders"] if e.doubtful]
            assert len(again) >= 30
            assert all(
                copies[e.body] == 1 or any(a.body == e.body for a in again)
                for e in seen.entries["orders"]
            )

        run_in_virtual_time(scenario())


class TestTrouble:
    def test_a_missing_queue_is_said_and_taken_up_when_it_is_there(self) -> None:
        async def scenario() -> None:
            world = PackerWorld(exchanges=("orders", "prices"))
            world.broker.delete("egress.prices")
            process = await world.start().ready()
            world.publish(*numbered(10))
            await world.drained()
            assert "egress.prices" in process.packer.status.exchanges["prices"]
            assert process.packer.status.state is PackerState.RUNNING
            world.broker.declare("egress.prices")
            world.publish(*numbered(10), exchange="prices")
            await world.drained("prices")
            assert process.packer.status.exchanges == {}
            await process.stop()
            world.assert_exactly_once_in_order("prices")

        run_in_virtual_time(scenario())

    def test_a_deleted_queue_is_said_and_the_others_go_on(self) -> None:
        async def scenario() -> None:
            world = PackerWorld(exchanges=("orders", "prices"))
            process = await world.start().ready()
            world.publish(*numbered(10))
            await world.drained()
            world.broker.delete("egress.prices")
            world.publish(*numbered(10, 10))
            await world.drained()
            await until(lambda: "prices" in process.packer.status.exchanges)
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_second_node_waits_for_the_lock_and_says_whose_it_is(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            first = await world.start().ready()
            second = world.start()
            await until(lambda: second.packer.status.state is PackerState.DOWN)
            assert "another node" in second.packer.status.reason
            world.publish(*numbered(100))
            await world.drained()
            await first.stop()
            await second.ready()
            world.publish(*numbered(100, 100))
            await world.drained()
            await second.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_nothing_is_asked_for_before_the_former_holder_s_channels_are_gone(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            gone = False

            async def former_gone() -> bool:
                return gone

            world.former_gone = former_gone  # type: ignore[method-assign]
            world.publish(*numbered(10))
            process = world.start()
            await asyncio.sleep(20)
            assert world.stream.records == []
            gone = True
            await process.ready()
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_broker_that_is_away_is_tried_again_and_said(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            world.broker.reachable = False
            process = world.start()
            await asyncio.sleep(100)
            assert process.packer.status.state is PackerState.DOWN
            assert "unreachable" in process.packer.status.reason
            assert process.packer.metrics.incarnations < 20
            world.broker.reachable = True
            world.publish(*numbered(10))
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_record_that_cannot_be_written_stops_acknowledgements_not_the_node(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            record = world.ledger.record

            def full(packed: object, written: bytes) -> None:
                raise OSError("no space left")

            world.ledger.record = full  # type: ignore[method-assign]
            world.publish(*numbered(10))
            await until(lambda: process.packer.status.state is PackerState.DOWN)
            assert "no space left" in process.packer.status.reason
            assert world.broker.depth("egress.orders") == 10
            world.ledger.record = record  # type: ignore[method-assign]
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_log_that_takes_nothing_stops_the_reading_not_the_memory(self) -> None:
        async def scenario() -> None:
            world = PackerWorld(settings=with_settings(in_hand_bytes=1_000_000))
            process = await world.start().ready()
            world.stream.confirm_s = 5.0
            world.publish(*numbered(200, size=50_000))
            most = 0
            for _ in range(200):
                await asyncio.sleep(0.01)
                most = max(most, process.packer.metrics.in_hand_bytes)
            # One read more than the limit: here 256 messages a read.
            assert most <= 1_000_000 + 256 * 51_000
            world.stream.confirm_s = 0.002
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_stop_leaves_nothing_behind(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.publish(*numbered(700))
            await until(lambda: process.packer.metrics.messages > 0)
            await process.stop()
            left = world.broker.depth("egress.orders")
            assert len(world.logged().bodies()) + left == 700
            second = await world.start().ready()
            await world.drained()
            await second.stop()
            assert second.packer.metrics.returned == 0
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_stop_while_the_log_hangs_ends_in_time_and_loses_nothing(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.stream.confirm_s = 1000.0
            world.publish(*numbered(10))
            await asyncio.sleep(0.1)
            began = asyncio.get_running_loop().time()
            process.packer.stop()
            await process.log_closed_after_packer()
            assert asyncio.get_running_loop().time() - began < 10
            world.stream.confirm_s = 0.002
            second = await world.start().ready()
            await world.drained()
            await second.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())

    def test_a_packer_that_another_superseded_takes_the_lock_anew(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            world.publish(*numbered(10))
            await world.drained()
            process.packer.superseded("somebody")
            await until(lambda: process.packer.metrics.incarnations == 2)
            world.publish(*numbered(10, 10))
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())


class TestTheRecord:
    def test_a_successor_reads_back_a_minute_not_a_day(self) -> None:
        async def scenario() -> None:
            world = PackerWorld()
            process = await world.start().ready()
            for n in range(600):
                world.publish(*numbered(2, 2 * n))
                await asyncio.sleep(1.0)
            await process.kill()
            assert world.ledger.written is not None
            record = PackerRecord.decode(world.ledger.written)
            end = world.stream.next_offset
            assert end - 60 < record.read_from < end - 25
            process = await world.start().ready()
            await world.drained()
            await process.stop()
            world.assert_exactly_once_in_order()

        run_in_virtual_time(scenario())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("alike", [False, True], ids=["different", "alike"])
def test_whatever_happens_nothing_is_lost_and_nothing_repeated_unflagged(
    seed: int, alike: bool
) -> None:
    async def scenario() -> None:
        world = PackerWorld(seed, exchanges=("orders", "prices"))
        chance = world.chance
        count = 0
        crashes = 0
        process: Process | None = None
        for _ in range(60):
            what = chance.random()
            if process is None:
                process = world.start()
                if chance.random() < 0.8:
                    await process.ready()
            elif what < 0.06:
                crashes += 1
                await process.kill()
                process = None
            elif what < 0.12:
                crashes += 1
                world.broker.break_connections()
            elif what < 0.17:
                crashes += 1
                world.stream.break_connections()
            elif what < 0.21:
                crashes += 1
                world.stream.break_after_storing()
            elif what < 0.26:
                world.stream.hold_next_appends()
            elif what < 0.31:
                world.stream.break_connections()
                world.stream.release_held()
                crashes += 1
            else:
                for exchange in world.published:
                    size = chance.choice([1, 1, 10, 300])
                    if alike:
                        bodies = [chance.choice([b"x", b"y"]) for _ in range(size)]
                    else:
                        bodies = numbered(size, count)
                        count += size
                    world.publish(*bodies, exchange=exchange)
            await asyncio.sleep(chance.choice([0.0, 0.001, 0.005, 0.03, 0.5]))
        world.stream.break_connections()
        world.stream.release_held()
        if process is None:
            process = world.start()
        await process.ready()
        for exchange in world.published:
            await world.drained(exchange)
        await process.stop()
        for exchange in world.published:
            seen = world.assert_nothing_lost_nor_repeated(exchange)
            if not alike:
                doubtful = sum(entry.doubtful for entry in seen.entries.get(exchange, []))
                assert doubtful <= MAX_ENTRIES * crashes
                certain = [e.body for e in seen.entries.get(exchange, []) if not e.doubtful]
                assert certain == world.published[exchange]

    run_in_virtual_time(scenario())
