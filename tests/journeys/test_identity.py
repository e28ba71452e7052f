"""What makes two messages the same: each once at every site where it was not published.

A letter that says "last" stands behind all others of its flow: once it is there, whatever was to
come before it has come, and whatever was to be held back is.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass

from relay.bulk_amqp.content_header import CONTENT_ENCODING, CONTENT_TYPE, TIMESTAMP, rewrite
from relay.bulk_amqp.field_table import entry, long_integer
from tests.journeys.application import Application, Letter, at, counters_say, letter
from tests.journeys.conftest import MeshFactory

RING = ("paris", "tokyo", "sydney")


def new_id() -> str:
    return str(uuid.uuid4())


async def last_from(*senders: Application, exchange: str = "orders") -> None:
    for sender in senders:
        await sender.post(exchange, letter(b"last", new_id()))


async def test_one_uuid_arrives_once_wherever_it_was_not_published(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(*RING, topology="ring")
    mesh.start()
    await mesh.running()
    async with at(mesh, *RING) as (paris, tokyo, sydney):
        at_paris, at_tokyo, at_sydney = [
            await one.listen("orders") for one in (paris, tokyo, sydney)
        ]
        here = letter(b"twice at one site", new_id())
        await paris.post("orders", here, here)
        failed_over = letter(b"failed over to another", new_id())
        await paris.post("orders", failed_over)
        await at_sydney.has(2)
        await tokyo.post("orders", failed_over)
        both = letter(b"at two at once", new_id())
        await asyncio.gather(paris.post("orders", both), tokyo.post("orders", both))
        await last_from(paris, tokyo)

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
        assert not any(m.flagged for m in at_sydney.got + at_tokyo.got + at_paris.got)
        await counters_say(mesh, "sydney", duplicates=3, identity_conflicts=0, redelivered=0)


async def test_one_identity_with_other_content_arrives_and_is_counted(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(*RING, topology="ring")
    mesh.start()
    await mesh.running()
    async with at(mesh, *RING) as (paris, tokyo, sydney):
        at_sydney = await sydney.listen("orders")
        same = new_id()
        await paris.post("orders", letter(b"ten", same), letter(b"twelve", same))
        await at_sydney.has(2)
        # The second content is known by now as well, from wherever it comes.
        await tokyo.post("orders", letter(b"twelve", same), letter(b"ten", same))
        await last_from(paris, tokyo)
        assert sorted(m.body for m in await at_sydney.has(4)) == [
            b"last",
            b"last",
            b"ten",
            b"twelve",
        ]
        await counters_say(mesh, "sydney", identity_conflicts=1, duplicates=2, delivered=4)
        await counters_say(mesh, "tokyo", identity_conflicts=1, duplicates=0)


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


async def test_each_kind_of_identity_takes_its_own_for_one(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(
        "paris",
        "tokyo",
        topology="complete",
        exchanges=[{"name": name, "identity": kind.rule} for name, kind in KINDS.items()],
    )
    mesh.start()
    await mesh.running()
    async with at(mesh, "paris", "tokyo") as (paris, tokyo):
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
        await counters_say(mesh, "tokyo", duplicates=4, identity_conflicts=0)


async def test_within_its_scope_an_identity_is_one(live_mesh: MeshFactory) -> None:
    copies = {"of_the_mesh": 1, "of_the_origin": 2, "another": 1}
    mesh = await live_mesh(
        *RING,
        topology="complete",
        exchanges=[
            {"name": "of_the_mesh", "scope": "mesh"},
            {"name": "of_the_origin", "scope": "origin"},
            {"name": "another"},
        ],
    )
    mesh.start()
    await mesh.running()
    async with at(mesh, *RING) as (paris, tokyo, sydney):
        boxes = {name: await sydney.listen(name) for name in copies}
        one = letter(b"one", new_id())
        for name in copies:
            for sender in (paris, tokyo):
                await sender.post(name, one, one)
                await last_from(sender, exchange=name)
        for name, count in copies.items():
            got = Counter(m.body for m in await boxes[name].has(2 + count))
            assert got == {b"one": count, b"last": 2}, name
