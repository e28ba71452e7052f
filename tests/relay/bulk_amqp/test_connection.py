"""The connection against a scripted peer: what real brokers do only when things go wrong."""

from __future__ import annotations

import asyncio
import gc

import pytest
import uvloop
from pamqp import commands

from relay.bulk_amqp import (
    AuthenticationFailed,
    CallbackFailed,
    ChannelClosed,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    Consumer,
    Delivery,
    Misuse,
    Outcome,
    PeerSilent,
    Publisher,
    UnexpectedFrame,
    connect,
)
from tests.conftest import Eventually
from tests.relay.bulk_amqp import wire
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker

PLAIN = b"\x10\x00\x02"

# The hook that is to replace the fixture below reaches beyond one file.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Overriding the .event_loop_policy:DeprecationWarning"
)


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """Every test here runs on both loops: their transports differ."""
    return (
        uvloop.EventLoopPolicy() if request.param == "uvloop" else asyncio.DefaultEventLoopPolicy()
    )


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks of 50 ms at a heartbeat of 1 s; test_heartbeat.py has the arithmetic."""
    monkeypatch.setattr("relay.bulk_amqp.connection.TICKS_PER_HEARTBEAT", 20)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_login_agrees_on_the_smaller_of_both_limits() -> None:
    seen: list[Client] = []

    async def script(client: Client) -> None:
        await client.log_in(heartbeat=60, frame_max=8192)
        seen.append(client)
        await forever()

    async with fake_broker(script) as uri:
        connection = await connect(uri, heartbeat=7, frame_max=131072)
        assert (connection.heartbeat, connection.frame_max) == (7, 8192)
        assert (seen[0].tune.heartbeat, seen[0].tune.frame_max) == (7, 8192)
        assert seen[0].tune.channel_max == 100


async def greeted_with(data: bytes, client: Client) -> None:
    await client.reader.readexactly(8)
    client.writer.write(data)
    await client.reader.read()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        wire.method(0, commands.Connection.Tune(1, 4096, 1)),
        wire.method(0, commands.Connection.Start(mechanisms="EXTERNAL", server_properties={})),
        wire.method(1, commands.Channel.CloseOk()),
    ],
)
async def test_a_peer_that_does_not_speak_as_a_broker_should_fails_the_login(data: bytes) -> None:
    async with fake_broker(lambda client: greeted_with(data, client)) as uri:
        with pytest.raises(ConnectionFailed, match=r"amqp://user@127\.0\.0\.1"):
            await connect(uri, timeout=5)


async def test_a_peer_that_hangs_up_during_the_login_fails_it() -> None:
    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed) as failed:
            await connect(uri, timeout=5)
    assert "secret" not in str(failed.value)


async def test_a_peer_that_never_answers_fails_the_login_in_time(eventually: Eventually) -> None:
    left = asyncio.Event()

    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)
        assert await client.reader.read() == b""
        left.set()

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed, match=r"did not answer within 0\.2 s"):
            await connect(uri, timeout=0.2)
        await asyncio.wait_for(left.wait(), 5)


async def test_a_login_that_is_cancelled_leaves_no_socket_behind() -> None:
    greeted, left = asyncio.Event(), asyncio.Event()

    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)
        greeted.set()
        assert await client.reader.read() == b""
        left.set()

    async with fake_broker(script) as uri:
        login = asyncio.ensure_future(connect(uri))
        await asyncio.wait_for(greeted.wait(), 5)
        login.cancel()
        with pytest.raises(asyncio.CancelledError):
            await login
        await asyncio.wait_for(left.wait(), 5)


async def test_nobody_there_is_a_failed_connection() -> None:
    async with fake_broker(lambda client: forever()) as uri:
        pass
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        await connect(uri, timeout=5)


@pytest.mark.parametrize(
    ("code", "error"),
    [(403, AuthenticationFailed), (530, AuthenticationFailed), (541, ConnectionFailed)],
)
async def test_a_refusal_during_the_login_says_why(code: int, error: type[Exception]) -> None:
    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)
        client.send(0, commands.Connection.Close(code, "REFUSED", 0, 0))
        await client.expect(commands.Connection.CloseOk)

    async with fake_broker(script) as uri:
        with pytest.raises(error, match="REFUSED") as refused:
            await connect(uri, timeout=5)
    assert type(refused.value) is error
    assert refused.value.code == code  # type: ignore[attr-defined]


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
        assert outcome == Outcome(1, 3, unknown=(2, 3))
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


async def test_a_peer_that_does_not_answer_our_close_is_left_in_time() -> None:
    async def script(client: Client) -> None:
        await client.log_in()
        await client.expect(commands.Connection.Close)
        await forever()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        await asyncio.wait_for(connection.close(timeout=0.1), 5)
        assert isinstance(connection.close_reason, ConnectionLost)


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


async def delivering(client: Client, count: int) -> None:
    """Serve one consumer ``count`` messages as soon as it asks."""
    await client.log_in()
    await client.open_channel()
    await client.expect(commands.Basic.Qos)
    client.send(1, commands.Basic.QosOk())
    asked = await client.expect(commands.Basic.Consume)
    client.send(1, commands.Basic.ConsumeOk(asked.consumer_tag))
    for tag in range(1, count + 1):
        message = (tag, False, "e", b"k", PLAIN, b"body")
        client.writer.write(wire.delivery(1, asked.consumer_tag, message))


async def test_a_callback_that_raises_closes_the_connection_and_is_named() -> None:
    ended: list[Exception] = []

    def on_deliveries(deliveries: list[Delivery]) -> None:
        raise ZeroDivisionError("no")

    async def script(client: Client) -> None:
        await delivering(client, 1)
        await client.reader.read()

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        channel = await connection.channel()
        consumer = Consumer(channel, "q", on_deliveries, on_ended=ended.append)
        starting = asyncio.ensure_future(consumer.start())
        reason = await asyncio.wait_for(connection.wait_closed(), 5)
        await asyncio.gather(starting, return_exceptions=True)
        assert isinstance(reason, CallbackFailed)
        assert isinstance(reason.__cause__, ZeroDivisionError)
        assert ended == [reason]


async def test_a_callback_that_raises_while_all_ends_is_reported_to_the_loop() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

    async def script(client: Client) -> None:
        await delivering(client, 0)

    def on_ended(reason: Exception) -> None:
        raise ZeroDivisionError("no")

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        consumer = Consumer(await connection.channel(), "q", lambda _: None, on_ended=on_ended)
        await asyncio.gather(consumer.start(), return_exceptions=True)
        await asyncio.wait_for(connection.wait_closed(), 5)
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError]


async def test_tags_are_settled_in_order_or_not_at_all(eventually: Eventually) -> None:
    got: list[Delivery] = []
    settled: list[tuple[str, int, bool]] = []

    async def script(client: Client) -> None:
        await delivering(client, 10)
        while True:
            _, frame = await client.next_frame()
            settled.append((frame.name, frame.delivery_tag, frame.multiple))  # type: ignore[attr-defined]

    async with fake_broker(script) as uri:
        connection = await connect(uri)
        consumer = Consumer(await connection.channel(), "q", got.extend)
        with pytest.raises(Misuse):
            consumer.ack(1)
        await consumer.start()
        await eventually(lambda: len(got) == 10, "ten deliveries")
        consumer.ack(4)
        consumer.nack(7, requeue=True)
        consumer.ack(6, multiple=False)
        for tag in (4, 3, 7, 6, 11, 0):
            with pytest.raises(Misuse, match=f"delivery tag {tag} cannot be settled"):
                consumer.ack(tag)
        consumer.ack(5, multiple=False)
        assert consumer.settled_up_to == 7
        consumer.ack(10)
        assert consumer.settled_up_to == 10
        await eventually(lambda: len(settled) == 5, "five settlements")
        assert settled == [
            ("Basic.Ack", 4, True),
            ("Basic.Nack", 7, False),
            ("Basic.Ack", 6, False),
            ("Basic.Ack", 5, False),
            ("Basic.Ack", 10, True),
        ]
        assert connection.close_reason is None


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


async def test_no_failure_is_left_for_the_garbage_collector() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

    async def script(client: Client) -> None:
        await client.greet()

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed):
            await connect(uri, timeout=5)
    gc.collect()
    await asyncio.sleep(0)
    assert told == []
