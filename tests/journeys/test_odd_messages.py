"""Messages that few people send: at the other end they are what was sent, whatever they are."""

from __future__ import annotations

import asyncio
import random
import signal
import struct
import time
import uuid
from dataclasses import replace

import pytest

from relay.batch_format import decode_entries
from relay.bulk_amqp import ChannelClosed
from relay.bulk_amqp.content_header import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    MESSAGE_ID,
    NONE_PRESENT,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
    rewrite,
)
from relay.bulk_amqp.field_table import entry, long_integer, long_string
from tests.journeys.application import Application, Letter, Received, at, counters_say, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import most_memory_mb
from tests.journeys.traffic import until

PAIR = ("paris", "tokyo")


def sized(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack(">I", len(content)) + content


def fields(**values: bytes) -> list[bytes]:
    return [entry(name.encode(), value) for name, value in values.items()]


def table(**values: bytes) -> bytes:
    return b"".join(fields(**values))


ENTRIES = fields(
    array=sized(b"A", long_integer(1) + long_string(b"two") + sized(b"A", b"") + b"V"),
    binary=sized(b"x", bytes(range(256))),
    byte=b"b" + struct.pack(">b", -3),
    decimal=b"D" + struct.pack(">BI", 2, 31415),
    double=b"d" + struct.pack(">d", -2.5e300),
    empty=long_string(b""),
    false=b"t\x00",
    float=b"f" + struct.pack(">f", 1.5),
    integer=b"I" + struct.pack(">i", -70_000),
    long=long_integer(-(2**63)),
    nothing=b"V",
    short=b"s" + struct.pack(">h", -300),
    text=long_string("n\u00fa\u00f1ez \u6771\u4eac".encode()),
    timestamp=b"T" + struct.pack(">Q", 1_700_000_000),
    true=b"t\x01",
    unsigned_byte=b"B\xff",
    unsigned_integer=b"i" + struct.pack(">I", 2**32 - 1),
    unsigned_short=b"u" + struct.pack(">H", 2**16 - 1),
)
"""Every type of value that RabbitMQ takes, sorted by name: 3.10's quorum queues sort the outermost
table when they add their count of deliveries."""
EVERY_TYPE = b"".join(ENTRIES)

NESTED = entry(
    b"zz-nested",
    sized(b"F", table(z=sized(b"F", EVERY_TYPE), a=sized(b"A", sized(b"F", table(b=b"V"))))),
)
EVERY_PROPERTY: dict[int, bytes | int | None] = {
    CONTENT_TYPE: b"application/x-odd; charset=utf-8",
    CONTENT_ENCODING: b"gzip",
    DELIVERY_MODE: 1,
    PRIORITY: 7,
    CORRELATION_ID: b"c" * 255,
    REPLY_TO: b"reply.queue",
    MESSAGE_ID: b"not a uuid \xff\xfe",
    TIMESTAMP: 2**63 - 1,
    TYPE: b"",
    APP_ID: b"odd app",
}


def new_id() -> str:
    return str(uuid.uuid4())


async def last(sender: Application, exchange: str = "orders") -> None:
    await sender.post(exchange, letter(b"last", new_id()))


async def test_properties_and_nested_headers_arrive_byte_for_byte(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*PAIR, topology="complete")
    mesh.start()
    await mesh.running()
    async with at(mesh, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("orders")
        whole = rewrite(NONE_PRESENT, EVERY_PROPERTY, EVERY_TYPE + NESTED)
        # Property by property, too: each combination of neighbours is cut in its own way.
        singles = [rewrite(NONE_PRESENT, {k: v}) for k, v in EVERY_PROPERTY.items()]
        sent = [
            Letter(b"whole", properties=whole),
            Letter(b"without headers", properties=rewrite(NONE_PRESENT, EVERY_PROPERTY)),
            Letter(b"nothing but headers", properties=rewrite(NONE_PRESENT, {}, EVERY_TYPE)),
            Letter(b"nothing at all"),
            Letter(b"nested", properties=rewrite(NONE_PRESENT, {TYPE: b"t"}, NESTED)),
            *[Letter(b"single", properties=one) for one in singles],
        ]
        await paris.post("orders", *sent)
        got = await box.has(len(sent))
        for one, arrived in zip(sent, got, strict=True):
            assert (arrived.body, arrived.key) == (one.body, one.key)
            assert arrived.as_sent == one.properties, one.body
            assert arrived.path == PAIR
            assert arrived.text(USER_ID) == f"isthmus.{mesh.mesh.name}.relay.tokyo"
            assert arrived.text(CLUSTER_ID) == "paris"
            assert not arrived.flagged
        # In any other order, 3.10 sorts them; the values stay.
        backwards = rewrite(NONE_PRESENT, {}, b"".join(reversed(ENTRIES)))
        await paris.post("orders", Letter(b"backwards", properties=backwards))
        last = (await box.has(len(sent) + 1))[-1]
        assert last.own_headers == Received("", b"", backwards, b"").own_headers


async def test_an_empty_message_and_one_of_15_mib_arrive_whole(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*PAIR, topology="complete")
    mesh.start_each()
    await mesh.running()
    big = random.Random(15).randbytes(15 * 2**20)
    async with at(mesh, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("orders")
        sent = [letter(b""), Letter(), *[letter(big)] * 3, letter(b"behind it"), letter(b"")]
        await paris.post("orders", *sent)
        got = await box.has(len(sent))
        assert [m.body for m in got] == [one.body for one in sent]
        await counters_say(mesh, "tokyo", delivered=7, redelivered=0, quarantined=0)
    assert max(most_memory_mb(mesh.processes[site].pid) for site in PAIR) < 150


async def test_each_of_10000_routing_keys_goes_its_own_way(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*PAIR, topology="complete")
    mesh.start()
    await mesh.running()
    chance = random.Random(10)
    keys = [
        f"order.{n}.{chance.randbytes(chance.randrange(90)).hex()}".encode() for n in range(9_990)
    ]
    keys += [
        b"",
        b".",
        b"..",
        b"#",
        b"*",
        b" ",
        b"k" * 255,
        "\u6771\u4eac".encode(),
        b"\x00\xff",
        b"order.",
    ]
    async with at(mesh, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("orders")
        some = await tokyo.listen("orders", "order.7.*", queue="inbox.some")
        for begin in range(0, len(keys), 1000):
            await paris.post("orders", *(letter(k, key=k) for k in keys[begin : begin + 1000]))
        got = await box.has(len(keys))
        assert [m.key for m in got] == keys
        assert [m.body for m in got] == keys
        await some.has(1)


async def test_what_publishers_forge_is_neither_believed_nor_passed_on(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "tokyo", "sydney", topology="ring")
    mesh.start()
    await mesh.running()
    name = mesh.mesh.name
    forged = {
        b"x-mesh-path": long_string(b"tokyo,sydney"),
        b"x-mesh-exchange": long_string(b"orders"),
        b"x-mesh-redelivered": b"t\x01",
        b"x-mesh-user-id": long_string(f"isthmus.{name}.relay.tokyo".encode()),
        b"x-mesh-cluster-id": long_string(b"tokyo"),
        b"x-mesh-batch": long_string(b"0"),
        b"x-mesh-dead-reason": long_string(b"none"),
        b"x-mesh-": sized(b"F", NESTED),
        b"x-mesh-" + b"z" * 248: b"V",
    }
    async with at(mesh, "paris", "tokyo", "sydney") as applications:
        paris = applications[0]
        boxes = [await one.listen("orders") for one in applications[1:]]
        tables = [entry(k, v) for k, v in forged.items()]
        tables += [b"".join(tables), entry(b"x-mesh-path", long_string(b"a")) * 3 + tables[0]]
        plain = entry(b"X-Mesh-Path", long_string(b"theirs")) + entry(b"x-meshed", b"t\x01")
        sent = [letter(b"forged", headers=plain + one) for one in tables]
        app = f"isthmus.{name}.app.paris".encode()
        sent += [
            Letter(b"of tokyo", properties=rewrite(NONE_PRESENT, {CLUSTER_ID: b"tokyo"}, one))
            for one in tables
        ]
        sent += [
            Letter(b"its own", properties=rewrite(NONE_PRESENT, {USER_ID: app}, one))
            for one in tables
        ]
        await paris.post("orders", *sent)
        for box, site in zip(boxes, ("tokyo", "sydney"), strict=True):
            got = await box.has(len(sent))
            assert [m.body for m in got] == [one.body for one in sent]
            for m in got:
                assert m.path == ("paris", "tokyo", "sydney")[: 2 if site == "tokyo" else 3]
                assert not m.flagged
                assert m.text(CLUSTER_ID) == "paris"
                assert m.text(USER_ID) == f"isthmus.{name}.relay.{site}"
                assert m.said(b"x-mesh-cluster-id") == ("tokyo" if m.body == b"of tokyo" else None)
                assert m.said(b"x-mesh-user-id") == (app.decode() if m.body == b"its own" else None)
                mesh_headers = set(m.mesh_headers) - {b"x-mesh-cluster-id", b"x-mesh-user-id"}
                assert mesh_headers == {b"x-mesh-path", b"x-mesh-exchange"}
                if m.body == b"forged":
                    assert set(m.own_headers) == {b"X-Mesh-Path", b"x-meshed"}
        # Who says that it is the relay does not get past its own broker.
        relay = f"isthmus.{name}.relay.paris".encode()
        posing = Letter(b"posing", properties=rewrite(NONE_PRESENT, {USER_ID: relay}, tables[-1]))
        await paris.post("orders", posing)
        assert isinstance(paris.closed_because, ChannelClosed)
        await counters_say(mesh, "sydney", delivered=len(sent), duplicates=0, quarantined=0)


@pytest.mark.parametrize("message_id", ["", "c0ffee00-0000-4000-8000-000000000002"])
async def test_a_dead_letter_that_goes_into_a_mesh_exchange_travels_and_does_not_go_round(
    live_mesh: MeshFactory, message_id: str
) -> None:
    mesh = await live_mesh(
        *PAIR, topology="complete", exchanges=[{"name": "orders"}, {"name": "orders.dead"}]
    )
    mesh.start()
    await mesh.running()
    async with at(mesh, *PAIR) as (paris, tokyo):
        # At paris whatever is rejected goes into a mesh exchange, which is collected at tokyo.
        await paris.declare("work", "orders", x_dead_letter_exchange="orders.dead")
        await paris.reject_all("work")
        collected = await tokyo.listen("orders.dead")
        at_paris = await paris.listen("orders.dead")
        await tokyo.post("orders", letter(b"from tokyo", message_id))
        await paris.post("orders", letter(b"from paris", new_id() if message_id else ""))
        got = await collected.has(2)
        assert {m.body for m in got} == {b"from tokyo", b"from paris"}
        for m in got:
            assert m.header(b"x-death") is not None
            assert m.path == PAIR
        await asyncio.gather(last(paris, "orders.dead"), last(tokyo, "orders.dead"))
        await at_paris.has(4)
        await collected.has(4)
        sites = (await mesh.status())["sites"]
        assert {site: sites[site]["packed"] for site in PAIR} == {"paris": 4, "tokyo": 2}


FRAME = 131_072
"""Bytes, RabbitMQ's default: a message's properties must fit into one frame."""


async def test_messages_whose_headers_fill_a_frame_stop_nobody(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*PAIR, topology="complete")
    mesh.start_each()
    await mesh.running()
    empty = len(letter(b"", headers=entry(b"big", long_string(b""))).properties)

    def filling(spare: int) -> Letter:
        """One whose header frame has so many bytes left."""
        big = long_string(b"x" * (FRAME - 8 - 12 - empty - spare))
        return letter(f"{spare} left".encode(), headers=entry(b"big", big))

    async with at(mesh, *PAIR) as (paris, tokyo), at(mesh, "tokyo", as_node=True) as (operator,):
        box = await tokyo.listen("orders")
        full = [filling(0), filling(10)]
        # What the mesh adds has no room in the first two, and has in the third.
        await paris.post("orders", letter(b"before"), *full, filling(300), letter(b"behind"))
        got = await box.has(3)
        assert [m.body for m in got] == [b"before", b"300 left", b"behind"]
        assert got[1].as_sent == filling(300).properties
        await counters_say(mesh, "tokyo", delivered=3, quarantined=2, redelivered=0)
        kept = await (await operator.consume(f"isthmus.{mesh.mesh.name}.quarantine")).has(2)
        for one, record in zip(full, kept, strict=True):
            assert "properties beyond a frame" in (record.said(b"x-mesh-quarantine-reason") or "")
            (inside,) = decode_entries(record.body)
            assert (inside.properties, inside.body) == (one.properties, one.body)

        # Handed out again, they have grown by the queue's count of deliveries: 26 bytes too many.
        mesh.kill("paris", signal.SIGSTOP)
        await paris.post("orders", *full, letter(b"last"))
        mesh.kill("paris")
        mesh.start(["paris"])
        await box.has(4)
        await counters_say(mesh, "tokyo", delivered=4, quarantined=4, redelivered=0)


async def test_an_expiration_is_counted_from_its_publishing(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*PAIR, topology="complete")
    mesh.start(["paris"])
    await mesh.running(["paris"])

    def expiring(body: bytes, ms: int) -> Letter:
        one = letter(body, new_id())
        return replace(one, properties=rewrite(one.properties, {EXPIRATION: str(ms).encode()}))

    async with at(mesh, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("orders")
        await paris.post("orders", expiring(b"of seconds", 5000), expiring(b"of a day", 86_400_000))
        await last(paris)
        posted = time.monotonic()
        await counters_say(mesh, "paris", packed=3)
        await until(lambda: time.monotonic() > posted + 5, "time passes", 10)
        mesh.start(["tokyo"])
        got = await box.has(2)
        assert [m.body for m in got] == [b"of a day", b"last"]
        left = int(got[0].text(EXPIRATION) or "")
        assert 86_400_000 - 180_000 < left <= 86_400_000 - 5000
        assert got[1].text(EXPIRATION) is None
        await counters_say(mesh, "tokyo", expired=1, delivered=2, quarantined=0)
