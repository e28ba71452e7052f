"""`acks: remote`: egress forgets what a neighbour's log has, and nothing else."""

from __future__ import annotations

import pytest

from relay.batches.batch import BatchName
from relay.links.neighbour_logs import NeighbourLogs
from relay.packing.egress_acks import HOLD_S, WAITING, RemoteAcks, TagStretch
from tests.log_batches import batch_name
from tests.relay.link_logs import make_batch
from tests.relay.link_world import LinkWorld
from tests.relay.packer_world import PackerWorld, Process, numbered
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

QUEUE = "egress.orders"


def away(name: BatchName) -> bool:
    """No neighbour's link runs."""
    return False


def reported_wait(process: Process) -> str | None:
    return process.packer.status.exchanges.get("orders")


@in_virtual_time
async def test_nothing_is_acknowledged_before_a_neighbour_s_log_has_it() -> None:
    world = PackerWorld()
    world.ask_neighbours()
    world.neighbour_has = away
    process = await world.start().ready()
    world.publish(*numbered(300))
    await process.has_packed(300)
    await let_pass(60)
    assert world.broker.depth(QUEUE) == 300
    assert reported_wait(process) == WAITING
    world.neighbour_has = lambda name: True
    process.neighbours.news()
    await process.finish()
    world.assert_exactly_once_in_order()
    assert process.packer.metrics.returned == 0


@in_virtual_time
async def test_status_tells_of_waiting_no_longer_than_it_lasts() -> None:
    world = PackerWorld()
    world.ask_neighbours()
    world.neighbour_has = away
    process = await world.start().ready()
    world.publish(b"one")
    await process.has_packed(1)
    await let_pass(1)
    assert reported_wait(process) is None, "a line may take that long"
    await until(lambda: reported_wait(process) == WAITING, "said", 10)
    world.neighbour_has = lambda name: True
    process.neighbours.news()
    await until(lambda: reported_wait(process) is None, "no longer said", 10)
    await process.finish()


@in_virtual_time
async def test_acknowledgements_follow_the_neighbour_batch_by_batch() -> None:
    world = PackerWorld()
    world.ask_neighbours()
    world.neighbour_has = lambda name: name.sequence < 2
    process = await world.start().ready()
    for number in range(5):
        world.publish(b"%d" % number)
        await process.has_packed(number + 1)
    await let_pass(HOLD_S + 1)
    assert world.broker.depth(QUEUE) == 3
    world.neighbour_has = lambda name: True
    process.neighbours.news()
    await process.finish()
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_a_kill_between_the_two_logs_packs_nothing_twice_and_still_waits() -> None:
    world = PackerWorld()
    world.ask_neighbours()
    world.neighbour_has = away
    first = await world.start().ready()
    world.publish(*numbered(900))
    await first.has_packed(900)
    await first.kill()
    second = await world.start().ready()
    await let_pass(120)
    assert second.packer.metrics.returned == 900
    assert world.broker.depth(QUEUE) == 900, "recognised, and no neighbour has it"
    assert reported_wait(second) == WAITING
    await second.kill()
    third = await world.start().ready()  # a second time: what was recognised still is
    world.publish(b"fresh")
    await third.has_packed(1)
    world.neighbour_has = lambda name: True
    third.neighbours.news()
    await third.finish()
    assert third.packer.metrics.returned == 900
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_what_waits_is_recognised_again_however_far_other_exchanges_have_got() -> None:
    world = PackerWorld(exchanges=("orders", "prices"))
    world.ask_neighbours("orders")
    world.neighbour_has = away
    first = await world.start().ready()
    world.publish(*numbered(100))
    await first.has_packed(100)
    await first.kill()
    second = await world.start().ready()
    for number in range(120):
        world.publish(b"%d" % number, exchange="prices")
        await let_pass(1)  # its batch alone, and long settled
    await second.kill()
    world.neighbour_has = lambda name: True
    third = await world.pack_all()
    assert third.packer.metrics.returned >= 100
    world.assert_exactly_once_in_order("orders")
    world.assert_exactly_once_in_order("prices")


@in_virtual_time
async def test_what_came_back_waits_for_the_batches_it_stands_in_and_no_older_ones() -> None:
    world = PackerWorld()
    world.ask_neighbours()
    first = await world.start().ready()
    world.publish(*numbered(50))
    await world.drained()
    former = {header.name for header in world.logged().headers}
    world.neighbour_has = lambda name: name not in former  # it has forgotten them since
    world.broker.ack_s = 1000.0
    world.publish(*numbered(50, 50))
    await first.has_packed(100)
    await first.kill()
    world.broker.ack_s = 0.001
    second = await world.start().ready()
    await second.finish()
    assert second.packer.metrics.returned == 50
    world.assert_exactly_once_in_order()


@in_virtual_time
async def test_what_no_site_wants_waits_for_nobody() -> None:
    world = PackerWorld()
    world.ask_neighbours()
    world.narrow({"s1": ("store.s1.#",)})
    world.neighbour_has = away
    process = await world.start().ready()
    world.publish(*numbered(10), key=b"nobody.s")
    await process.finish()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_whenever_it_is_killed_nothing_is_packed_twice_nor_forgotten_too_early(
    seed: int,
) -> None:
    world = PackerWorld(seed)
    world.ask_neighbours()
    chance = world.chance
    there: set[BatchName] = set()
    world.neighbour_has = there.__contains__
    for life in range(4):
        process = await world.start().ready()
        for burst in range(10):
            world.publish(*numbered(chance.choice([1, 30, 300]), 100_000 * life + 1000 * burst))
            await let_pass(chance.choice([0.001, 0.02, 2.0]))
            headers = world.logged().headers
            there.update(header.name for header in headers[: chance.randrange(len(headers) + 1)])
            process.neighbours.news()
            await let_pass(0.01)
            sent = sum(header.entry_count for header in headers if header.name in there)
            assert world.broker.depth(QUEUE) >= len(world.published["orders"]) - sent
        await process.kill()
    world.neighbour_has = lambda name: True
    await world.pack_all()
    world.assert_exactly_once_in_order()


def test_which_messages_came_back_is_not_known_before_all_have() -> None:
    asked: list[int] = []

    def batches_of_last(count: int) -> list[BatchName]:
        asked.append(count)
        return []

    acks = RemoteAcks(lambda name: True, batches_of_last, patience_s=1.0)
    assert acks.look(0.0, 0, compared=False)
    assert not acks.look(5.0, 3, compared=False)
    assert acks.look_again_at == 6.0
    assert not acks.look(5.5, 4, compared=False)
    assert acks.look(6.5, 4, compared=False)
    assert asked == [4]
    assert not acks.look(7.0, 5, compared=False)
    assert acks.look(7.1, 5, compared=True)
    assert asked == [4, 5]


def test_a_stretch_is_confirmed_when_a_neighbour_has_its_batch_in_order() -> None:
    there: set[BatchName] = set()
    one, other = batch_name(0), batch_name(1)
    acks = RemoteAcks(there.__contains__, lambda count: (), patience_s=1.0)
    stretches = [TagStretch(1), TagStretch(2), TagStretch(3)]
    acks.logged(stretches[0], one, 1.0)
    acks.logged(stretches[1], None, 1.0)
    acks.logged(stretches[2], other, 1.0)
    there.add(other)
    acks.look(2.0, 0, compared=True)
    assert [stretch.confirmed_at for stretch in stretches] == [None, None, None]
    there.add(one)
    acks.look(3.0, 0, compared=True)
    assert [stretch.confirmed_at for stretch in stretches] == [3.0, 3.0, 3.0]


# What the links know


def test_any_neighbour_s_log_will_do() -> None:
    logs = NeighbourLogs()
    name = batch_name(0)
    assert not logs.has(name)
    logs.link("a-b", away)
    logs.link("a-c", lambda name: True)
    assert logs.has(name)
    assert logs.has(name)
    logs.unlink("a-c")
    assert not logs.has(name)


def test_a_link_knows_what_its_receiver_has_by_acks_or_by_the_next_welcome() -> None:
    world = LinkWorld()
    made = [make_batch(sequence) for sequence in range(50)]
    for header, data in made:
        world.source.append(header, data)
    names = [header.name for header, _ in made]
    world.start()
    assert world.sender is not None
    assert not any(map(world.sender.receiver_has, names))
    world.run_until_arrived(5)
    world.time.run_until(world.time.now + 10)
    assert all(map(world.sender.receiver_has, names))
    world.crash_receiver()
    world.time.run_until(world.time.now + 60)
    assert not any(map(world.sender.receiver_has, names)), "its log may have lost them since"
    world.start_receiver()
    world.time.run_until(world.time.now + 60)
    assert all(map(world.sender.receiver_has, names))
