"""What every egress promises: RabbitMQ's queues and their twin in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from federation.mesh import IdentityKind, IdentityRule
from relay.bulk_amqp import Channel, Publisher, connect
from relay.bulk_amqp.field_table import boolean, entry, long_integer, long_string
from relay.packing.comeback.returned_prefix import message_digest
from relay.packing.egress import (
    Egress,
    EgressClosed,
    EgressMessage,
    EgressQueue,
    PackerLockHeld,
    QueueMissing,
)
from relay.packing.intake import Intake
from relay.packing.memory_egress import MemoryEgressBroker, Returns
from relay.packing.rabbit_egress import connect_egress
from tests.conftest import Eventually
from tests.live_brokers import Vhost
from tests.waiting import until

LOCK = "isthmus.test.lock.packer"
PLAIN = b"\x10\x00\x02"
"""Properties: persistent."""
LIMIT = {"x-queue-type": "quorum", "x-delivery-limit": 2147483647}


class Site(Protocol):
    """A broker with egress queues, whichever."""

    async def connect(self) -> Egress: ...
    async def declare(self, queue: str) -> None: ...
    async def publish(self, queue: str, *bodies: bytes, properties: bytes = PLAIN) -> None: ...
    async def delete(self, queue: str) -> None: ...
    async def cut(self) -> None:
        """End every egress connection from the broker's side."""


class MemorySite:
    def __init__(self) -> None:
        self._broker = MemoryEgressBroker(ack_s=0.001)

    async def connect(self) -> Egress:
        return await self._broker.connect(LOCK)

    async def declare(self, queue: str) -> None:
        self._broker.declare(queue)

    async def publish(self, queue: str, *bodies: bytes, properties: bytes = PLAIN) -> None:
        for body in bodies:
            self._broker.publish(queue, b"key", body, properties)

    async def delete(self, queue: str) -> None:
        self._broker.delete(queue)

    async def cut(self) -> None:
        self._broker.break_connections()


class RabbitSite:
    """A virtual host; its egress connections pass through a forwarder that can be cut."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._made: list[Egress] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def connect(self) -> Egress:
        uri = self._vhost.amqp_uri.replace(f":{self._vhost.amqp_port}", f":{self._port}")
        egress = await connect_egress(uri, LOCK, name="contract test")
        self._made.append(egress)
        return egress

    async def declare(self, queue: str) -> None:
        async with self._channel() as channel:
            await channel.declare_queue(queue, durable=True, arguments=dict(LIMIT))

    async def publish(self, queue: str, *bodies: bytes, properties: bytes = PLAIN) -> None:
        async with self._channel() as channel:
            publisher = Publisher(channel)
            await publisher.start()
            messages = [("", queue.encode(), properties, body) for body in bodies]
            outcome = await publisher.wait(publisher.publish_many(messages, mandatory=True))
            assert outcome.all_routed

    async def delete(self, queue: str) -> None:
        async with self._channel() as channel:
            await channel.delete_queue(queue)

    async def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        for egress in self._made:
            await egress.close()
        await self.cut()
        assert self._server is not None
        self._server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(
            self._vhost.host, self._vhost.amqp_port
        )
        self._writers += [writer, far_writer]

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 16):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    @contextlib.asynccontextmanager
    async def _channel(self) -> AsyncIterator[Channel]:
        connection = await connect(self._vhost.amqp_uri, name="contract test, outside")
        try:
            yield await connection.channel()
        finally:
            await connection.close()


@pytest.fixture
async def memory_site() -> Site:
    return MemorySite()


@pytest.fixture
async def rabbit_site(vhost: Vhost) -> AsyncIterator[Site]:
    site = RabbitSite(vhost)
    await site.open()
    yield site
    await site.close()


@pytest.fixture(
    params=["memory_site", pytest.param("rabbit_site", marks=pytest.mark.live)],
    ids=["memory", "rabbit"],
)
def site(request: pytest.FixtureRequest) -> Site:
    made: Site = request.getfixturevalue(request.param)
    return made


class Taker:
    """Takes what one queue hands out."""

    def __init__(self) -> None:
        self.messages: list[EgressMessage] = []
        self.ended: list[str] = []
        self.queue: EgressQueue | None = None

    async def take(self, egress: Egress, queue: str = "q") -> Taker:
        self.queue = await egress.consume(queue, self.messages.extend, self.ended.append)
        return self

    @property
    def bodies(self) -> list[bytes]:
        return [message[5] for message in self.messages]

    def ack(self, tag: int) -> None:
        assert self.queue is not None
        self.queue.ack(tag)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(start, start + count)]


async def test_messages_come_in_order_with_dense_tags(site: Site, eventually: Eventually) -> None:
    await site.declare("q")
    await site.publish("q", *numbered(300))
    taker = await Taker().take(await site.connect())
    await site.publish("q", b"last")
    await eventually(lambda: len(taker.messages) == 301, "all messages")
    assert taker.bodies == [*numbered(300), b"last"]
    assert [message[0] for message in taker.messages] == list(range(1, 302))
    assert not any(message[1] for message in taker.messages)
    assert taker.messages[0][3] in (b"key", b"q")


async def test_no_more_than_two_thousand_are_out_at_once(
    site: Site, eventually: Eventually
) -> None:
    await site.declare("q")
    await site.publish("q", *numbered(2200))
    taker = await Taker().take(await site.connect())
    await eventually(lambda: len(taker.messages) == 2000, "two thousand")
    taker.ack(150)
    await eventually(lambda: len(taker.messages) == 2150, "as many as were acknowledged")
    taker.ack(2150)
    await eventually(lambda: len(taker.messages) == 2200, "the rest")


async def test_what_was_not_acknowledged_comes_again_first_in_order_and_flagged(
    site: Site, eventually: Eventually
) -> None:
    await site.declare("q")
    await site.publish("q", *numbered(10))
    first = await Taker().take(await site.connect())
    await eventually(lambda: len(first.messages) == 10, "all messages")
    first.ack(4)
    # An acknowledgement that is on its way is lost with the connection; see that it arrived.
    await site.publish("q", b"10")
    await eventually(lambda: len(first.messages) == 11, "one more")
    await site.cut()
    await eventually(lambda: len(first.ended) == 1, "the end of the first")
    await site.publish("q", b"11")
    second = await Taker().take(await site.connect())
    await eventually(lambda: second.bodies[-1:] == [b"11"], "all again")
    start = 12 - len(second.messages)
    assert start in (0, 4), "all of an acknowledgement counts, or nothing"
    assert second.bodies == numbered(12)[start:]
    flagged = [message[1] for message in second.messages]
    assert flagged == [True] * (len(flagged) - 1) + [False]


async def test_what_was_left_comes_again_once_and_flagged_though_late_and_in_no_order(
    eventually: Eventually,
) -> None:
    broker = MemoryEgressBroker(returns=Returns.SHUFFLED, chance=random.Random(2))
    broker.declare("q")
    for body in numbered(100):
        broker.publish("q", b"key", body)
    first = await Taker().take(await broker.connect(LOCK))
    await eventually(lambda: len(first.messages) == 100, "all messages")
    broker.break_connections()
    assert broker.depth("q") == 100
    egress = await broker.connect(LOCK)
    assert not egress.returns_in_order
    second = await Taker().take(egress)
    broker.publish("q", b"key", b"fresh")
    await eventually(lambda: b"fresh" in second.bodies, "what is new")
    assert len(second.messages) < 101, "not all of it before what is new"


def with_headers(*fields: bytes) -> bytes:
    table = b"".join(fields)
    return b"\x30\x00" + len(table).to_bytes(4, "big") + table + b"\x02"


INNER = entry(b"z", long_string(b"1")) + entry(b"a", b"L" + bytes(8))
HEADERS = {
    "out of order": with_headers(
        entry(b"origin", long_string(b"paris")), entry(b"number", long_integer(7))
    ),
    "same name twice": with_headers(
        entry(b"z", boolean(True)), entry(b"b", b"b\x01"), entry(b"b", b"b\x02")
    ),
    "nested": with_headers(
        entry(b"z", b"F" + len(INNER).to_bytes(4, "big") + INNER),
        entry(b"a", b"A" + (9).to_bytes(4, "big") + b"L" + bytes(7) + b"\x05"),
    ),
    "every number": with_headers(
        entry(b"n", b"V"),
        *(entry(tag + b"1", tag + b"\x01") for tag in (b"b", b"B")),
        *(entry(tag + b"2", tag + b"\x01\x02") for tag in (b"s", b"u")),
        *(entry(tag + b"4", tag + b"\x01\x02\x03\x04") for tag in (b"I", b"i", b"f")),
        *(entry(tag + b"8", tag + b"\x01" * 8) for tag in (b"l", b"L", b"d", b"T")),
        entry(b"D", b"D\x01" + b"\x01" * 4),
        entry(b"x", b"x" + (2).to_bytes(4, "big") + b"\xff\x00"),
    ),
    "an empty table": with_headers(),
}


@pytest.mark.parametrize("headers", HEADERS)
async def test_what_comes_again_is_the_same_message_to_a_packer(
    site: Site, eventually: Eventually, headers: str
) -> None:
    intake = Intake("orders", IdentityRule(IdentityKind.NONE), ("relay",), bytes)

    def digest_of(message: EgressMessage) -> bytes:
        _, _, _, key, properties, body = message
        cleaned = intake.clean(properties)
        assert cleaned is not None
        return message_digest(key, cleaned.properties, body)

    await site.declare("q")
    await site.publish("q", b"body", properties=HEADERS[headers])
    egress = await site.connect()
    first = await Taker().take(egress)
    await eventually(lambda: len(first.messages) == 1, "the first delivery")
    await egress.close()
    second = await Taker().take(await site.connect())
    await eventually(lambda: len(second.messages) == 1, "the second delivery")
    assert second.messages[0][1]
    assert digest_of(second.messages[0]) == digest_of(first.messages[0])


async def test_the_lock_is_one_connection_s_until_it_ends(
    site: Site, eventually: Eventually
) -> None:
    first, second = await site.connect(), await site.connect()
    await first.take_lock()
    with pytest.raises(PackerLockHeld) as refused:
        await second.take_lock()
    assert refused.value.lock == LOCK
    assert LOCK in str(refused.value)

    async def taken_again() -> bool:
        try:
            await (await site.connect()).take_lock()
        except PackerLockHeld:
            return False  # the broker has not noticed yet
        return True

    await first.close()
    await eventually(taken_again, "the lock of a connection that was closed")
    await site.cut()
    await eventually(taken_again, "the lock of a connection that was cut")


async def test_a_queue_that_is_not_there_is_told_by_name_and_harms_no_other(
    site: Site, eventually: Eventually
) -> None:
    await site.declare("q")
    egress = await site.connect()
    refused = Taker()
    with pytest.raises(QueueMissing) as missing:
        await refused.take(egress, "nowhere")
    assert missing.value.queue == "nowhere"
    taker = await Taker().take(egress)
    await site.publish("q", b"0")
    await eventually(lambda: taker.bodies == [b"0"], "what the other queue has")
    assert not egress.closed.done()
    assert refused.ended == [], "what never began does not end"


async def test_a_queue_that_is_deleted_ends_its_consumption_alone(
    site: Site, eventually: Eventually
) -> None:
    await site.declare("q")
    await site.declare("other")
    egress = await site.connect()
    taker, other = await Taker().take(egress), await Taker().take(egress, "other")
    await site.delete("q")
    await eventually(lambda: len(taker.ended) == 1, "being told")
    assert taker.ended[0]
    await site.publish("other", b"0")
    await eventually(lambda: other.bodies == [b"0"], "what the other queue has")
    assert other.ended == []


async def test_whoever_leaves_in_mid_flow_leaves_the_order_as_it_was(site: Site) -> None:
    await site.declare("q")
    chance = random.Random(1)
    over = asyncio.Event()
    published: list[bytes] = []

    async def publish() -> None:
        while not over.is_set():
            await until(lambda: len(published) < len(settled) + 500 or over.is_set(), "room", 60)
            await asyncio.sleep(0)
            bodies = numbered(chance.randrange(1, 40), len(published))
            published.extend(bodies)
            await site.publish("q", *bodies)

    settled: list[bytes] = []
    publishing = asyncio.create_task(publish())
    for turn in range(12):
        egress = await site.connect()
        taker = await Taker().take(egress)
        wanted = chance.randrange(1, 80)
        await until(lambda taker=taker, wanted=wanted: len(taker.messages) >= wanted, "some", 60)  # type: ignore[misc]
        if turn % 3:
            taker.ack(wanted)
            settled += taker.bodies[:wanted]
        await egress.close()
    over.set()
    await publishing
    last = await Taker().take(await site.connect())
    await until(
        lambda: len(settled) + len(last.bodies) >= len(published),
        lambda: f"{len(settled)} + {len(last.bodies)} of {len(published)}",
        60,
    )
    assert settled + last.bodies == published


async def test_close_is_told_and_then_nothing_works(site: Site) -> None:
    await site.declare("q")
    egress = await site.connect()
    taker = await Taker().take(egress)
    await egress.close()
    await egress.close()
    assert await egress.closed
    with pytest.raises(EgressClosed):
        taker.ack(1)
    with pytest.raises(EgressClosed):
        await egress.take_lock()
    with pytest.raises(EgressClosed):
        await Taker().take(egress)


async def test_a_pause_is_kept_and_ends(site: Site, eventually: Eventually) -> None:
    await site.declare("q")
    egress = await site.connect()
    taker = await Taker().take(egress)
    egress.pause()
    await site.publish("q", *numbered(3))
    # Others' messages pass meanwhile: time enough for these to have come.
    beside = await site.connect()
    await site.declare("beside")
    await site.publish("beside", b"x")
    other = await Taker().take(beside, "beside")
    await eventually(lambda: other.bodies == [b"x"], "another connection's")
    assert taker.messages == []
    egress.resume()
    await eventually(lambda: taker.bodies == numbered(3), "what waited")


async def test_hearing_from_the_broker_shows(site: Site, eventually: Eventually) -> None:
    await site.declare("q")
    egress = await site.connect()
    heard = egress.bytes_heard
    taker = await Taker().take(egress)
    await site.publish("q", b"x" * 1000)
    await eventually(lambda: taker.messages, "the message")
    assert egress.bytes_heard >= heard + 1000
    assert not egress.blocked
