"""What every link transport promises: two exchanges of a real broker, and the twin in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from isthmus.brokers.config import BrokerUser
from relay.links.transport.link_end import Carried, LinkEnd, LinkTaken, LinkUnreachable
from relay.links.wire import HEAD_BYTES
from tests.conftest import Eventually, LocalBrokerFactory
from tests.contracts.link_roads import QUEUE_BYTES, MemoryRoad, RabbitRoad, Road, frame, listening
from tests.live_brokers import Vhost, rabbitmqctl, take_all_memory
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until
from wan_proxy.proxy import WanProxy


@pytest.fixture
async def memory_road() -> Road:
    return MemoryRoad()


@pytest.fixture
async def rabbit_road(vhost: Vhost) -> AsyncIterator[Road]:
    async with WanProxy() as proxy:
        road = RabbitRoad(vhost, proxy)
        await road.open()
        yield road
        await road.close()


@pytest.fixture(
    params=["memory_road", pytest.param("rabbit_road", marks=pytest.mark.live)],
    ids=["memory", "rabbit"],
)
def road(request: pytest.FixtureRequest) -> Road:
    found: Road = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def ends(road: Road) -> AsyncIterator[Callable[[], tuple[LinkEnd, LinkEnd]]]:
    receiver, sender = await road.receiver(), await road.sender()
    yield lambda: (sender, receiver)
    await sender.close()
    await receiver.close()


Ends = Callable[[], tuple[LinkEnd, LinkEnd]]


async def test_frames_arrive_whole_and_in_order_both_ways(
    ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    at_sender, at_receiver = listening(sender), listening(receiver)
    rng = random.Random(1)
    # Around what a broker cuts a body into, and up to the largest piece of a message.
    sizes = [
        HEAD_BYTES,
        4095,
        131_064,
        131_065,
        262_144,
        800_000,
        *rng.choices(range(50_000), k=80),
    ]
    data = [frame(f"data {n}", size) for n, size in enumerate(sizes)]
    acks = [frame(f"ack {n}") for n in range(500)]
    for one in data:
        sender.send(one)
    for one in acks:
        receiver.send(one)
    await eventually(lambda: len(at_receiver.frames) >= len(data), "all data", deadline_s=30)
    await eventually(lambda: len(at_sender.frames) >= len(acks), "all acks", deadline_s=30)
    assert at_receiver.frames == data
    assert at_sender.frames == acks
    assert not at_sender.nobody


async def test_who_sent_a_frame_is_the_carriers_word(
    road: Road, ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    at_sender, at_receiver = listening(sender), listening(receiver)
    sender.send(frame("honest"))
    await eventually(lambda: len(at_receiver.carried) == 1, "the sender's")
    name = await road.stranger(frame("forged"))
    await eventually(lambda: len(at_receiver.carried) == 2, "the stranger's")
    await road.nameless(frame("unsaid"))
    await eventually(lambda: len(at_receiver.carried) == 3, "the nameless one's")
    assert [user for user, _ in at_receiver.carried] == [road.sender_user, name, ""]
    receiver.send(frame("ack"))
    await eventually(lambda: at_sender.carried, "an ack")
    assert at_sender.carried == [Carried(road.receiver_user, frame("ack"))]


async def test_what_came_before_anybody_listened_is_told_first(
    ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    at_sender = listening(sender)
    sender.send(frame("early"))
    receiver.send(frame("probe"))  # on its way back only when the broker is done with both
    await eventually(lambda: at_sender.frames, "the probe")
    at_receiver = listening(receiver)
    sender.send(frame("late"))
    await eventually(lambda: len(at_receiver.frames) == 2, "both")
    assert at_receiver.frames == [frame("early"), frame("late")]


async def test_without_a_receiver_the_frames_heads_come_back_and_acks_do_not(
    road: Road, eventually: Eventually
) -> None:
    sender = await road.sender()
    at_sender = listening(sender)
    sent = [frame("nobody takes this", 100_000), frame("nor this")]
    for one in sent:
        sender.send(one)
    await eventually(lambda: len(at_sender.nobody) == 2, "both back")
    for one, head in zip(sent, at_sender.nobody, strict=True):
        assert len(head) >= HEAD_BYTES
        assert one.startswith(head)
    await sender.close()
    receiver = await road.receiver()
    at_receiver = listening(receiver)
    receiver.send(frame("an ack that nobody hears"))
    sender = await road.sender()
    sender.send(frame("after it"))
    await eventually(lambda: at_receiver.frames == [frame("after it")], "the connection lives")
    assert not at_receiver.nobody
    await sender.close()
    await receiver.close()


async def test_there_is_one_receiver_until_it_is_gone(road: Road, eventually: Eventually) -> None:
    first = await road.receiver()
    with pytest.raises(LinkTaken):
        await road.receiver()
    await first.close()
    successors: list[LinkEnd] = []

    async def is_free() -> bool:
        try:
            successors.append(await road.receiver())
        except LinkTaken:
            return False  # 4.3 may answer a close before all its processes see the queue gone
        return True

    await eventually(is_free, "the queue of a receiver that was closed")
    [second] = successors
    at_second = listening(second)
    sender = await road.sender()
    sender.send(frame("for the second"))
    await eventually(lambda: at_second.frames == [frame("for the second")], "it arrives")
    await sender.close()
    await second.close()


async def test_a_sender_does_not_stand_in_the_way_of_its_successor(
    road: Road, ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    successor = await road.sender()
    heard = [listening(sender), listening(successor)]
    receiver.send(frame("ack"))
    await eventually(lambda: all(ears.frames == [frame("ack")] for ears in heard), "both hear")
    await successor.close()


async def test_after_a_purge_what_is_sent_next_arrives(
    road: Road, ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    at_receiver = listening(receiver)
    sender.send(frame("before"))
    await eventually(lambda: at_receiver.frames, "the first")
    await road.purge()
    sender.send(frame("after"))
    await eventually(lambda: at_receiver.frames[-1] == frame("after"), "the next")
    assert not at_receiver.closed


async def test_a_deleted_queue_ends_the_receivers_connection_and_the_sender_hears_of_nobody(
    road: Road, eventually: Eventually
) -> None:
    sender, receiver = await road.sender(), await road.receiver()
    at_sender, at_receiver = listening(sender), listening(receiver)
    await road.delete_queue()
    await eventually(lambda: at_receiver.closed, "told", deadline_s=30)
    assert "queue" in at_receiver.closed[0]

    def returned() -> bool:
        sender.send(frame("anybody?"))
        return bool(at_sender.nobody)

    await eventually(returned, "returned")
    again = await road.receiver()
    at_again = listening(again)
    sender.send(frame("you again"))
    await eventually(lambda: frame("you again") in at_again.frames, "it goes on")
    assert len(at_receiver.closed) == 1
    for end in (sender, receiver, again):
        await end.close()


async def test_a_connection_that_breaks_is_told_once_with_a_reason_and_sending_does_nothing(
    road: Road, ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    ears = [listening(sender), listening(receiver)]
    await road.reset()
    await eventually(lambda: all(one.closed for one in ears), "both told")
    for end in (sender, receiver):
        end.send(frame("into the void"))
        end.abort("too late")
        await end.close()
    await asyncio.sleep(0)
    assert all(len(one.closed) == 1 and one.closed[0] for one in ears)


async def test_an_end_that_broke_before_anybody_listened_says_so_then(
    road: Road, eventually: Eventually
) -> None:
    receiver = await road.receiver()
    await road.reset()
    probe = await road.sender()  # later than the break
    await eventually(lambda: _is_over(receiver), "broken")
    ears = listening(receiver)
    assert not ears.closed  # never from within
    await eventually(lambda: ears.closed, "told late")
    await asyncio.sleep(0)
    assert len(ears.closed) == 1
    await probe.close()


async def test_abort_drops_the_connection_and_tells_its_own_reason(
    road: Road, eventually: Eventually
) -> None:
    receiver = await road.receiver()
    ears = listening(receiver)
    receiver.abort("the session timed out")
    assert not ears.closed
    await eventually(lambda: ears.closed, "told")
    assert "the session timed out" in ears.closed[0]
    await receiver.close()


async def test_close_is_told_and_may_be_called_again(road: Road, eventually: Eventually) -> None:
    sender = await road.sender()
    ears = listening(sender)
    await sender.close()
    await sender.close()
    await eventually(lambda: ears.closed, "told")
    assert len(ears.closed) == 1


async def test_a_broker_that_cannot_be_reached_is_unreachable(road: Road) -> None:
    await road.go_away()
    with pytest.raises(LinkUnreachable) as error:
        await road.sender()
    assert error.value.reason
    with pytest.raises(LinkUnreachable):
        await road.receiver()


async def test_a_frame_beyond_the_queues_limit_may_be_lost_and_takes_nothing_else_with_it(
    ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    at_sender, at_receiver = listening(sender), listening(receiver)
    sender.send(frame("before"))
    await eventually(lambda: at_receiver.frames, "the first")
    huge = frame("huge", QUEUE_BYTES + 1)
    sender.send(huge)
    sender.send(frame("after"))
    await eventually(lambda: at_receiver.frames[-1] == frame("after"), "the one after it")
    assert at_receiver.frames in (
        [frame("before"), huge, frame("after")],
        [frame("before"), frame("after")],
    )
    assert not at_receiver.closed
    assert not at_sender.closed


async def test_the_line_counts_what_it_has_taken(ends: Ends, eventually: Eventually) -> None:
    sender, receiver = ends()
    at_receiver = listening(receiver)
    before = sender.status
    for n in range(20):
        sender.send(frame(f"{n}", 50_000))
    assert sender.status.bytes_waiting + sender.status.bytes_taken >= before.bytes_taken + 1_000_000
    await eventually(lambda: len(at_receiver.frames) == 20, "all")
    line = sender.status
    assert line.bytes_taken >= before.bytes_taken + 1_000_000
    assert line.bytes_waiting == 0
    assert not line.blocked


@in_virtual_time
async def test_a_blocked_end_in_memory_says_so_and_goes_on_afterwards() -> None:
    road = MemoryRoad()
    receiver, sender = await road.receiver(), await road.sender()
    at_receiver = listening(receiver)
    sender.blocked = True
    sender.send(frame("waits"))
    await let_pass(10)
    assert sender.status.blocked
    assert not at_receiver.frames
    sender.unblock()
    await until(lambda: at_receiver.frames == [frame("waits")], "it goes on", 10)
    assert not sender.status.blocked


@pytest.mark.long
async def test_a_broker_that_blocks_says_so_and_goes_on_afterwards(
    local_broker_factory: LocalBrokerFactory, eventually: Eventually
) -> None:
    broker = await local_broker_factory(users=(BrokerUser("all", "secret"),))
    vhost = Vhost(broker, "/", "all", "secret")
    async with WanProxy() as proxy:
        road = RabbitRoad(vhost, proxy)
        await road.open()
        receiver, sender = await road.receiver(), await road.sender()
        at_receiver = listening(receiver)
        await take_all_memory(broker)
        sender.send(frame("waits"))
        await eventually(lambda: sender.status.blocked, "blocked", deadline_s=30)
        await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.9")
        await eventually(lambda: at_receiver.frames == [frame("waits")], "goes on", deadline_s=30)
        await eventually(lambda: not sender.status.blocked, "no longer blocked", deadline_s=30)
        await sender.close()
        await receiver.close()
        await road.close()


def _is_over(end: LinkEnd) -> bool:
    """Whether nothing that is handed over goes out any more."""
    before = end.status
    end.send(frame("?"))
    after = end.status
    return before == after


class _ByHand:
    """A pace whose test grants."""

    def __init__(self) -> None:
        self.waiting = 0
        self.is_open = False
        self._grant: Callable[[int], None] = lambda nbytes: None

    @property
    def holds_back(self) -> bool:
        return self.waiting > 0

    def open(self, grant: Callable[[int], None]) -> None:
        self._grant, self.is_open = grant, True

    def put(self, nbytes: int) -> None:
        self.waiting += nbytes

    def hold(self) -> None: ...

    def go_on(self) -> None: ...

    def close(self) -> None:
        self.waiting, self.is_open = 0, False

    def grant(self, nbytes: int) -> None:
        nbytes = min(nbytes, self.waiting)
        self.waiting -= nbytes
        self._grant(nbytes)


async def test_what_is_paced_goes_in_order_as_far_as_it_is_granted(
    ends: Ends, eventually: Eventually
) -> None:
    sender, receiver = ends()
    listening(sender)
    at_receiver = listening(receiver)
    sender.send(frame("before"))
    pace = _ByHand()
    sender.pace(pace)
    data = [frame(f"data {n}", size) for n, size in enumerate((100, 50_000, 300_000, 40))]
    for one in data:
        sender.send(one)
    await eventually(lambda: len(at_receiver.frames) == 1, "what went before")
    assert pace.waiting >= sum(map(len, data))
    assert sender.status.held_back
    assert sender.status.bytes_waiting >= pace.waiting
    taken = sender.status.bytes_taken
    pace.grant(60_000)
    await eventually(lambda: len(at_receiver.frames) == 3, "two more, and part of the next")
    assert taken < sender.status.bytes_taken <= taken + 60_000
    while pace.waiting:
        pace.grant(7_777)
    await eventually(lambda: len(at_receiver.frames) == 5, "all", deadline_s=30)
    assert at_receiver.frames == [frame("before"), *data]
    assert not sender.status.held_back


async def test_an_end_that_is_paced_closes_without_what_waits(
    road: Road, eventually: Eventually
) -> None:
    receiver, sender = await road.receiver(), await road.sender()
    at_sender, at_receiver = listening(sender), listening(receiver)
    pace = _ByHand()
    sender.pace(pace)
    sender.send(frame("data", 100_000))
    pace.grant(500)
    await sender.close()
    await eventually(lambda: len(at_sender.closed) == 1, "the sender is told")
    assert not pace.is_open
    assert at_receiver.frames == []
    again = await road.sender()
    listening(again)
    again.send(frame("next"))
    await eventually(lambda: at_receiver.frames == [frame("next")], "only what came after")
    await again.close()
    await receiver.close()
