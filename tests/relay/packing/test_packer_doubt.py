"""What cannot be told goes out again, and flagged: doubt costs a flag, never a message."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace

import pytest

from federation.mesh import IdentityKind, IdentityRule
from relay.bulk_amqp.content_header import MESSAGE_ID, NONE_PRESENT, rewrite
from relay.delivery.properties import DeliveryStamp
from relay.packing.memory_egress import Returns
from relay.packing.packer_record import PackerRecord
from tests.relay.packer_world import PackerWorld, numbered
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until


@in_virtual_time
async def test_a_repeated_message_is_never_taken_for_one_that_was_acknowledged() -> None:
    world = PackerWorld()
    first = await world.start().ready()
    world.publish(b"hello")
    await world.drained()
    world.stream.hold_next_appends()
    world.publish(b"hello")
    await let_pass(0.02)
    await first.kill()  # the second hello was taken, and its batch never landed
    await world.pack_all()
    seen = world.assert_nothing_lost_nor_repeated()
    assert [e.doubtful for e in seen.entries["orders"]] == [False, True]


@in_virtual_time
async def test_a_stop_waits_for_a_broker_that_is_slow_to_take_acknowledgements() -> None:
    world = PackerWorld()
    first = await world.start().ready()
    world.broker.ack_s = 3.0
    world.publish(*[b"alike"] * 20)
    await first.has_packed(20)
    await first.stop()
    world.broker.ack_s = 0.001
    world.publish(b"alike")
    await world.pack_all()
    world.assert_exactly_once_in_order()


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_messages_that_are_all_alike_are_flagged_where_in_doubt_and_never_lost(
    seed: int,
) -> None:
    world = PackerWorld(seed)

    def publish(life: int, burst: int) -> None:
        world.publish(*[world.chance.choice([b"a", b"b"])] * 20)

    await world.killed_again_and_again(publish)
    await world.pack_all()
    world.assert_nothing_lost_nor_repeated()


@pytest.mark.parametrize(
    ("identity", "flagged"),
    [(IdentityRule(IdentityKind.NONE), True), (IdentityRule(IdentityKind.MESSAGE_ID), False)],
    ids=["anonymous", "named"],
)
@pytest.mark.parametrize("what", ["state", "boot"])
@in_virtual_time
async def test_without_a_record_to_trust_only_what_names_itself_is_unflagged(
    what: str, identity: IdentityRule, flagged: bool
) -> None:
    world = PackerWorld(identity=identity)
    world.broker.ack_s = 1000.0
    first = await world.start().ready()
    for n in range(100):
        name = rewrite(NONE_PRESENT, {MESSAGE_ID: b"id %d" % n})
        world.publish(b"message %d" % n, properties=name)
    await first.has_packed(100)
    rows = world.ledger.packed
    await until(lambda: sum(len(row.entries) for row in rows) == 100, "it is written down", 10)
    await first.kill()
    if what == "state":
        world.ledger.written = None
    else:
        world.boot = "another boot"
    world.broker.ack_s = 0.001
    await world.pack_all()
    seen = world.assert_nothing_lost_nor_repeated()
    doubtful = sum(entry.doubtful for entry in seen.entries["orders"])
    assert doubtful == (100 if flagged else 0)


@pytest.mark.parametrize("returns", Returns)
@pytest.mark.parametrize("is_narrowed", [False, True], ids=["for all", "narrowed"])
@pytest.mark.parametrize("is_upgrade", [True, False], ids=["upgrade", "going back"])
@in_virtual_time
async def test_what_a_version_without_its_identity_logged_is_packed_no_second_time(
    is_upgrade: bool, is_narrowed: bool, returns: Returns
) -> None:
    """Former versions see no identity in URNs of UUIDs, under `identity: uuid`."""
    versions = [IdentityRule(IdentityKind.NONE), IdentityRule()]
    former, present = versions if is_upgrade else versions[::-1]
    world = PackerWorld(identity=former, returns=returns)
    if is_narrowed:
        world.narrow({"s0": ("#.a.#",), "s1": ("#.b.#",)})
    names = [uuid.UUID(int=world.chance.getrandbits(128), version=4) for _ in range(60)]

    def publish(first: int, end: int) -> None:
        for n in range(first, end):
            urn = rewrite(NONE_PRESENT, {MESSAGE_ID: names[n].urn.encode()})
            world.publish(b"message %d" % n, properties=urn, key=(b"a", b"b")[n // 7 % 2])

    world.broker.ack_s = 1000.0
    first = await world.start().ready()
    publish(0, 50)
    await first.has_packed(50)
    await first.kill()
    exchanges = tuple(replace(one, identity=present) for one in world.settings.exchanges)
    world.settings = replace(world.settings, exchanges=exchanges)
    world.broker.ack_s = 0.001
    publish(50, 60)
    await world.pack_all()
    seen = world.assert_nothing_lost_nor_repeated()
    if is_upgrade:
        entries = {entry.body: entry for entry in seen.entries["orders"]}
        assert len(entries) == len(seen.entries["orders"])
        assert not any(entry.doubtful for entry in entries.values())
        named = [entries[b"message %d" % n].identity == names[n].bytes for n in range(60)]
        assert named == [False] * 50 + [True] * 10


@pytest.mark.parametrize("killed", [True, False])
@in_virtual_time
async def test_what_the_log_lost_and_egress_still_has_is_packed_again_flagged(killed: bool) -> None:
    world = PackerWorld()
    world.broker.ack_s = 1000.0
    process = await world.start().ready()
    for n in range(5):
        world.publish(*numbered(10, 10 * n))
        await let_pass(0.05)
    await let_pass(2.0)
    if killed:
        await process.kill()
    else:
        world.broker.break_connections()
    world.stream.lose_tail(3)
    world.broker.ack_s = 0.001
    if killed:
        process = await world.start().ready()
    await process.finish()
    seen = world.logged()
    copies = Counter(seen.bodies())
    assert set(copies) == set(world.published["orders"])
    # Twenty are there still; nobody can say of the others who may have them.
    again = [e for e in seen.entries["orders"] if e.doubtful]
    assert len(again) >= 30
    assert all(
        copies[e.body] == 1 or any(a.body == e.body for a in again) for e in seen.entries["orders"]
    )


@in_virtual_time
async def test_what_a_broker_lost_as_it_went_away_is_flagged_by_the_next_process_too() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(b"1")
    await process.has_packed(1)
    assert not world.ledger.packed  # written down a moment later
    world.broker.break_connections()
    world.stream.lose_tail(1)
    await let_pass(0.01)
    await process.kill()
    await world.pack_all()
    (entry,) = world.logged().entries["orders"]
    assert entry.doubtful


@in_virtual_time
async def test_doubt_lasts_over_restarts_until_all_that_came_again_is_packed() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(b"1")
    await process.has_packed(1)
    await process.lose_power()

    def in_doubt() -> frozenset[str]:
        record = world.ledger.load()
        assert record is not None
        return PackerRecord.decode(record).in_doubt

    process = await world.start().ready()
    assert "orders" in in_doubt()
    await process.kill()
    process = await world.start().ready()
    assert "orders" in in_doubt()
    await world.drained()
    world.publish(b"2")  # none that came again comes behind it
    await process.finish()
    assert "orders" not in in_doubt()


@in_virtual_time
async def test_what_comes_round_makes_no_doubt_of_what_was_acknowledged_before_it() -> None:
    world = PackerWorld()
    process = await world.start().ready()
    world.publish(b"1")
    await process.has_packed(1)
    world.broker.break_connections()  # held: it comes again, and is recognised
    await world.drained()
    world.publish(b"2")
    await world.drained()
    stamp = DeliveryStamp("orders", ("tokyo", "paris"), "relay")
    world.broker.publish("egress.orders", b"key", b"ours", stamp.apply(NONE_PRESENT, flagged=False))
    await world.drained()
    world.publish(b"3")
    await process.has_packed(3)
    world.broker.break_connections()
    await process.finish()
    world.assert_exactly_once_in_order()
