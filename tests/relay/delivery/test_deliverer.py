"""Delivery from a site's log to its exchange: once, in order, whole, with a row in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from federation.mesh import Exchange, ExchangeMode, IdentityScope
from relay.batches.batch import BatchKind, Fragment, Predecessor
from relay.batches.fragments import PIECE_BYTES, split
from relay.bulk_amqp import content_header
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.memory_exchange import MemoryExchange
from relay.ledger.rows import CONFLICT, OUTCOME_MASK, Outcome
from tests.message_properties import properties
from tests.relay.deliverer_world import World, entry, in_pieces, mesh


async def test_messages_arrive_once_in_order_with_path_and_origin() -> None:
    world = World()
    async with world.running() as life:
        first = world.batch([entry(n) for n in range(200)])
        second = world.batch([entry(n) for n in range(200, 400)])
        await life.settled(await life.log(first, second))
    assert world.delivered() == [f"body {n}" for n in range(400)]
    assert not any(world.flags())
    _, message = world.broker.messages["orders.queue"][0]
    assert content_header.text(message.properties, content_header.USER_ID) == b"relay"
    assert content_header.text(message.properties, content_header.CLUSTER_ID) == b"paris"
    assert content_header.header(message.properties, b"x-mesh-path") == b"S\0\0\0\x0bparis,tokyo"
    assert content_header.header(message.properties, b"x-mesh-exchange") == b"S\0\0\0\x06orders"


async def test_a_clean_restart_delivers_nothing_again_and_goes_on() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1), entry(2)])))
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(3)])))
        assert life.counters.delivered == 1
    assert world.delivered() == ["body 1", "body 2", "body 3"]
    assert not any(world.flags())


async def test_the_same_identity_twice_is_delivered_once() -> None:
    world = World()
    async with world.running() as life:
        batch = world.batch([entry(1), entry(1), entry(2)])
        again = world.batch([entry(1), entry(3)], origin="sydney", incarnation=b"incarn_s")
        await life.settled(await life.log(batch, again))
        assert life.counters.duplicates == 2
    assert world.delivered() == ["body 1", "body 2", "body 3"]


async def test_the_same_identity_with_other_content_is_delivered_and_counted_once_each() -> None:
    world = World()
    async with world.running() as life:
        other = entry(1, b"other")
        await life.settled(await life.log(world.batch([entry(1), other, other])))
        assert life.counters.identity_conflicts == 1
        assert life.counters.duplicates == 1
    assert world.delivered() == ["body 1", "other"]
    outcomes = b"".join(row.outcomes for row in world.rows())
    assert [o & CONFLICT for o in outcomes] == [0, CONFLICT, 0]


async def test_a_publisher_that_sends_again_from_another_site_is_still_one_message() -> None:
    # A library that fails over sets a new time, and perhaps other headers or another mode.
    one, two = (
        entry("a", b"x", properties=properties(timestamp=n, delivery_mode=n, content_type=b"t"))
        for n in (1, 2)
    )
    world = World()
    async with world.running() as life:
        first = world.batch([one])
        again = world.batch([two], origin="sydney", incarnation=b"of_other")
        await life.settled(await life.log(first, again))
        assert (life.counters.duplicates, life.counters.identity_conflicts) == (1, 0)
    assert world.delivered() == ["x"]


async def test_with_scope_origin_the_same_identity_from_two_sites_is_two_messages() -> None:
    world = World(mesh(Exchange("orders", scope=IdentityScope.ORIGIN)))
    async with world.running() as life:
        batch = world.batch([entry(1)])
        other = world.batch([entry(1)], origin="sydney", incarnation=b"incarn_s")
        await life.settled(await life.log(batch, other))
    assert world.delivered() == ["body 1", "body 1"]


async def test_own_messages_are_not_published_back_but_later_copies_are_stopped() -> None:
    world = World()
    async with world.running() as life:
        own = world.batch([entry(1)], origin="tokyo", incarnation=b"incarn_t")
        copy = world.batch([entry(1), entry(2)])
        await life.settled(await life.log(own, copy))
        assert (life.counters.own, life.counters.duplicates) == (1, 1)
    assert world.delivered() == ["body 2"]


@pytest.mark.parametrize("to", [("paris", "sydney"), ("tokyo",)], ids=["others", "nobody"])
async def test_own_messages_for_some_sites_or_none_stop_later_copies_too(
    to: tuple[str, ...],
) -> None:
    world = World()
    async with world.running() as life:
        own = world.batch([entry(1)], origin="tokyo", incarnation=b"incarn_t", to=to)
        copy = world.batch([entry(1), entry(2)], to=("sydney", "tokyo"))
        await life.settled(await life.log(own, copy))
        assert (life.counters.own, life.counters.duplicates) == (1, 1)
    assert world.delivered() == ["body 2"]


async def test_what_is_for_other_sites_is_passed_by() -> None:
    world = World()
    async with world.running() as life:
        other = world.batch([entry(1)], to=("sydney",))
        ours = world.batch([entry(2)], to=("sydney", "tokyo"))
        await life.settled(await life.log(other, ours, world.batch([entry(3)], to=("sydney",))))
    assert world.delivered() == ["body 2"]


async def test_a_site_that_delivers_nothing_of_an_exchange_need_not_know_its_own_of_it() -> None:
    world = World(mesh(Exchange("orders", destinations=("paris",))))
    async with world.running() as life:
        own = world.batch([entry(1)], origin="tokyo", incarnation=b"incarn_t", to=("paris",))
        await life.settled(await life.log(own))
        assert life.counters.own == 0


async def test_big_messages_are_published_one_by_one_however_small_their_last_pieces() -> None:
    world = World()
    entries = [entry(n, bytes([n]) * (2 * PIECE_BYTES + 1)) for n in range(4)]
    batches = [
        world.batch([piece], kind=BatchKind.FRAGMENT, fragment=fragment)
        for one in entries
        for fragment, piece in split(one)
    ]
    sizes: list[int] = []
    all_logged = asyncio.Event()

    class Noting(MemoryExchange):
        async def publish(
            self,
            exchange: str,
            messages: Sequence[Outgoing],
            *,
            timeout_s: float,
            on_sent: Callable[[object], None] | None = None,
        ) -> list[Answer]:
            await all_logged.wait()
            sizes.append(sum(len(message.body) for message in messages))
            return await super().publish(exchange, messages, timeout_s=timeout_s, on_sent=on_sent)

    world.make_exchange = Noting
    async with world.running() as life:
        last = await life.log(*batches)
        all_logged.set()
        await life.settled(last)
    assert sizes == [2 * PIECE_BYTES + 1] * 4


async def test_void_batches_are_not_delivered() -> None:
    world = World()
    async with world.running() as life:
        valid = world.batch([entry(1)])
        void = world.batch([entry(2)])
        heir = world.batch(
            [entry(3)], incarnation=b"incarn_2", predecessors=(Predecessor(b"incarn_1", 0),)
        )
        await life.settled(await life.log(valid, heir, void))
    assert world.delivered() == ["body 1", "body 3"]


async def test_a_message_in_pieces_is_delivered_whole_also_over_a_restart() -> None:
    world = World()
    pieces = in_pieces(world, entry(1, b"x" * 300))
    async with world.running() as life:
        await life.log(world.batch([entry(0)]), *pieces[:2])
        await life.until(lambda: life.context.settlement.reader.number == 3)
    async with world.running() as life:
        await life.settled(await life.log(pieces[2]))
    assert world.delivered() == ["body 0", "x" * 300]
    assert not any(world.flags())


async def test_pieces_of_a_dead_incarnation_hold_nothing_up() -> None:
    world = World()
    piece = world.batch([entry(1)], kind=BatchKind.FRAGMENT, fragment=Fragment(0, 3))
    heir = world.batch(
        [entry(1, b"whole")], incarnation=b"incarn_2", predecessors=(Predecessor(b"incarn_1", 0),)
    )
    async with world.running() as life:
        await life.settled(await life.log(piece, heir))
    assert world.delivered() == ["whole"]


@pytest.mark.parametrize("ended", [False, True], ids=["its own run", "the next"])
async def test_pieces_whose_last_one_never_comes_hold_nothing_up(ended: bool) -> None:
    # Whatever else its flow brings, of its own run or the next, comes after all of its pieces.
    world = World()
    piece = world.batch([entry(1)], kind=BatchKind.FRAGMENT, fragment=Fragment(0, 3))
    run, before = (b"incarn_2", (Predecessor(b"incarn_1", 0),)) if ended else (b"incarn_1", ())
    after = world.batch([entry(2)], incarnation=run, predecessors=before)
    async with world.running() as life:
        await life.settled(await life.log(piece, after))
        await life.settled(await life.log(world.batch([entry("p")], exchange="prices")))
    assert world.delivered() == ["body 2"]


async def test_a_void_batch_among_pieces_does_not_take_the_position_past_them() -> None:
    world = World()
    run, before = b"incarn_2", (Predecessor(b"incarn_1", -1),)
    pieces = in_pieces(world, entry(1, b"x" * 300), incarnation=run, predecessors=before)
    void = world.batch([entry("void")])  # from a dead packer's socket
    async with world.running() as life:
        name = await life.log(*pieces[:2], void)
        await life.until(lambda: name in life.context.settled)
        await life.kill()
    async with world.running() as life:
        await life.settled(await life.log(pieces[2]))
    assert world.delivered() == ["x" * 300]


async def test_what_was_settled_before_pieces_is_settled_while_they_wait() -> None:
    world = World()
    batches = [world.batch([entry(n)]) for n in range(2)]
    batches += in_pieces(world, entry(2))[:2]
    all_met = asyncio.Event()

    class Slow(MemoryExchange):
        async def publish(
            self,
            exchange: str,
            messages: Sequence[Outgoing],
            *,
            timeout_s: float,
            on_sent: Callable[[object], None] | None = None,
        ) -> list[Answer]:
            await all_met.wait()
            return await super().publish(exchange, messages, timeout_s=timeout_s, on_sent=on_sent)

    world.make_exchange = Slow
    async with world.running() as life:
        settlement, before = life.context.settlement, batches[1][0].name
        await life.log(*batches)  # the first is waited for, so that others are at hand together
        await life.until(lambda: settlement.reader.number == 4)
        all_met.set()
        await life.until(lambda: before in life.context.settled)
        assert settlement.point_of(before.series.flow).number == 2


async def test_pieces_whose_first_one_retention_ate_hold_nothing_up() -> None:
    # Their run goes on, and may have nothing more to say on this flow for days.
    world = World()
    _, *rest = in_pieces(world, entry(1))
    async with world.running() as life:
        await life.settled(await life.log(*rest, world.batch([entry("p")], exchange="prices")))
        await life.settled(await life.log(world.batch([entry(2)])))
    assert world.delivered("prices") == ["body p"]
    assert world.delivered() == ["body 2"]


async def test_split_delivers_to_the_other_exchange_and_counts_what_no_queue_wants() -> None:
    world = World(mesh(Exchange("orders", mode=ExchangeMode.SPLIT)))
    world.broker.exchanges["orders.in"] = []
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1)])))
        assert life.counters.unrouted == 1


async def test_the_ledger_has_a_row_for_every_message_and_says_what_became_of_it() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1), entry(2), entry(1)])))
    rows = world.rows()
    assert [o & OUTCOME_MASK for row in rows for o in row.outcomes] == [
        Outcome.DELIVERED,
        Outcome.DELIVERED,
        Outcome.DUPLICATE,
    ]
    assert {row.path for row in rows} == {("paris", "tokyo")}
    assert [(row.first_entry, row.count) for row in rows] == [(0, 2), (2, 1)]


async def test_what_was_packed_before_the_site_joined_is_passed_by_also_after_a_kill() -> None:
    world = World()
    absent = {"rev0": frozenset({"tokyo"})}
    async with world.running() as life:
        life.context.absent = absent
        before = world.batch([entry(1), entry(2)], revision="rev0")
        since = world.batch([entry(3)])
        await life.settled(await life.log(before, since))
        await life.kill()
    async with world.running() as life:
        life.context.absent = absent
        late = world.batch([entry(4)], origin="sydney", incarnation=b"incarn_s", revision="rev0")
        for_us = world.batch([entry(5)], to=("paris", "tokyo"), revision="rev0")
        await life.settled(await life.log(late, for_us))
    assert world.delivered() == ["body 3", "body 5"]
    assert not any(world.flags())
    assert [(row.revision, row.count) for row in world.rows()] == [("rev1", 1), ("rev0", 1)]
