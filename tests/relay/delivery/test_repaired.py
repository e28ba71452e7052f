"""What the deliverer makes of repair batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from federation.mesh import Exchange, RetryRule
from relay.batches.batch import BatchHeader, BatchKind, Entry
from relay.batches.fragments import split
from relay.batches.mesh_headers import REPAIRED_HEADER, as_repaired
from relay.bulk_amqp import content_header
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.memory_exchange import MemoryBroker
from relay.ledger.rows import OUTCOME_MASK, REPAIRED, LedgerRow, Outcome
from relay.ledger_proof import LedgerUnreadable, Sought
from tests.relay.deliverer_world import NOW_MS, WINDOW_MS, Life, World, entry, mesh

HOUR_MS = 3_600_000
FROM_SYDNEY = {"origin": "sydney", "incarnation": b"incarn_s"}
Batch = tuple[BatchHeader, bytes]


def repair(
    world: World, entries: Sequence[Entry], *, whose: str = "paris", origin: str = "sydney"
) -> Batch:
    return world.batch(
        [as_repaired(one, whose) for one in entries],
        origin=origin,
        incarnation=b"incarn_" + origin[:1].encode(),
        to=("tokyo",),
        kind=BatchKind.REPAIR,
    )


def outcomes(row: LedgerRow) -> list[tuple[Outcome, bool]]:
    return [(Outcome(byte & OUTCOME_MASK), bool(byte & REPAIRED)) for byte in row.outcomes]


async def nothing(sought: Collection[Sought], since_ms: int) -> set[Sought]:
    return set()


async def test_repaired_messages_say_so_and_whose_they_are() -> None:
    world = World()
    async with world.running() as life:
        name = await life.log(repair(world, [entry(1), entry(2)]))
        await life.settled(name)
        assert life.counters.repaired == life.counters.delivered == 2
    assert world.delivered() == ["body 1", "body 2"]
    for _, message in world.broker.messages["orders.queue"]:
        properties = message.properties
        assert content_header.header(properties, REPAIRED_HEADER) == b"S\0\0\0\x05paris"
        assert content_header.text(properties, content_header.CLUSTER_ID) == b"paris"
        path = content_header.header(properties, b"x-mesh-path") or b""
        assert path[5:] == b"paris,sydney,tokyo"
    (row,) = world.rows()
    assert (row.kind, row.origin, row.position) == (BatchKind.REPAIR, "sydney", "paris")
    assert outcomes(row) == [(Outcome.DELIVERED, True)] * 2


async def test_a_message_of_any_age_is_repaired() -> None:
    world = World()
    async with world.running() as life:
        life.context.delivered_before = nothing
        old = entry(1, published_ms=NOW_MS - 2 * WINDOW_MS)
        await life.settled(await life.log(repair(world, [old])))
    assert world.delivered() == ["body 1"]


async def test_a_repair_done_twice_is_suppressed_the_second_time() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(repair(world, [entry(1)])))
        await life.settled(await life.log(repair(world, [entry(1)], origin="paris")))
    assert world.delivered() == ["body 1"]
    assert [outcomes(row) for row in world.rows()] == [
        [(Outcome.DELIVERED, True)],
        [(Outcome.DUPLICATE, True)],
    ]


async def test_what_came_by_itself_meanwhile_is_not_repaired() -> None:
    world = World()
    async with world.running() as life:
        asked: list[Sought] = []

        async def all_there(sought: Collection[Sought], since_ms: int) -> set[Sought]:
            asked.extend(sought)
            assert since_ms == NOW_MS - 1000
            return set(sought)

        life.context.delivered_before = all_there
        await life.settled(await life.log(world.batch([entry(1)])))
        await life.settled(await life.log(repair(world, [entry(1), entry(2)])))
    assert world.delivered() == ["body 1", "body 2"]
    assert [(one.exchange, one.origin, one.identity) for one in asked] == [
        ("orders", "", entry(1).identity)
    ]


async def test_what_the_barrier_remembers_and_the_ledger_lacks_is_delivered_once() -> None:
    world = World()
    async with world.running() as life:
        life.context.delivered_before = nothing
        await life.settled(await life.log(world.batch([entry(1)])))
        await life.log(repair(world, [entry(1), entry(1)]))
        await life.settled(await life.log(repair(world, [entry(1)])))
    assert world.delivered() == ["body 1", "body 1"]
    assert [outcome for row in world.rows()[1:] for outcome in outcomes(row)] == [
        (Outcome.DELIVERED, True),
        (Outcome.DUPLICATE, True),
        (Outcome.DUPLICATE, True),
    ]


async def in_rows(world: World, sought: Collection[Sought], since_ms: int) -> set[Sought]:
    """Nothing of the ledger is in files yet."""
    there = {
        row.identities[16 * n : 16 * n + 16]
        for row in world.rows()
        for n, (outcome, _) in enumerate(outcomes(row))
        if outcome is Outcome.DELIVERED
    }
    return {one for one in sought if one.identity in there}


def forget_all(life: Life, hours: int = 2 * WINDOW_MS // HOUR_MS + 3) -> None:
    """So many hours pass, in which the barrier forgets what it remembered."""
    for _ in range(hours):
        life.world.now_ms += HOUR_MS
        life.context.barrier.rotate_if_due(life.world.now_ms)


async def test_what_the_barrier_has_forgotten_is_repaired_once_by_the_word_of_the_ledger() -> None:
    world = World()
    async with world.running() as life:
        life.context.delivered_before = partial(in_rows, world)
        await life.settled(await life.log(world.batch([entry(1)])))
        await life.settled(await life.log(repair(world, [entry(2)])))
        forget_all(life)
        await life.settled(await life.log(repair(world, [entry(1), entry(2), entry(3)])))
    assert world.delivered() == ["body 1", "body 2", "body 3"]
    assert outcomes(world.rows()[-1]) == [
        (Outcome.DUPLICATE, True),
        (Outcome.DUPLICATE, True),
        (Outcome.DELIVERED, True),
    ]


async def test_what_is_young_enough_to_be_remembered_is_not_asked_about() -> None:
    world = World()
    async with world.running() as life:

        async def fails(sought: Collection[Sought], since_ms: int) -> set[Sought]:
            raise LedgerUnreadable("nobody is to ask")

        life.context.delivered_before = fails
        await life.settled(await life.log(repair(world, [entry(1)])))
    assert world.delivered() == ["body 1"]


async def test_what_the_ledger_cannot_say_is_not_delivered_and_the_row_says_why() -> None:
    world = World()
    async with world.running() as life:

        async def fails(sought: Collection[Sought], since_ms: int) -> set[Sought]:
            raise LedgerUnreadable("rows 0 to 17 of its files are missing")

        life.context.delivered_before = fails
        old = entry(1, published_ms=NOW_MS - 2 * WINDOW_MS)
        await life.settled(await life.log(repair(world, [old])))
    assert world.delivered() == []
    (row,) = world.rows()
    assert outcomes(row) == [(Outcome.DUPLICATE, True)]
    assert row.reason == "not delivered again: rows 0 to 17 of its files are missing"


async def test_a_message_whose_days_are_gone_holds_back_no_message_of_other_days() -> None:
    world = World()
    asked: list[int] = []
    kept_since_ms = NOW_MS - 10 * 24 * HOUR_MS
    async with world.running() as life:

        async def kept(sought: Collection[Sought], since_ms: int) -> set[Sought]:
            asked.append(len(sought))
            if since_ms < kept_since_ms:
                raise LedgerUnreadable("rows 0 to 17 of its files are missing")
            return {one for one in sought if one.identity == entry(2).identity}

        life.context.delivered_before = kept
        await life.settled(await life.log(world.batch([entry(1)])))  # remembered, and no row of it
        days = {2: 8, 3: 8, 4: 12, 5: 12, 6: 20}
        old = [entry(n, published_ms=NOW_MS - days[n] * 24 * HOUR_MS) for n in days]
        await life.settled(await life.log(repair(world, [entry(1), *old])))
    assert asked == [6, 1, 2, 2, 1]
    assert world.delivered() == ["body 1", "body 1", "body 3"]
    _, row = world.rows()
    assert [outcome for outcome, _ in outcomes(row)] == [
        Outcome.DELIVERED,
        Outcome.DUPLICATE,  # the ledger has it
        Outcome.DELIVERED,
        *[Outcome.DUPLICATE] * 3,
    ]
    assert row.reason == "not delivered again: rows 0 to 17 of its files are missing"


async def test_nothing_is_repeated_while_the_ledger_cannot_be_read() -> None:
    world = World()
    async with world.running() as life:

        async def fails(sought: Collection[Sought], since_ms: int) -> set[Sought]:
            raise LedgerUnreadable("the disk is gone")

        life.context.delivered_before = fails
        await life.settled(await life.log(world.batch([entry(1)])))
        await life.settled(await life.log(repair(world, [entry(1)])))
        life.context.delivered_before = nothing
        await life.settled(await life.log(repair(world, [entry(1)])))
    assert world.delivered() == ["body 1", "body 1"]


async def test_a_repair_for_others_passes_by() -> None:
    world = World()
    async with world.running() as life:
        other = world.batch([entry(1)], **FROM_SYDNEY, to=("paris",), kind=BatchKind.REPAIR)
        await life.settled(await life.log(other))
        own = world.batch(
            [entry(2)],
            origin="tokyo",
            incarnation=b"incarn_t",
            to=("paris",),
            kind=BatchKind.REPAIR,
        )
        await life.settled(await life.log(own))
    assert world.delivered() == []
    assert world.rows() == []


async def test_a_site_repairs_itself_out_of_its_own_log() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(repair(world, [entry(1)], origin="tokyo")))
    assert world.delivered() == ["body 1"]
    assert [outcomes(row) for row in world.rows()] == [[(Outcome.DELIVERED, True)]]


async def test_repaired_and_other_messages_of_a_flow_keep_their_order() -> None:
    world = World()
    async with world.running() as life:
        life.context.delivered_before = nothing
        await life.log(
            world.batch([entry(1)], **FROM_SYDNEY),
            repair(world, [entry(2)]),
            world.batch([entry(3)], **FROM_SYDNEY),
            repair(world, [entry(1), entry(4)]),
        )
        await life.settled(await life.log(world.batch([entry(5), entry(1)], **FROM_SYDNEY)))
    assert world.delivered() == [f"body {n}" for n in (1, 2, 3, 1, 4, 5)]


async def test_a_big_message_is_repaired_in_pieces() -> None:
    world = World()
    big = as_repaired(entry(1, bytes(2_000_000)), "paris")
    async with world.running() as life:
        name = None
        for fragment, piece in split(big):
            name = await life.log(
                world.batch(
                    [piece], **FROM_SYDNEY, to=("tokyo",), kind=BatchKind.REPAIR, fragment=fragment
                )
            )
        assert name is not None
        await life.settled(name)
    assert [len(body) for body in world.delivered()] == [2_000_000]
    (row,) = world.rows()
    assert (row.position, outcomes(row)) == ("paris", [(Outcome.DELIVERED, True)])


async def test_a_node_that_died_goes_on_with_the_repair() -> None:
    world = World()
    async with world.running() as life:
        life.context.hold("paused")
        await life.log(repair(world, [entry(1)]))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.kill()
    async with world.running() as life:
        await life.until(lambda: world.delivered() == ["body 1"])
    assert world.flags() == [False]


class Picky(MemoryBroker):
    """A queue without room for one message."""

    def take(self, exchange: str, message: Outgoing) -> Answer:
        if exchange and message.body == b"body 0":
            return Answer.REFUSED
        return super().take(exchange, message)


async def test_what_was_delivered_behind_one_that_is_refused_is_not_repeated() -> None:
    patient = RetryRule(max_attempts=1000, backoff_first_s=3600, backoff_most_s=3600)
    world = World(mesh(Exchange("orders", retry=patient)), broker=Picky())

    async with world.running() as life:
        life.context.delivered_before = nothing  # its row waits for the refused one's
        await life.log(world.batch([entry(0), entry(1)]))
        await life.until(lambda: bool(life.deliverer.standing))
        name = await life.log(repair(world, [entry(1)]))
        await life.until(lambda: name in life.context.settled)
        await life.kill()
    async with world.running() as life:
        life.context.delivered_before = nothing
        name = await life.log(repair(world, [entry(1)]))
        await life.until(lambda: name in life.context.settled)
        assert life.counters.repaired == 0
    assert world.delivered() == ["body 1"]
