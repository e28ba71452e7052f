"""The connection against a scripted peer: what real brokers do only when things go wrong."""

from __future__ import annotations

import asyncio

import pytest
from pamqp import commands

from relay.bulk_amqp import (
    ChannelClosed,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    Consumer,
    Misuse,
    PeerSilent,
    Publisher,
    PublishOutcome,
    UnexpectedFrame,
    connect,
)
from relay.bulk_amqp.connection import HeartbeatWatch
from tests.conftest import Eventually
from tests.relay.bulk_amqp import wire
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker, forever

PLAIN = b"\x10\x00\x02"


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks of 50 ms at a heartbeat of 1 s; tests of HeartbeatWatch below have the arithmetic."""
    monkeypatch.setattr("relay.bulk_amqp.connection.TICKS_PER_HEARTBEAT", 20)


@pytest.mark.usefixtures("quick_ticks")
async def test_a_peer_that_stops_talking_is_noticed() -> None:
    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        await forever()  # half-open: the socket stays, nothing comes

    async with fake_broker(script) as uri:
        connection = await connect(uri, heartbeat=1)
        publisher = Publisher(await connection.channel(), confirms=False)
        reason = await asyncio.wait_for(connection.wait_closed(), 10)
        assert isinstance(reason, PeerSilent)
        with pytest.raises(PeerSilent):
            await publisher.start()


@pytest.mark.usefixtures("quick_ticks")
async def test_we_send_heartbeats_while_we_have_nothing_to_say(eventually: Eventually) -> None:
    clients: list[Client] = []

    async def script(client: Client) -> None:
        await client.log_in()
        clients.append(client)

        async def beat() -> None:
            while True:
                client.writer.write(wire.HEARTBEAT)
                await asyncio.sleep(0.02)

        talker = asyncio.ensure_future(beat())
        try:
            await client.next_frame()
        finally:
            talker.cancel()

    async with fake_broker(script) as uri:
        connection = await connect(uri, heartbeat=1)
        await eventually(lambda: clients and clients[0].heartbeats >= 3, "three heartbeats")
        assert connection.close_reason is None


@pytest.mark.usefixtures("quick_ticks")
async def test_silence_that_is_ours_is_not_the_peers(eventually: Eventually) -> None:
    clients: list[Client] = []

    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        clients.append(client)
        await client.next_frame()

    async with fake_broker(script) as uri:
        connection = await connect(uri, heartbeat=1)
        consumer = Consumer(await connection.channel(), "q", lambda deliveries: None)
        consumer.pause()
        await eventually(lambda: clients[0].heartbeats >= 10, "ten heartbeats of ours")
        assert connection.close_reason is None


async def test_an_answer_for_which_nobody_waits_any_more_ends_nothing() -> None:
    given_up = asyncio.Event()

    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        await client.expect(commands.Confirm.Select)
        client.send(1, commands.Confirm.SelectOk())
        await client.take_publishes(2)
        await given_up.wait()
        client.send(1, commands.Basic.Ack(2, True))
        await client.next_frame()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        publisher = Publisher(await connection.channel())
        await publisher.start()
        first = publisher.publish_many([("e", b"k", PLAIN, b"x")])
        second = publisher.publish_many([("e", b"k", PLAIN, b"y")])
        publisher.outcome(first).cancel()
        given_up.set()
        assert (await asyncio.wait_for(publisher.wait(second), 5)).all_routed
        assert connection.close_reason is None
        connection.abort("the test is over")


async def test_a_close_that_the_broker_sends_is_answered_and_told_to_all() -> None:
    answered = asyncio.Event()

    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        await client.expect(commands.Confirm.Select)
        client.send(1, commands.Confirm.SelectOk())
        await client.take_publishes(3)
        client.send(1, commands.Basic.Ack(1, False))
        client.send(0, commands.Connection.Close(320, "CONNECTION_FORCED - bye", 0, 0))
        await client.expect(commands.Connection.CloseOk)
        answered.set()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        channel = await connection.channel()
        publisher = Publisher(channel)
        await publisher.start()
        publication = publisher.publish_many([("e", b"k", PLAIN, b"x")] * 3)
        outcome = await asyncio.wait_for(publisher.wait(publication), 5)
        assert outcome == PublishOutcome(1, 3, unknown=(2, 3))
        reason = await connection.wait_closed()
        assert (type(reason), reason.code) == (ConnectionClosed, 320)
        assert channel.close_reason is reason
        with pytest.raises(ConnectionClosed, match="bye"):
            publisher.publish_many([("e", b"k", PLAIN, b"x")])
        with pytest.raises(ConnectionClosed, match="bye"):
            await publisher.drain()
        with pytest.raises(ConnectionClosed, match="bye"):
            await connection.channel()
        await asyncio.wait_for(answered.wait(), 5)
        await connection.close()  # a second close is no error


async def test_a_request_under_way_hears_that_the_connection_broke() -> None:
    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        await client.expect(commands.Queue.Declare)

    async with fake_broker(script) as uri:
        channel = await (await connect(uri)).channel()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(channel.declare_queue("q"), 5)


async def deaf_to_a_close(client: Client) -> None:
    await client.log_in()
    await client.expect(commands.Connection.Close)
    await forever()


async def test_a_peer_that_does_not_answer_our_close_is_left_in_time() -> None:
    async with fake_broker(deaf_to_a_close) as uri:
        connection = await connect(uri)
        await asyncio.wait_for(connection.close(timeout=0.1), 5)
        assert isinstance(connection.close_reason, ConnectionLost)


async def test_a_close_that_nobody_waits_for_any_more_ends_in_time_as_well() -> None:
    async with fake_broker(deaf_to_a_close) as uri:
        connection = await connect(uri)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.close(timeout=0.1), 0.01)
        reason = await asyncio.wait_for(connection.wait_closed(), 5)
        assert isinstance(reason, ConnectionLost)


async def test_our_close_is_answered_and_what_comes_in_between_is_ignored() -> None:
    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        await client.expect(commands.Connection.Close)
        client.send(0, commands.Connection.Blocked("memory"))
        client.send(0, commands.Connection.CloseOk())
        await client.reader.read()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        channel = await connection.channel()
        await asyncio.wait_for(connection.close(), 5)
        assert connection.close_reason is not None
        assert connection.close_reason.code == 200
        assert channel.close_reason is connection.close_reason


async def test_a_peer_that_reads_nothing_holds_back_the_writer(eventually: Eventually) -> None:
    go_on = asyncio.Event()

    async def script(client: Client) -> None:
        await client.log_in(frame_max=131072)
        await client.open_channel()
        await go_on.wait()
        await client.take_publishes(64)
        await client.next_frame()

    async with fake_broker(script) as uri:
        connection = await connect(uri, write_high_water=1 << 20)
        publisher = Publisher(await connection.channel(), confirms=False)
        await publisher.start()
        for _ in range(64):
            publisher.publish_many([("e", b"k", PLAIN, bytes(1 << 19))])
        waiting = asyncio.ensure_future(publisher.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert connection.bytes_waiting > 1 << 20
        taken = connection.bytes_taken
        assert taken < connection.bytes_sent
        go_on.set()
        await asyncio.wait_for(waiting, 10)
        assert connection.bytes_taken > taken
        await eventually(lambda: connection.bytes_taken == connection.bytes_sent, "all taken")
        await asyncio.wait_for(publisher.drain(), 5)


async def test_a_writer_that_waits_hears_that_the_connection_broke() -> None:
    break_it = asyncio.Event()

    async def script(client: Client) -> None:
        await client.log_in(frame_max=131072)
        await client.open_channel()
        await break_it.wait()
        client.writer.transport.abort()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        publisher = Publisher(await connection.channel(), confirms=False)
        await publisher.start()
        publisher.publish_many([("e", b"k", PLAIN, bytes(32 << 20))])
        waiting = asyncio.ensure_future(publisher.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        break_it.set()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(waiting, 5)


async def test_frames_for_nobody_close_the_connection() -> None:
    for data in (
        wire.method(9, commands.Basic.Ack(1)),
        wire.method(1, commands.Basic.Ack(1)),
        wire.method(1, commands.Queue.DeclareOk("q", 0, 0)),
        wire.delivery(1, "c00001", (1, False, "e", b"k", PLAIN, b"")),
        wire.returned(1, ("e", b"k", PLAIN, b"")),
        wire.method(0, commands.Connection.OpenOk()),
    ):

        async def script(client: Client, data: bytes = data) -> None:
            await client.log_in()
            await client.open_channel()
            client.writer.write(data)
            await client.reader.read()

        async with fake_broker(script) as uri:
            connection = await connect(uri)
            opening = asyncio.ensure_future(connection.channel())
            reason = await asyncio.wait_for(connection.wait_closed(), 5)
            await asyncio.gather(opening, return_exceptions=True)
            assert isinstance(reason, UnexpectedFrame), data


async def test_a_cancelled_request_closes_its_channel_and_no_other() -> None:
    declared = asyncio.Event()

    async def script(client: Client) -> None:
        await client.log_in()
        await client.open_channel()
        await client.open_channel()
        await client.expect(commands.Queue.Declare)
        declared.set()
        await client.expect(commands.Channel.Close)
        client.send(1, commands.Queue.DeclareOk("q", 0, 0))
        client.send(1, commands.Channel.CloseOk())
        await client.open_channel()
        await client.expect(commands.Queue.Purge)
        client.send(2, commands.Queue.PurgeOk(5))
        await client.reader.read()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        first, second = await connection.channel(), await connection.channel()
        declaring = asyncio.ensure_future(first.declare_queue("q"))
        await asyncio.wait_for(declared.wait(), 5)
        declaring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await declaring
        with pytest.raises(Misuse, match="being closed"):
            await first.purge_queue("q")
        assert isinstance(await asyncio.wait_for(first.wait_closed(), 5), ChannelClosed)
        third = await connection.channel()
        assert third.number == 1  # a closed channel's number is free again
        assert await second.purge_queue("q") == 5


async def test_blocked_and_unblocked_are_told() -> None:
    told: list[str | None] = []

    async def script(client: Client) -> None:
        await client.log_in()
        client.send(0, commands.Connection.Blocked("low on disk"))
        await client.open_channel()
        await client.expect(commands.Queue.Declare)
        client.send(0, commands.Connection.Unblocked())
        client.send(1, commands.Queue.DeclareOk("q", 0, 0))
        await client.reader.read()

    async with fake_broker(script) as uri:
        connection = await connect(uri, on_blocked=told.append)
        channel = await connection.channel()
        assert connection.blocked == "low on disk"
        await channel.declare_queue("q")
        assert connection.blocked is None
    assert told == ["low on disk", None]


async def test_a_connection_that_is_gone_is_not_blocked_any_more() -> None:
    async def script(client: Client) -> None:
        await client.log_in()
        client.send(0, commands.Connection.Blocked("low on disk"))
        await client.open_channel()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        await connection.channel()
        await connection.wait_closed()
        assert connection.blocked is None


async def test_when_all_channels_are_in_use_the_next_is_refused() -> None:
    async def script(client: Client) -> None:
        await client.log_in()
        while True:
            await client.open_channel()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        for _ in range(100):
            await connection.channel()
        with pytest.raises(ConnectionFailed, match="all 100 channels are in use"):
            await connection.channel()


def test_a_heartbeat_is_due_when_nothing_was_sent_since_the_last_tick() -> None:
    watch = HeartbeatWatch()
    assert watch.tick(100, 1, listening=True)[0] is False
    assert watch.tick(100, 2, listening=True)[0] is True
    assert watch.tick(108, 3, listening=True)[0] is False


def test_a_peer_is_silent_after_four_ticks_of_half_a_heartbeat_without_a_byte() -> None:
    watch = HeartbeatWatch()
    heard = [watch.tick(0, 50, listening=True)[1] for _ in range(5)]
    assert heard == [False, False, False, False, True]


def test_any_byte_ends_the_silence() -> None:
    watch = HeartbeatWatch()
    for received in (1, 1, 1, 2, 2, 2, 2):
        assert watch.tick(0, received, listening=True)[1] is False


def test_silence_does_not_count_while_we_do_not_listen() -> None:
    watch = HeartbeatWatch()
    assert not any(watch.tick(0, 1, listening=False)[1] for _ in range(10))
    heard = [watch.tick(0, 1, listening=True)[1] for _ in range(4)]
    assert heard == [False, False, False, True]
