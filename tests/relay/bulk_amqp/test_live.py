"""The bulk path on a real broker: every byte, every tag, and what a broker objects to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from isthmus.local_brokers import BrokerUser, LocalBroker
from relay.bulk_amqp import (
    AuthenticationFailed,
    BulkAmqpError,
    Channel,
    ChannelClosed,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    Consumer,
    ConsumerCancelled,
    Delivery,
    MalformedProperties,
    Message,
    Outcome,
    Publisher,
    Returned,
    connect,
    content_header,
    field_table,
)
from tests.conftest import Eventually, LocalBrokerFactory
from tests.live_brokers import Vhost, rabbitmqctl

PLAIN = b"\x10\x00\x02"  # delivery mode 2
QUORUM = {"x-queue-type": "quorum"}

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
async def connected(vhost: Vhost) -> AsyncIterator[Connect]:
    """Connections to the test's virtual host, closed at its end."""
    made: list[Connection] = []

    async def make(**options: object) -> Connection:
        made.append(await connect(vhost.amqp_uri, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for connection in made:
        await connection.close()


async def started_publisher(connection: Connection) -> Publisher:
    publisher = Publisher(await connection.channel())
    await publisher.start()
    return publisher


class Inbox:
    """Takes deliveries, and acks all of each read at once."""

    def __init__(self, channel: Channel, queue: str) -> None:
        self.got: list[Delivery] = []
        self.reads = 0
        self.ended: list[BulkAmqpError] = []
        self.consumer = Consumer(channel, queue, self.take, on_ended=self.ended.append)

    def take(self, deliveries: list[Delivery]) -> None:
        self.got += deliveries
        self.reads += 1
        self.consumer.ack(deliveries[-1][0])

    def messages(self) -> list[Message]:
        return [delivery[2:] for delivery in self.got]


async def publish_all(publisher: Publisher, messages: list[Message]) -> list[Outcome]:
    publications = []
    for at in range(0, len(messages), 256):
        publications.append(publisher.publish_many(messages[at : at + 256], mandatory=True))
        await publisher.drain()
    return [await asyncio.wait_for(publisher.wait(p), 30) for p in publications]


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
async def test_ten_thousand_messages_come_once_in_order_and_byte_for_byte(
    connected: Connect, eventually: Eventually, arguments: dict[str, str]
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_exchange("orders", "topic")
    await channel.declare_queue("inbox", durable=True, arguments=arguments)
    await channel.bind_queue("inbox", "orders", "#")
    inbox = Inbox(channel, "inbox")
    await inbox.consumer.start(prefetch=2000)
    draw = random.Random(7)
    messages: list[Message] = [
        (
            "orders",
            b"key.%d" % (n % 3000),
            content_header.rewrite(PLAIN, {content_header.MESSAGE_ID: b"m%d" % n}),
            draw.randbytes(draw.choice([0, 1, 100, 1024, 5000])),
        )
        for n in range(10_000)
    ]
    outcomes = await publish_all(await started_publisher(await connected()), messages)
    assert all(outcome.all_routed for outcome in outcomes)
    await eventually(lambda: len(inbox.got) >= 10_000, lambda: f"{len(inbox.got)}", deadline_s=30)
    received = [
        (exchange, key, content_header.without_headers(block, (), (b"x-delivery-count",)), body)
        for exchange, key, block, body in inbox.messages()
    ]
    assert received == messages
    assert [delivery[0] for delivery in inbox.got] == list(range(1, 10_001))
    assert inbox.reads < 10_000
    await inbox.consumer.cancel()
    assert (await channel.declare_queue("inbox", passive=True)).message_count == 0
    await channel.close()
    left = await (await connected()).channel()
    assert (await left.declare_queue("inbox", passive=True)).message_count == 0


async def test_a_body_of_15_mib_and_an_empty_one_arrive_whole(
    connected: Connect, eventually: Eventually
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("big")
    inbox = Inbox(channel, "big")
    await inbox.consumer.start()
    body = random.Random(1).randbytes(15 << 20)
    messages: list[Message] = [("", b"big", PLAIN, data) for data in (b"", body, b"", b"x")]
    outcomes = await publish_all(await started_publisher(await connected()), messages)
    assert outcomes == [Outcome(1, 4)]
    await eventually(lambda: len(inbox.got) == 4, "four messages", deadline_s=30)
    assert inbox.messages() == messages


def every_property() -> bytes:
    """Headers in the order of their names: quorum queues and RabbitMQ 4 sort them so."""
    table = b"".join(
        field_table.entry(name, value)
        for name, value in sorted(
            [
                (b"void", b"V"),
                (b"true", b"t\x01"),
                (b"int8", b"b\xff"),
                (b"uint8", b"B\xff"),
                (b"int16", b"s\xff\xfe"),
                (b"uint16", b"u\xff\xfe"),
                (b"int32", b"I\xff\xff\xff\xfe"),
                (b"uint32", b"i\xff\xff\xff\xfe"),
                (b"int64", field_table.long_integer(-5)),
                (b"float", b"f\x40\x48\xf5\xc3"),
                (b"double", b"d\x40\x09\x21\xfb\x54\x44\x2d\x18"),
                (b"decimal", b"D\x02\x00\x00\x01\x00"),
                (b"time", b"T\x00\x00\x00\x00\x65\x00\x00\x00"),
                (b"text", field_table.long_string("Grüße".encode())),
                (b"bytes", b"x\x00\x00\x00\x03\x00\xff\xce"),
                (b"array", b"A\x00\x00\x00\x0aVS\x00\x00\x00\x01at\x00V"),
                (b"table", b"F\x00\x00\x00\x0d\x01aF\x00\x00\x00\x06\x04deepV"),
            ]
        )
    )
    field_table.check(table)
    ch = content_header
    return ch.rewrite(
        ch.NONE_PRESENT,
        {
            ch.CONTENT_TYPE: b"application/json",
            ch.CONTENT_ENCODING: b"gzip",
            ch.DELIVERY_MODE: 1,
            ch.PRIORITY: 9,
            ch.CORRELATION_ID: b"corr",
            ch.REPLY_TO: b"reply",
            ch.EXPIRATION: b"600000",
            ch.MESSAGE_ID: b"id",
            ch.TIMESTAMP: 1714521600,
            ch.TYPE: b"type",
            ch.APP_ID: b"app",
            ch.CLUSTER_ID: b"paris",
        },
        table,
    )


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
async def test_every_property_and_nested_headers_come_byte_for_byte(
    connected: Connect, eventually: Eventually, arguments: dict[str, str]
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("q", durable=True, arguments=arguments)
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    sent: Message = ("", b"q", every_property(), b"body")
    await publish_all(await started_publisher(await connected()), [sent])
    await eventually(lambda: inbox.got, "the message")
    ((exchange, key, block, body),) = inbox.messages()
    counted = content_header.header(block, b"x-delivery-count")
    block = content_header.without_headers(block, (), (b"x-delivery-count",))
    assert (exchange, key, block, body) == sent
    assert counted in (None, b"l" + bytes(8))


async def test_what_the_checker_refuses_the_broker_refuses_too(
    vhost: Vhost, eventually: Eventually
) -> None:
    for block in (
        b"\x20\x00\x00\x00\x00\x03\x01aZ",
        b"\x20\x00\x00\x00\x00\x04\x01aI\x00",
        b"\x80\x00\x05abc",
        b"\x10\x00\x02\x02",
    ):
        with pytest.raises(MalformedProperties):
            content_header.check(block)
        connection = await connect(vhost.amqp_uri)
        publisher = await started_publisher(connection)
        publication = publisher.publish_many([("", b"q", block, b"")])
        assert (await asyncio.wait_for(publisher.wait(publication), 10)).unknown == (1,)
        await connection.close()


async def test_returns_are_matched_among_identical_neighbours(connected: Connect) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_exchange("orders", "direct")
    await channel.declare_queue("inbox")
    await channel.bind_queue("inbox", "orders", "good")
    returned: list[tuple[int, Returned]] = []
    publisher = Publisher(
        await connection.channel(), on_returned=lambda n, what: returned.append((n, what))
    )
    await publisher.start()
    good: Message = ("orders", b"good", every_property(), b"body")
    lost: Message = ("orders", b"nobody", every_property(), b"body")
    big: Message = ("orders", b"nobody", every_property(), bytes(300_000))
    publication = publisher.publish_many(
        [good, lost, lost, good, good, lost, big, good], mandatory=True
    )
    assert await asyncio.wait_for(publisher.wait(publication), 10) == Outcome(
        1, 8, returned=(2, 3, 6, 7)
    )
    assert [n for n, _ in returned] == [2, 3, 6, 7]
    assert [(what.code, what.routing_key, what.body) for _, what in returned] == [
        (312, b"nobody", message[3]) for message in (lost, lost, lost, big)
    ]
    assert (await channel.purge_queue("inbox")) == 4
    again = publisher.publish_many([lost, good], mandatory=False)
    assert (await asyncio.wait_for(publisher.wait(again), 10)).all_routed


async def test_a_return_whose_bcc_header_the_broker_cut_is_still_matched(
    connected: Connect,
) -> None:
    publisher = await started_publisher(await connected())
    bcc = field_table.entry(b"BCC", b"A\x00\x00\x00\x07S\x00\x00\x00\x02no")
    block = content_header.rewrite(PLAIN, {}, bcc)
    publication = publisher.publish_many(
        [("amq.direct", b"a", block, b"1"), ("amq.direct", b"b", block, b"2")], mandatory=True
    )
    outcome = await asyncio.wait_for(publisher.wait(publication), 10)
    assert outcome == Outcome(1, 2, returned=(1, 2))


async def test_a_full_queue_that_rejects_is_a_nack_for_just_those(connected: Connect) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_queue(
        "full", arguments={"x-max-length": 5, "x-overflow": "reject-publish"}
    )
    await channel.declare_queue("free")
    publisher = await started_publisher(connection)
    messages: list[Message] = [
        ("", b"full" if n % 2 else b"free", PLAIN, b"%d" % n) for n in range(1, 201)
    ]
    outcomes = [
        await asyncio.wait_for(publisher.wait(publisher.publish_many([message])), 10)
        for message in messages
    ]
    nacked = {n for outcome in outcomes for n in outcome.nacked}
    assert nacked == {n for n in range(1, 201) if n % 2 and n > 10}
    assert await channel.purge_queue("full") == 5
    assert await channel.purge_queue("free") == 100


async def test_publishing_to_an_unknown_exchange_closes_that_channel_only(
    connected: Connect,
) -> None:
    connection = await connected()
    other = await connection.channel()
    await other.declare_queue("q")
    publisher = await started_publisher(connection)
    publications = [publisher.publish_many([("gone", b"k", PLAIN, b"x")] * 3)]
    reason = await asyncio.wait_for(publisher.channel.wait_closed(), 10)
    assert isinstance(reason, ChannelClosed)
    assert reason.code == 404
    assert "gone" in reason.text
    assert publications[0].outcome == Outcome(1, 3, unknown=(1, 2, 3))
    with pytest.raises(ChannelClosed, match="gone"):
        publisher.publish_many([("", b"q", PLAIN, b"x")])
    assert connection.close_reason is None
    again = await started_publisher(connection)
    outcome = await asyncio.wait_for(
        again.wait(again.publish_many([("", b"q", PLAIN, b"x")], mandatory=True)), 10
    )
    assert outcome.all_routed
    assert await other.purge_queue("q") == 1


async def test_each_refusal_has_its_code(connected: Connect, vhost: Vhost) -> None:
    connection = await connected()
    first = await connection.channel()
    await first.declare_queue("mine", exclusive=True)
    await first.declare_queue("durable", durable=True)
    stranger = await connected()

    async def refused(connection: Connection, what: Callable[[Channel], Awaitable[object]]) -> int:
        channel = await connection.channel()
        with pytest.raises(ChannelClosed) as closed:
            await asyncio.wait_for(what(channel), 10)
        assert channel.close_reason is closed.value
        return closed.value.code

    assert await refused(connection, lambda ch: ch.declare_queue("none", passive=True)) == 404
    assert await refused(connection, lambda ch: ch.declare_queue("durable", durable=False)) == 406
    assert await refused(stranger, lambda ch: ch.declare_queue("mine", passive=True)) == 405
    assert await refused(connection, lambda ch: ch.declare_exchange("amq.mine")) == 403
    assert (await refused(stranger, lambda ch: Consumer(ch, "none", lambda _: None).start())) == 404

    writer = await vhost.add_user(BrokerUser(f"w-{vhost.name}", "pw", configure="^$", write="^$"))
    limited = await connect(vhost.uri_as(writer))
    assert await refused(limited, lambda ch: ch.declare_queue("x")) == 403
    await limited.close()


async def test_a_foreign_user_id_closes_the_channel_only(connected: Connect) -> None:
    connection = await connected()
    publisher = await started_publisher(connection)
    block = content_header.rewrite(PLAIN, {content_header.USER_ID: b"someone-else"})
    publisher.publish_many([("", b"q", block, b"x")])
    reason = await asyncio.wait_for(publisher.channel.wait_closed(), 10)
    assert isinstance(reason, ChannelClosed)
    assert reason.code == 406
    assert connection.close_reason is None


async def test_wrong_credentials_and_unknown_virtual_hosts_are_told_apart_from_failures(
    vhost: Vhost,
) -> None:
    for uri in (
        vhost.amqp_uri.replace(vhost.password, "wrong"),
        vhost.amqp_uri.replace(f"/{vhost.name}", "/no-such-vhost"),
    ):
        with pytest.raises(AuthenticationFailed) as refused:
            await connect(uri)
        assert vhost.password not in str(refused.value)


async def test_topology_can_be_made_and_unmade(connected: Connect) -> None:
    channel = await (await connected()).channel()
    named = await channel.declare_queue("", exclusive=True, auto_delete=True)
    assert named.queue.startswith("amq.gen-")
    await channel.declare_exchange("source", "fanout", durable=True)
    await channel.declare_exchange("target", "topic", internal=True)
    await channel.bind_exchange("target", "source")
    await channel.bind_queue(named.queue, "target", "a.#")
    publisher = await started_publisher(await connected())

    async def routed() -> bool:
        publication = publisher.publish_many([("source", b"a.b", PLAIN, b"")], mandatory=True)
        return (await asyncio.wait_for(publisher.wait(publication), 10)).all_routed

    assert await routed()
    await channel.unbind_queue(named.queue, "target", "a.#")
    assert not await routed()
    await channel.bind_queue(named.queue, "target", "a.#")
    await channel.unbind_exchange("target", "source")
    assert not await routed()
    assert await channel.delete_queue(named.queue) == 1
    await channel.delete_exchange("target")
    await channel.delete_exchange("source", if_unused=True)
    with pytest.raises(ChannelClosed):
        await channel.declare_exchange("source", "fanout", passive=True)


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
async def test_a_consumer_hears_that_its_queue_was_deleted(
    connected: Connect, eventually: Eventually, arguments: dict[str, str]
) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_queue("doomed", durable=True, arguments=arguments)
    inbox = Inbox(channel, "doomed")
    await inbox.consumer.start()
    await (await (await connected()).channel()).delete_queue("doomed")
    await eventually(lambda: inbox.ended, "the end of the consumer")
    assert isinstance(inbox.consumer.ended, ConsumerCancelled)
    assert inbox.ended == [inbox.consumer.ended]
    assert channel.close_reason is None
    assert connection.close_reason is None


async def test_our_own_cancel_is_not_told_as_an_end(connected: Connect) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("q")
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    await inbox.consumer.cancel()
    await inbox.consumer.cancel()
    await channel.close()
    assert inbox.ended == []


async def test_two_thousand_unsettled_and_not_one_more(
    connected: Connect, eventually: Eventually
) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_queue("q", durable=True, arguments=QUORUM)
    publisher = await started_publisher(await connected())
    await publish_all(publisher, [("", b"q", PLAIN, b"%d" % n) for n in range(6000)])
    got: list[Delivery] = []
    consumer = Consumer(channel, "q", got.extend)
    await consumer.start(prefetch=2000)
    await eventually(lambda: len(got) >= 2000, "the first 2000")
    assert (await channel.declare_queue("q", passive=True)).message_count == 4000
    assert len(got) == 2000
    while len(got) < 6000 or consumer.settled_up_to < 6000:
        before = consumer.settled_up_to
        consumer.ack(min(before + 700, got[-1][0]))
        await eventually(
            lambda before=before: len(got) >= min(6000, before + 2000), lambda: f"{len(got)}"
        )
    assert [delivery[5] for delivery in got] == [b"%d" % n for n in range(6000)]
    assert (await channel.declare_queue("q", passive=True)).message_count == 0


async def test_refused_deliveries_come_again_flagged_or_go_to_the_dead_letters(
    connected: Connect, eventually: Eventually
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("dead")
    await channel.declare_queue(
        "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    got: list[Delivery] = []
    consumer = Consumer(channel, "q", got.extend)
    await consumer.start()
    publisher = await started_publisher(await connected())
    await publish_all(publisher, [("", b"q", PLAIN, b"%d" % n) for n in range(4)])
    await eventually(lambda: len(got) == 4, "four deliveries")
    consumer.nack(2, requeue=True)
    consumer.nack(3, requeue=False)
    await eventually(lambda: len(got) == 5, "the second one again")
    assert (got[4][0], got[4][1], got[4][5]) == (5, True, b"1")
    consumer.nack(5, requeue=False, multiple=True)
    await eventually(
        lambda: _messages(channel, "dead", 4), "all four in the dead letters", deadline_s=10
    )


async def _messages(channel: Channel, queue: str, expected: int) -> bool:
    return (await channel.declare_queue(queue, passive=True)).message_count == expected


async def test_a_paused_consumer_reads_nothing_until_it_resumes(
    connected: Connect, eventually: Eventually
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("q")
    publisher = await started_publisher(await connected())
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    await publish_all(publisher, [("", b"q", PLAIN, b"first")])
    await eventually(lambda: len(inbox.got) == 1, "the first message")
    inbox.consumer.pause()
    inbox.consumer.pause()
    await publish_all(publisher, [("", b"q", PLAIN, b"second")])
    await publish_all(publisher, [("", b"q", PLAIN, b"third")])
    assert len(inbox.got) == 1
    inbox.consumer.resume()
    await eventually(lambda: len(inbox.got) == 3, "the others")


async def test_an_exclusive_queue_goes_with_its_connection(
    connected: Connect, eventually: Eventually
) -> None:
    owner = await connected()
    await (await owner.channel()).declare_queue("lock", exclusive=True)
    await owner.close()
    assert owner.close_reason is not None
    assert owner.close_reason.code == 200
    await (await (await connected()).channel()).declare_queue("lock", exclusive=True)


async def test_a_connection_that_an_operator_closes_says_so(
    connected: Connect, vhost: Vhost, eventually: Eventually
) -> None:
    connection = await connected(name="to be closed")
    publisher = await started_publisher(connection)
    await vhost.api("DELETE", f"/connections/username/{vhost.user}")
    reason = await asyncio.wait_for(connection.wait_closed(), 10)
    assert type(reason) is ConnectionClosed
    assert reason.code == 320
    with pytest.raises(ConnectionClosed):
        publisher.publish_many([("", b"q", PLAIN, b"")])


async def test_a_killed_broker_leaves_unconfirmed_publishes_unknown(
    local_broker_factory: LocalBrokerFactory, eventually: Eventually
) -> None:
    user = BrokerUser("app", "pw")
    broker = await local_broker_factory("a", users=(user,))
    uri = broker.spec.amqp_uri(user, "/")
    consuming, publishing = await connect(uri), await connect(uri)
    channel = await consuming.channel()
    await channel.declare_queue("q", durable=True)
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    publisher = await started_publisher(publishing)
    told: list[str | None] = []
    publishing.on_blocked = told.append

    # A memory limit of nothing: publishers are blocked, so nothing more is confirmed.
    await _set_memory_limit(broker, 0.0)
    blocked = publisher.publish_many([("", b"q", PLAIN, bytes(1000))] * 100)
    await eventually(lambda: publishing.blocked, "blocked", deadline_s=20)
    assert told == [publishing.blocked]
    assert blocked.outcome is None
    assert publisher.unconfirmed_messages == 100
    assert 100_000 <= publisher.unconfirmed_bytes <= 110_000
    await eventually(lambda: publisher.oldest_unconfirmed_age > 0, "some age")

    await _set_memory_limit(broker, 0.6)
    assert (await asyncio.wait_for(publisher.wait(blocked), 20)).all_routed
    await eventually(lambda: publishing.blocked is None, "unblocked", deadline_s=20)
    assert (publisher.unconfirmed_messages, publisher.unconfirmed_bytes) == (0, 0)
    assert publisher.oldest_unconfirmed_age == 0
    assert told[-1] is None

    await _set_memory_limit(broker, 0.0)
    last = publisher.publish_many([("", b"q", PLAIN, b"last")] * 2)
    await eventually(lambda: publishing.blocked, "blocked again", deadline_s=20)
    broker.kill()
    outcome = await asyncio.wait_for(publisher.wait(last), 10)
    assert outcome.unknown == (last.first, last.last)
    assert isinstance(await asyncio.wait_for(consuming.wait_closed(), 10), ConnectionLost)
    assert isinstance(publishing.close_reason, ConnectionLost)
    assert inbox.ended == [consuming.close_reason]


async def _set_memory_limit(broker: LocalBroker, fraction: float) -> None:
    """Of the machine's memory; none blocks every publisher at once."""
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", str(fraction))
