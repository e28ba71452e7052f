"""Messages that few people send: at the other end they are what was sent, whatever they are."""

from __future__ import annotations

import random
import signal
import struct
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from isthmus.brokers.config import BrokerUser
from relay.batches.format import decode_entries
from relay.bulk_amqp import ChannelClosed
from relay.bulk_amqp.content_header import CLUSTER_ID, EXPIRATION, USER_ID, rewrite
from relay.bulk_amqp.field_table import entry, long_integer, long_string
from tests.journeys.application import Application, Letter, Received, at, counters_say, letter
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.memory_watch import most_memory_mb
from tests.journeys.shared_mesh import SHARED, counted, running_mesh
from tests.live_brokers import BrokerPool
from tests.message_properties import properties
from tests.waiting import until

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
EVERY_PROPERTY: dict[str, bytes | int] = {
    "content_type": b"application/x-odd; charset=utf-8",
    "content_encoding": b"gzip",
    "delivery_mode": 1,
    "priority": 7,
    "correlation_id": b"c" * 255,
    "reply_to": b"reply.queue",
    "message_id": b"not a uuid \xff\xfe",
    "timestamp": 2**63 - 1,
    "type": b"",
    "app_id": b"odd app",
}


RING = ("paris", "tokyo", "sydney")
EXCHANGES = (
    *("properties", "big", "keys", "forged", "work", "dead", "headers", "expiring"),
    *("bound", "bound too"),
)
pytestmark = SHARED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ring(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    exchanges = [{"name": name} for name in EXCHANGES] + [{"name": "split", "mode": "split"}]
    folder = tmp_path_factory.mktemp("odd")
    async with running_mesh(
        broker_pool, folder, *RING, topology="ring", exchanges=exchanges
    ) as mesh:
        yield mesh


def new_id() -> str:
    return str(uuid.uuid4())


async def last(sender: Application, exchange: str) -> None:
    await sender.post(exchange, letter(b"last", new_id()))


async def test_properties_and_nested_headers_arrive_byte_for_byte(ring: LiveMesh) -> None:
    async with at(ring, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("properties")
        whole = properties(EVERY_TYPE + NESTED, **EVERY_PROPERTY)
        # Property by property, too: each combination of neighbours is cut in its own way.
        singles = [properties(**{name: value}) for name, value in EVERY_PROPERTY.items()]
        sent = [
            Letter(b"whole", properties=whole),
            Letter(b"without headers", properties=properties(**EVERY_PROPERTY)),
            Letter(b"nothing but headers", properties=properties(EVERY_TYPE)),
            Letter(b"nothing at all"),
            Letter(b"nested", properties=properties(NESTED, type=b"t")),
            *[Letter(b"single", properties=one) for one in singles],
        ]
        await paris.post("properties", *sent)
        got = await box.has(len(sent))
        for one, arrived in zip(sent, got, strict=True):
            assert (arrived.body, arrived.key) == (one.body, one.key)
            assert arrived.as_sent == one.properties, one.body
            assert arrived.path == PAIR
            assert arrived.text(USER_ID) == f"isthmus.{ring.mesh.name}.relay.tokyo"
            assert arrived.text(CLUSTER_ID) == "paris"
            assert not arrived.flagged
        # In any other order, 3.10 sorts them; the values stay.
        backwards = properties(b"".join(reversed(ENTRIES)))
        await paris.post("properties", Letter(b"backwards", properties=backwards))
        last = (await box.has(len(sent) + 1))[-1]
        assert last.own_headers == Received("", b"", backwards, b"").own_headers


async def test_an_empty_message_and_one_of_15_mib_arrive_whole(ring: LiveMesh) -> None:
    big = random.Random(15).randbytes(15 * 2**20)
    async with at(ring, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("big")
        sent = [letter(b""), Letter(), *[letter(big)] * 3, letter(b"behind it"), letter(b"")]
        async with counted(ring, "tokyo", delivered=7, redelivered=0, quarantined=0):
            await paris.post("big", *sent)
            got = await box.has(len(sent))
        assert [m.body for m in got] == [one.body for one in sent]
    # Some 95 without such bodies, and mostly 130 to 140 with them. A copy more of each of the three
    # would be 180.
    assert max(most_memory_mb(ring.processes[site].pid) for site in PAIR) < 165


async def test_each_of_10000_routing_keys_goes_its_own_way(ring: LiveMesh) -> None:
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
    async with at(ring, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("keys")
        some = await tokyo.listen("keys", "order.7.*", queue="inbox.some")
        for begin in range(0, len(keys), 1000):
            await paris.post("keys", *(letter(k, key=k) for k in keys[begin : begin + 1000]))
        got = await box.has(len(keys))
        assert [m.key for m in got] == keys
        assert [m.body for m in got] == keys
        await some.has(1)


async def test_what_publishers_forge_is_neither_believed_nor_passed_on(
    ring: LiveMesh,
) -> None:
    name = ring.mesh.name
    forged = {
        b"x-mesh-path": long_string(b"tokyo,sydney"),
        b"x-mesh-exchange": long_string(b"forged"),
        b"x-mesh-redelivered": b"t\x01",
        b"x-mesh-user-id": long_string(f"isthmus.{name}.relay.tokyo".encode()),
        b"x-mesh-cluster-id": long_string(b"tokyo"),
        b"x-mesh-batch": long_string(b"0"),
        b"x-mesh-dead-reason": long_string(b"none"),
        b"x-mesh-": sized(b"F", NESTED),
        b"x-mesh-" + b"z" * 248: b"V",
    }
    async with at(ring, "paris", "tokyo", "sydney") as applications:
        paris = applications[0]
        boxes = [await one.listen("forged") for one in applications[1:]]
        tables = [entry(k, v) for k, v in forged.items()]
        tables += [b"".join(tables), entry(b"x-mesh-path", long_string(b"a")) * 3 + tables[0]]
        plain = entry(b"X-Mesh-Path", long_string(b"theirs")) + entry(b"x-meshed", b"t\x01")
        sent = [letter(b"forged", headers=plain + one) for one in tables]
        app = f"isthmus.{name}.app.paris".encode()
        sent += [
            Letter(b"of tokyo", properties=properties(one, cluster_id=b"tokyo")) for one in tables
        ]
        sent += [Letter(b"its own", properties=properties(one, user_id=app)) for one in tables]
        async with counted(ring, "sydney", delivered=len(sent), duplicates=0, quarantined=0):
            await paris.post("forged", *sent)
            await boxes[-1].has(len(sent))
        for box, site in zip(boxes, ("tokyo", "sydney"), strict=True):
            got = await box.has(len(sent))
            assert [m.body for m in got] == [one.body for one in sent]
            for m in got:
                assert m.path == ("paris", "tokyo", "sydney")[: 2 if site == "tokyo" else 3]
                assert not m.flagged
                assert m.text(CLUSTER_ID) == "paris"
                assert m.text(USER_ID) == f"isthmus.{name}.relay.{site}"
                assert m.text_header(b"x-mesh-cluster-id") == (
                    "tokyo" if m.body == b"of tokyo" else None
                )
                assert m.text_header(b"x-mesh-user-id") == (
                    app.decode() if m.body == b"its own" else None
                )
                mesh_headers = set(m.mesh_headers) - {b"x-mesh-cluster-id", b"x-mesh-user-id"}
                assert mesh_headers == {b"x-mesh-path", b"x-mesh-exchange"}
                if m.body == b"forged":
                    assert set(m.own_headers) == {b"X-Mesh-Path", b"x-meshed"}
        # Who says that it is the relay does not get past its own broker.
        relay = f"isthmus.{name}.relay.paris".encode()
        posing = Letter(b"posing", properties=properties(tables[-1], user_id=relay))
        await paris.post("forged", posing)
        assert isinstance(paris.closed_because, ChannelClosed)


async def test_whoever_may_pass_for_the_relay_suppresses_nothing_in_split_mode(
    ring: LiveMesh,
) -> None:
    name = ring.mesh.name
    poser = BrokerUser(f"{name}.poser", "password", tags=("impersonator",))
    await ring.vhosts["paris"].add_user(poser)
    async with at(ring, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("split.in")
        paris.uri = ring.vhosts["paris"].uri_as(poser)
        relay = f"isthmus.{name}.relay.paris".encode()
        mark = entry(b"x-mesh-exchange", long_string(b"split"))
        posing = Letter(b"posing", properties=properties(mark, user_id=relay))
        await paris.post("split", posing)
        (got,) = await box.has(1)
        assert got.text_header(b"x-mesh-user-id") == relay.decode()
        assert got.path == PAIR


async def test_a_dead_letter_that_goes_into_a_mesh_exchange_travels_and_does_not_go_round(
    ring: LiveMesh,
) -> None:
    async with at(ring, *PAIR) as (paris, tokyo):
        # At paris whatever is rejected goes into a mesh exchange, which is collected at tokyo.
        await paris.declare("rejecting", "work", x_dead_letter_exchange="dead")
        await paris.reject_all("rejecting")
        collected = await tokyo.listen("dead")
        at_paris = await paris.listen("dead")
        async with (
            counted(ring, "paris", packed=7),
            counted(ring, "tokyo", packed=3),
            counted(ring, "sydney", packed=0),
        ):
            # Without an identity too: then no barrier would end a message's going round.
            await tokyo.post("work", letter(b"from tokyo"))
            await paris.post("work", letter(b"from paris"), letter(b"from paris, too", new_id()))
            got = await collected.has(3)
            assert {m.body for m in got} == {b"from tokyo", b"from paris", b"from paris, too"}
            for m in got:
                assert m.header(b"x-death") is not None
                assert m.path == PAIR
            await last(paris, "dead")
            await last(tokyo, "work")
            await at_paris.has(5)
            # That one was rejected at paris as well; now all have come as far as they come.
            await last(tokyo, "dead")
            await collected.has(6)
            await at_paris.has(6)


FRAME = 131_072
"""Bytes, RabbitMQ's default: a message's properties must fit into one frame."""


async def test_messages_whose_headers_fill_a_frame_stop_nobody(ring: LiveMesh) -> None:
    empty = len(letter(b"", headers=entry(b"big", long_string(b""))).properties)

    def filling(spare: int) -> Letter:
        """One whose header frame has so many bytes left."""
        big = long_string(b"x" * (FRAME - 8 - 12 - empty - spare))
        return letter(f"{spare} left".encode(), headers=entry(b"big", big))

    async with (
        at(ring, *PAIR) as (paris, tokyo),
        at(ring, "tokyo", as_operator=True) as (operator,),
    ):
        box = await tokyo.listen("headers")
        full = [filling(0), filling(10)]
        # What the mesh adds has no room in the first two, and has in the third.
        async with counted(ring, "tokyo", delivered=3, quarantined=2, redelivered=0):
            await paris.post("headers", letter(b"before"), *full, filling(300), letter(b"behind"))
            got = await box.has(3)
        assert [m.body for m in got] == [b"before", b"300 left", b"behind"]
        assert got[1].as_sent == filling(300).properties
        kept = await (await operator.consume(f"isthmus.{ring.mesh.name}.quarantine")).has(2)
        for one, record in zip(full, kept, strict=True):
            assert "properties beyond a frame" in (
                record.text_header(b"x-mesh-quarantine-reason") or ""
            )
            (inside,) = decode_entries(record.body)
            assert (inside.properties, inside.body) == (one.properties, one.body)

        # Handed out again, they have grown by the queue's count of deliveries: 26 bytes too many.
        ring.kill("paris", signal.SIGSTOP)
        await paris.post("headers", *full, letter(b"last"))
        async with counted(ring, "tokyo", delivered=1, quarantined=2, redelivered=0):
            ring.kill("paris")
            ring.start(["paris"])
            await box.has(4)


async def test_an_expiration_is_counted_from_its_publishing(ring: LiveMesh) -> None:
    def expiring(body: bytes, ms: int) -> Letter:
        one = letter(body, new_id())
        return replace(one, properties=rewrite(one.properties, {EXPIRATION: str(ms).encode()}))

    async with at(ring, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("expiring")
        assert ring.stop("tokyo") == 0
        async with counted(ring, "paris", packed=3):
            letters = expiring(b"of seconds", 5000), expiring(b"of a day", 86_400_000)
            await paris.post("expiring", *letters)
            posted = time.monotonic()
            await last(paris, "expiring")
        await until(lambda: time.monotonic() > posted + 5, "time passes", 10)
        ring.start(["tokyo"])
        got = await box.has(2)
        assert [m.body for m in got] == [b"of a day", b"last"]
        left = int(got[0].text(EXPIRATION) or "")
        assert 86_400_000 - 180_000 < left <= 86_400_000 - 5000
        assert got[1].text(EXPIRATION) is None
        await counters_say(ring, "tokyo", expired=1, delivered=2, quarantined=0)


async def test_what_comes_by_bindings_between_exchanges_travels_in_each_of_the_meshs(
    ring: LiveMesh,
) -> None:
    # Each of their egress queues is told the exchange that was published to, which is no mesh's.
    async with at(ring, *PAIR) as (paris, tokyo):
        await paris.lead("raw", "bound", "bound too")
        await paris.lead("bound", "bound too")
        one, other = await tokyo.listen("bound"), await tokyo.listen("bound too")
        async with counted(ring, "paris", packed=7):
            await paris.post("raw", letter(b"a"), letter(b"b", new_id()))
            await paris.post("bound", letter(b"c"))
            await last(paris, "bound too")
            assert [m.body for m in await one.has(3)] == [b"a", b"b", b"c"]
            assert [m.body for m in await other.has(4)] == [b"a", b"b", b"c", b"last"]
        assert all(m.path == PAIR and not m.flagged for m in one.got + other.got)


@pytest.mark.long  # it waits for messages to expire
async def test_what_expires_in_egress_goes_nowhere_and_holds_up_nothing(ring: LiveMesh) -> None:
    async with at(ring, *PAIR) as (paris, tokyo):
        box = await tokyo.listen("expiring", queue="inbox.while away")
        assert ring.stop("paris") == 0
        soon = letter(b"soon over", new_id())
        soon = replace(soon, properties=rewrite(soon.properties, {EXPIRATION: b"300"}))
        await paris.post("expiring", soon, letter(b"stays", new_id()))
        posted = time.monotonic()
        await until(lambda: time.monotonic() > posted + 1, "time passes", 10)
        ring.start(["paris"])
        assert [m.body for m in await box.has(1)] == [b"stays"]
        await counters_say(ring, "paris", packed=1)
