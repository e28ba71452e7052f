"""What makes two messages the same: each once at every site where it was not published.

A letter that says "last" stands behind all others of its flow: once it is there, whatever was to
come before it has come, and whatever was to be held back is.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from relay.bulk_amqp.content_header import CONTENT_ENCODING, CONTENT_TYPE, TIMESTAMP, rewrite
from relay.bulk_amqp.field_table import entry, long_integer
from tests.journeys.application import Application, Letter, at, letter
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, counted, running_mesh
from tests.live_brokers import BrokerPool

RING = ("paris", "tokyo", "sydney")
pytestmark = [SHARED, pytest.mark.any_release]


def new_id() -> str:
    return str(uuid.uuid4())


async def last_from(*senders: Application, exchange: str) -> None:
    for sender in senders:
        await sender.post(exchange, letter(b"last", new_id()))


async def test_one_uuid_arrives_once_wherever_it_was_not_published(ring: LiveMesh) -> None:
    async with at(ring, *RING) as (paris, tokyo, sydney):
        at_paris, at_tokyo, at_sydney = [
            await one.listen("orders") for one in (paris, tokyo, sydney)
        ]
        async with counted(ring, "sydney", duplicates=3, identity_conflicts=0, redelivered=0):
            here = letter(b"twice at one site", new_id())
            await paris.post("orders", here, here)
            failed_over = letter(b"failed over to another", new_id())
            await paris.post("orders", failed_over)
            await at_sydney.has(2)
            await tokyo.post("orders", failed_over)
            both = letter(b"at two at once", new_id())
            await asyncio.gather(paris.post("orders", both), tokyo.post("orders", both))
            await last_from(paris, tokyo, exchange="orders")
            assert Counter(m.body for m in await at_sydney.has(5)) == {
                b"twice at one site": 1,
                b"failed over to another": 1,
                b"at two at once": 1,
                b"last": 2,
            }
        # Where one was published, its broker's own copies; what another site had earlier besides.
        got = Counter(m.body for m in await at_paris.has(6))
        assert got[b"twice at one site"] == 2
        assert got[b"failed over to another"] == 1
        # A node that was killed and one that was stopped know them all the same.
        ring.kill("sydney")
        ring.start(["sydney"])
        assert ring.stop("paris") == 0
        ring.start(["paris"])
        await ring.running()
        await paris.post("orders", here, failed_over, both)
        await tokyo.post("orders", here, failed_over, both)
        await last_from(paris, tokyo, exchange="orders")
        assert [m.body for m in (await at_sydney.has(7))[5:]] == [b"last"] * 2
        assert not any(m.flagged for m in at_sydney.got + at_tokyo.got + at_paris.got)


async def test_hundreds_of_uuids_at_two_sites_at_once_arrive_once_each(ring: LiveMesh) -> None:
    async with at(ring, *RING) as (paris, tokyo, sydney):
        box = await sydney.listen("many")
        letters = [letter(f"{n}".encode(), new_id()) for n in range(1000)]
        elsewhere = letters[500:] + letters[:500]

        async def post(sender: Application, these: list[Letter]) -> None:
            for begin in range(0, len(these), 50):
                await sender.post("many", *these[begin : begin + 50])
            await last_from(sender, exchange="many")

        async with counted(ring, "sydney", delivered=1002, duplicates=1000, redelivered=0):
            await asyncio.gather(post(paris, letters), post(tokyo, elsewhere))
            got = await box.has(1002)
        assert Counter(m.body for m in got) == {b"last": 2, **{m.body: 1 for m in letters}}
        for site, own in (("paris", letters), ("tokyo", elsewhere)):
            firsts = [m.body for m in got if m.path[0] == site and m.body != b"last"]
            assert firsts == [m.body for m in own if m.body in set(firsts)], "the order of each"


async def test_one_identity_with_other_content_arrives_and_is_counted(ring: LiveMesh) -> None:
    async with at(ring, *RING) as (paris, tokyo, sydney):
        box = await sydney.listen("prices")
        same = new_id()
        async with (
            counted(ring, "sydney", identity_conflicts=1, duplicates=2, delivered=4),
            counted(ring, "tokyo", identity_conflicts=1, duplicates=0),
        ):
            await paris.post("prices", letter(b"ten", same), letter(b"twelve", same))
            await box.has(2)
            # The second content is known by now as well, from wherever it comes.
            await tokyo.post("prices", letter(b"twelve", same), letter(b"ten", same))
            await last_from(paris, tokyo, exchange="prices")
            got = await box.has(4)
        assert sorted(m.body for m in got) == [b"last", b"last", b"ten", b"twelve"]


def changed(one: Letter, **properties: bytes | int) -> Letter:
    names = {"content_type": CONTENT_TYPE, "encoding": CONTENT_ENCODING, "timestamp": TIMESTAMP}
    changes: dict[int, bytes | int | None] = {names[k]: v for k, v in properties.items()}
    return Letter(one.body, one.key, rewrite(one.properties, changes))


SAME = "c0ffee00-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Kind:
    """An identity rule; two letters that it takes for one; and some that it tells apart."""

    rule: str
    one: tuple[Letter, Letter] | None
    apart: tuple[Letter, ...]
    conflicts: int = 0


KINDS = {
    "by_uuid": Kind(
        "uuid",
        (letter(b"a", SAME), letter(b"a", SAME.upper())),
        # No UUID, no identity: each its own, the like of it too.
        (letter(b"b", "order 7"), letter(b"b", "order 7"), letter(b"c"), letter(b"c")),
    ),
    "by_message_id": Kind(
        "message_id",
        (letter(b"a", "order 7"), letter(b"a", "order 7")),
        (letter(b"b", "order 8"), letter(b"b", "order 9"), letter(b"c"), letter(b"c")),
    ),
    "by_header": Kind(
        "header:order-number",
        (letter(b"a", SAME, order_number=b"7"), letter(b"a", new_id(), order_number=b"7")),
        (
            letter(b"b", SAME, order_number=b"8"),
            letter(b"b", SAME, order_number=b"9"),
            letter(b"c", SAME),
            letter(b"c", SAME),
            letter(b"d", headers=entry(b"order-number", long_integer(7))),
        ),
    ),
    "by_content": Kind(
        "content",
        (letter(b"a", new_id()), changed(letter(b"a", new_id()), timestamp=1_700_000_000)),
        (
            letter(b"a", SAME, key=b"order.old"),
            changed(letter(b"a", SAME), content_type=b"text/plain"),
            changed(letter(b"a", SAME), encoding=b"text/plain"),
            letter(b"b", SAME),
        ),
    ),
    "by_nothing": Kind("none", None, (letter(b"a", SAME), letter(b"a", SAME), letter(b"", SAME))),
}


async def test_each_kind_of_identity_takes_its_own_for_one(ring: LiveMesh) -> None:
    async with (
        at(ring, "paris", "tokyo") as (paris, tokyo),
        counted(ring, "tokyo", duplicates=4, identity_conflicts=0),
    ):
        boxes = {name: await tokyo.listen(name) for name in KINDS}
        for name, kind in KINDS.items():
            await paris.post(name, *(kind.one or ()), *kind.apart)
        for name, kind in KINDS.items():
            await last_from(paris, exchange=name)
            wanted = [*(one.body for one in (kind.one or ())[:1]), *(a.body for a in kind.apart)]
            got = await boxes[name].has(len(wanted) + 1)
            assert [m.body for m in got] == [*wanted, b"last"], name
            if kind.one:
                # Of two that are one, the first.
                assert got[0].as_sent == kind.one[0].properties


SCOPES = {
    "of_the_mesh": ({"scope": "mesh"}, 1),
    "of_the_origin": ({"scope": "origin"}, 2),
    "another": ({}, 1),
}


async def test_within_its_scope_an_identity_is_one(ring: LiveMesh) -> None:
    async with at(ring, *RING) as (paris, tokyo, sydney):
        boxes = {name: await sydney.listen(name) for name in SCOPES}
        one = letter(b"one", new_id())
        for name in SCOPES:
            for sender in (paris, tokyo):
                await sender.post(name, one, one)
                await last_from(sender, exchange=name)
        for name, (_, count) in SCOPES.items():
            got = Counter(m.body for m in await boxes[name].has(2 + count))
            assert got == {b"one": count, b"last": 2}, name


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ring(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    exchanges = [
        *({"name": name} for name in ("orders", "many", "prices")),
        *({"name": name, "identity": kind.rule} for name, kind in KINDS.items()),
        *({"name": name, **scope} for name, (scope, _) in SCOPES.items()),
    ]
    async with running_mesh(
        broker_pool,
        tmp_path_factory.mktemp("identity"),
        *RING,
        topology="ring",
        exchanges=exchanges,
    ) as mesh:
        yield mesh
