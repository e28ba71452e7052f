"""The packer where sites narrow an exchange: each message goes where its key is wanted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from federation.mesh import IdentityRule
from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.format import decode_entries, read_header
from relay.ledger.batch_rows import packed_row
from relay.ledger.rows import Outcome
from relay.packing.packer_record import PackerRecord
from tests.relay.packer_world import ANONYMOUS, PackerWorld, numbered
from tests.virtual_time import in_virtual_time
from tests.waiting import until

SHOPS = {f"s{n}": (f"store.s{n}.#", "news") for n in range(4)}


def key_for(shop: int) -> bytes:
    return b"store.s%d.price" % shop


def named(number: int) -> bytes:
    """Properties with a UUID of its own as the message's ID."""
    return b"\0\x80\x24" + str(uuid.UUID(int=number + 1)).encode()


def tear_next_append(world: PackerWorld, stored: int) -> None:
    """Of what is appended together next, the log stores so many batches; the connection goes."""
    stream = world.stream
    original = stream.store

    def store(records: Sequence[bytes], log: Any) -> bool:
        stream.store = original  # type: ignore[method-assign]
        original(records[:stored], log)
        stream.break_connections()
        return False

    stream.store = store  # type: ignore[method-assign]


def headers_of(world: PackerWorld) -> list[BatchHeader]:
    return [h for h in world.logged().headers if h.kind is not BatchKind.MARK]


def arrivals(world: PackerWorld) -> dict[str, list[bytes]]:
    """What each shop gets, in order: of all batches that count, those with it in their set."""
    got: dict[str, list[bytes]] = {shop: [] for shop in SHOPS}
    counted = {header.name for header in world.logged().headers}
    for record in world.stream.records:
        header = read_header(record.data)
        if header.kind is not BatchKind.MESSAGES or header.name not in counted:
            continue
        for shop in header.name.series.destinations or tuple(SHOPS):
            if shop in got:
                got[shop] += [entry.body for entry in decode_entries(record.data)]
    return got


@in_virtual_time
async def test_each_message_goes_to_the_sites_that_want_its_key_in_order() -> None:
    world = PackerWorld()
    world.narrow(SHOPS)
    process = await world.start().ready()
    for number in range(400):
        world.publish(b"%d" % number, key=key_for(number % 4))
        if number % 100 == 0:
            world.publish(b"news %d" % number, key=b"news")
    await process.finish()
    world.assert_exactly_once_in_order()
    world.assert_numbers_are_dense()
    got = arrivals(world)
    for shop in range(4):
        mine = []
        for number in range(400):
            mine += [b"%d" % number] if number % 4 == shop else []
            mine += [b"news %d" % number] if number % 100 == 0 else []
        assert got[f"s{shop}"] == mine
    sets = {header.name.series.destinations for header in headers_of(world)}
    assert sets == {("s0",), ("s1",), ("s2",), ("s3",), ()}


@in_virtual_time
async def test_messages_for_other_sites_in_turn_share_batches_with_their_like() -> None:
    world = PackerWorld(identity=IdentityRule())
    world.narrow(SHOPS)
    process = await world.start().ready()
    for number in range(2000):
        world.publish(b"%d" % number, key=key_for(number % 4), properties=named(number))
    await process.finish()
    world.assert_exactly_once_in_order()
    assert len(headers_of(world)) <= 40


@in_virtual_time
async def test_messages_without_identity_are_logged_in_egress_s_order_among_any_others() -> None:
    world = PackerWorld(identity=IdentityRule())
    world.narrow(SHOPS)
    process = await world.start().ready()
    for number in range(1000):
        shop = world.chance.randrange(4)
        has_identity = world.chance.random() < 0.8
        properties = named(number) if has_identity else b"\0\0"
        world.publish(b"%d" % number, key=key_for(shop), properties=properties)
    await process.finish()
    world.assert_exactly_once_in_order()
    entries = world.logged().entries["orders"]
    unnamed = [int(e.body) for e in entries if e.properties == b"\0\0"]
    assert unnamed == sorted(unnamed)
    assert len(headers_of(world)) < 700


@in_virtual_time
async def test_what_some_sites_of_another_set_get_is_not_overtaken() -> None:
    world = PackerWorld(identity=IdentityRule())
    world.narrow({"s0": ("#.a.#",), "s1": ("#.b.#",), "s2": ("#.c.#",)})
    process = await world.start().ready()
    keys = [b"a", b"b", b"c", b"a.b", b"b.c", b"a.c", b"a.b.c"]
    sent = [world.chance.choice(keys) for _ in range(600)]
    for number, key in enumerate(sent):
        world.publish(b"%d" % number, key=key, properties=named(number))
    await process.finish()
    world.assert_exactly_once_in_order()
    got = arrivals(world)
    for shop, letter in (("s0", b"a"), ("s1", b"b"), ("s2", b"c")):
        assert got[shop] == [b"%d" % n for n, key in enumerate(sent) if letter in key]


@in_virtual_time
async def test_messages_in_a_row_for_the_same_sites_share_batches() -> None:
    world = PackerWorld()
    world.narrow(SHOPS)
    process = await world.start().ready()
    for run in range(20):
        world.publish(*numbered(50, 50 * run), key=key_for(run % 4))
    await process.finish()
    world.assert_exactly_once_in_order()
    assert len(headers_of(world)) <= 40


@in_virtual_time
async def test_what_no_site_wants_is_acknowledged_counted_and_in_log_and_ledger() -> None:
    world = PackerWorld()
    world.narrow(SHOPS)
    process = await world.start().ready()
    world.publish(b"one", key=key_for(1))
    world.publish(b"lost", b"as lost", key=b"store.s9.price")
    await world.drained()
    await process.stop()
    metrics = process.packer.metrics
    assert (metrics.messages, metrics.unwanted) == (3, 2)
    world.assert_exactly_once_in_order()
    (row,) = [
        packed_row(packed, 0)
        for packed in world.ledger.packed
        if packed.header.name.series.destinations == ("paris",)
    ]
    assert (row.origin, row.outcomes) == ("paris", bytes([Outcome.SENT]) * 2)


@in_virtual_time
async def test_a_big_message_goes_to_the_sites_that_want_its_key() -> None:
    world = PackerWorld()
    world.narrow(SHOPS)
    process = await world.start().ready()
    world.publish(b"before", key=key_for(1))
    world.publish(b"." * 5_000_000, key=key_for(2))
    world.publish(b"after", key=key_for(3))
    await process.finish()
    world.assert_numbers_are_dense()
    sets = [header.name.series.destinations for header in headers_of(world)]
    assert [to for to, _ in groupby(sets)] == [("s1",), ("s2",), ("s3",)]
    assert len(sets) > 3


@pytest.mark.parametrize("named_share", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_killed_packer_s_successor_packs_nothing_twice_whatever_is_wanted_by_then(
    seed: int, named_share: float
) -> None:
    world = PackerWorld(seed, identity=IdentityRule())
    world.narrow(SHOPS, "r0")
    for life in range(4):
        process = await world.start().ready()
        for burst in range(20):
            for number in range(15):
                key = world.chance.choice([key_for(world.chance.randrange(6)), b"news"])
                own = named_share and world.chance.random() < named_share
                properties = named((life * 20 + burst) * 15 + number) if own else b"\0\0"
                body = b"%d/%d/%d" % (life, burst, number)
                world.publish(body, key=key, properties=properties)
            await asyncio.sleep(world.chance.uniform(0, 0.006))
        if world.chance.random() < 0.5:
            tear_next_append(world, world.chance.randrange(1, 4))
            world.publish(*numbered(3, 100 * life), key=key_for(0))
            await asyncio.sleep(0.01)
        await process.kill()
        taken = world.chance.sample(range(6), 3)  # the file has changed: others take other keys
        world.narrow({f"s{n}": (f"store.s{(n + 1) % 6}.#",) for n in taken}, f"r{life + 1}")
    await world.pack_all()
    world.assert_numbers_are_dense()
    if named_share in (0.0, 1.0):
        world.assert_exactly_once_in_order()
        return
    # Of those without identity that had been acknowledged, a broker that forgot that hands out
    # again what nobody can tell from its like.
    seen = world.assert_nothing_lost_nor_repeated()
    assert not [e for e in seen.entries["orders"] if e.doubtful and e.properties != b"\0\0"]


@in_virtual_time
async def test_a_message_without_identity_behind_a_copy_published_again_is_not_lost() -> None:
    world = PackerWorld(identity=IdentityRule())
    world.narrow(SHOPS)
    first = await world.start().ready()
    for body, properties in ((b"N", named(1)), (b"a", b"\0\0")):
        world.publish(body, key=key_for(1), properties=properties)
    await world.drained()  # so that both are acknowledged
    world.stream.hold_next_appends()
    for body, properties in ((b"N", named(1)), (b"a", b"\0\0")):
        world.publish(body, key=key_for(1), properties=properties)
    await until(lambda: first.packer.metrics.in_hand_messages == 2, "both copies are taken", 10)
    await first.kill()
    await world.pack_all()
    assert world.logged().bodies().count(b"a") == 2


@in_virtual_time
async def test_a_site_that_begins_to_want_what_a_torn_group_left_gets_that_late_and_once() -> None:
    world = PackerWorld(identity=IdentityRule())
    world.narrow({"s0": ("a",), "s1": ("b",)}, "r1")
    world.broker.ack_s = 1000.0
    first = await world.start().ready()
    tear_next_append(world, 1)
    for number, key in ((1, b"a"), (2, b"b"), (3, b"a")):
        world.publish(b"%d" % number, key=key, properties=named(number))
    await until(lambda: world.logged().bodies(), "a part of them is stored", 10)
    await first.kill()
    world.broker.ack_s = 0.001
    world.narrow({"s0": ("a", "b"), "s1": ("b",)}, "r2")
    await world.pack_all()
    world.assert_exactly_once_in_order()
    assert arrivals(world)["s0"] == [b"1", b"3", b"2"]


@in_virtual_time
async def test_messages_that_had_an_identity_by_the_former_file_are_not_repeated_unflagged() -> (
    None
):
    world = PackerWorld(identity=IdentityRule())
    world.narrow({"s0": ("a",), "s1": ("b",)}, "r1")
    world.broker.ack_s = 1000.0
    first = await world.start().ready()
    for number, key in ((1, b"a"), (2, b"b"), (3, b"a")):
        world.publish(b"%d" % number, key=key, properties=named(number))
    await first.has_packed(3)
    await first.kill()
    world.broker.ack_s = 0.001
    world.settings = replace(
        world.settings,
        exchanges=tuple(replace(one, identity=ANONYMOUS) for one in world.settings.exchanges),
    )
    await world.pack_all()
    world.assert_nothing_lost_nor_repeated()


@in_virtual_time
async def test_what_was_logged_for_some_keeps_its_set_and_what_was_not_gets_the_new_one() -> None:
    world = PackerWorld()
    world.narrow(SHOPS, "r1")
    world.broker.ack_s = 1000.0
    first = await world.start().ready()
    world.publish(b"a", b"b", key=key_for(1))
    world.publish(b"nobody's", key=key_for(7))
    await first.has_packed(3)
    await first.kill()
    world.publish(b"c", key=key_for(1))
    world.broker.ack_s = 0.001
    world.narrow({"s7": ("store.#",)}, "r2")
    second = await world.start().ready()
    await second.finish()
    world.assert_exactly_once_in_order()
    told = [(h.revision, h.name.series.destinations) for h in headers_of(world)]
    assert told == [("r1", ("s1",)), ("r1", ("paris",)), ("r2", ())]
    assert second.packer.metrics.returned == 3


@in_virtual_time
async def test_the_record_tells_how_far_was_acknowledged_over_all_sets() -> None:
    world = PackerWorld()
    world.narrow(SHOPS)
    process = await world.start().ready()
    for number in range(40):
        world.publish(b"x", key=key_for(number % 4))  # alike: only the record tells them apart
    await world.drained()
    await process.kill()
    assert world.ledger.written is not None
    record = PackerRecord.decode(world.ledger.written)
    assert record.acked["orders"].sequence == headers_of(world)[-1].incarnation_sequence
    world.publish(b"x", key=key_for(0))
    await world.pack_all()
    world.assert_exactly_once_in_order()
