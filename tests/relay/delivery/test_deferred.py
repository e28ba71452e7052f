"""Tests of `order: best_effort`: refused messages are tried again while later ones go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federation.mesh import Exchange, Mesh, OrderRule
from relay.batches.batch import BatchName, Entry, LoggedBatch
from relay.delivery import deferred_batches, deliverer, redelivery
from relay.delivery.deferred_batches import WaitingBatch
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.memory_exchange import MemoryBroker
from relay.delivery.part_builder import ReadBatch
from relay.delivery.redelivery import Redelivery
from relay.ledger.rows import OUTCOME_MASK, REDELIVERED, Outcome
from relay.log.run import LogSettings
from relay.state.node_state import NodeState
from relay.waiters import Signal
from tests.relay.deliverer_world import FAST, Life, World, entry, mesh

PATIENT = replace(FAST, max_attempts=10**6)
SYDNEY: dict[str, Any] = {"origin": "sydney", "incarnation": b"incarn_2"}


class KeyedBroker(MemoryBroker):
    """Broker with a full queue behind the routing key `full`, and behind `both` this queue and one
    that takes the message.
    """

    is_full = True

    def take(self, exchange: str, message: Outgoing) -> Answer:
        if message.routing_key == b"full" and self.is_full:
            return Answer.REFUSED
        answer = super().take(exchange, message)
        return Answer.REFUSED if message.routing_key == b"both" and self.is_full else answer


def best_effort(**changes: object) -> Mesh:
    exchange = Exchange("orders", order=OrderRule.BEST_EFFORT, retry=PATIENT)
    return mesh(replace(exchange, **changes), Exchange("prices"))  # type: ignore[arg-type]


def world_with(known: Mesh | None = None) -> tuple[World, KeyedBroker]:
    broker = KeyedBroker()
    return World(known or best_effort(), broker=broker), broker


def mixed(count: int, *, every: int = 3) -> list[Entry]:
    """Make messages of which each third goes to the full queue."""
    return [entry(n, routing_key=b"full" if n % every == 0 else b"free") for n in range(count)]


def outcomes(world: World) -> list[int]:
    return [o & OUTCOME_MASK for row in world.rows() for o in row.outcomes]


async def test_later_messages_go_on_and_only_refused_ones_are_flagged() -> None:
    world, broker = world_with()
    async with world.running() as life:
        await life.log(world.batch(mixed(9)), world.batch([entry("later")]))
        await life.until(lambda: "body later" in world.delivered())
        assert len(world.delivered()) == 7
        assert not life.deliverer.standing
        await life.until(lambda: life.counters.deferred == 3)  # counted as it is saved
        broker.is_full = False
        name = await life.log(world.batch([entry("last")]))
        await life.settled(name)
    bodies = world.delivered()
    assert sorted(bodies) == sorted([*(f"body {n}" for n in range(9)), "body later", "body last"])
    flagged = {body for body, is_flagged in zip(bodies, world.flags(), strict=True) if is_flagged}
    assert flagged == {"body 0", "body 3", "body 6"}
    assert outcomes(world).count(Outcome.DELIVERED) == 11
    assert sum(bool(o & REDELIVERED) for row in world.rows() for o in row.outcomes) == 3


async def test_each_entry_has_one_row_whatever_the_order_of_settling() -> None:
    world, broker = world_with()
    async with world.running() as life:
        name = await life.log(world.batch(mixed(10)))
        await life.until(lambda: life.counters.deferred == 4)
        broker.is_full = False
        await life.settled(name)
    entries = [row.first_entry + n for row in world.rows() for n in range(row.count)]
    assert sorted(entries) == list(range(10))


@pytest.mark.parametrize("has_identities", [True, False])
async def test_a_restart_sends_refused_messages_again_and_no_other(has_identities: bool) -> None:
    world, broker = world_with()
    made = mixed(9)
    if not has_identities:
        made = [one._replace(identity=bytes([n]) * 16) for n, one in enumerate(made)]
    life = Life(world)
    await life.start()
    await life.log(world.batch(made), world.batch([entry("later")]))
    await life.until(lambda: len(world.delivered()) == 7 and life.counters.deferred == 3)
    await life.until(lambda: len(outcomes(world)) == 7)
    await life.kill()
    broker.is_full = False
    async with world.running() as life:
        name = await life.log(world.batch([entry("last")]))
        await life.settled(name)
    assert sorted(world.delivered()) == sorted(
        [*(f"body {n}" for n in range(9)), "body later", "body last"]
    )
    assert sum(world.flags()) == 3
    assert not NodeState(world.store).load().deferred


async def test_a_restart_amid_refusals_waits_on_and_later_messages_pass() -> None:
    world, broker = world_with()
    async with world.running() as life:
        await life.log(world.batch(mixed(9)))
        await life.until(lambda: len(world.delivered()) == 6)
    async with world.running() as life:
        await life.log(world.batch([entry("later")]))
        await life.until(lambda: "body later" in world.delivered())
        assert life.counters.deferred == 0, "they wait since before"
        broker.is_full = False
        await life.until(lambda: len(world.delivered()) == 10)
    assert sum(world.flags()) == 3


async def test_a_refused_message_becomes_a_dead_letter_after_its_own_attempts() -> None:
    world, _ = world_with(best_effort(retry=FAST))
    async with world.running() as life:
        name = await life.log(world.batch(mixed(6)))
        await life.settled(name)
    assert len(world.delivered()) == 4
    dead = [message.body for _, message in world.broker.messages["dead"]]
    assert sorted(dead) == [b"body 0", b"body 3"]
    assert outcomes(world).count(Outcome.DEAD) == 2


async def test_a_copy_by_another_way_waits_with_the_deferred_message() -> None:
    world, broker = world_with()
    refused = entry(1, routing_key=b"full")
    async with world.running() as life:
        await life.log(world.batch([refused]))
        await life.until(lambda: life.counters.deferred == 1)
        copy = world.batch([refused, entry("after")], **SYDNEY)
        await life.log(copy)
        await life.until(lambda: "body after" in world.delivered())
        assert life.counters.deferred == 2
        broker.is_full = False
        await life.until(lambda: life.counters.duplicates == 1)
    assert sorted(world.delivered()) == ["body 1", "body after"]
    assert outcomes(world).count(Outcome.DUPLICATE) == 1


async def test_after_a_restart_a_copy_waits_before_the_deferred_message_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, broker = world_with()
    refused, may_be_read, read = entry(1, routing_key=b"both"), Signal(), Redelivery._read
    life = Life(world)
    await life.start()
    await life.log(world.batch([refused]))
    await life.until(lambda: life.counters.deferred == 1)
    await life.kill()
    tried = len(world.delivered())

    async def read_late(
        self: Redelivery, stretch: list[WaitingBatch]
    ) -> list[tuple[WaitingBatch, ReadBatch]]:
        await may_be_read.wait()
        return await read(self, stretch)

    monkeypatch.setattr(Redelivery, "_read", read_late)
    async with world.running() as life:
        await life.log(world.batch([refused]))
        await life.until(lambda: life.counters.deferred == 1)
        sent_meanwhile = len(world.delivered()) - tried
        broker.is_full = False
        may_be_read.set()
        await life.settled(await life.log(world.batch([entry("last")])))
    assert sent_meanwhile == 0
    assert world.delivered() == ["body 1"] * (tried + 1) + ["body last"]
    assert world.flags() == [False] + [True] * tried + [False]


async def test_batches_that_are_near_in_the_log_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, broker = world_with()
    world.log_settings = LogSettings(hot_bytes=1)
    find, read_at_once = Redelivery._find, list[int]()

    async def noting(
        self: Redelivery, stretch: list[WaitingBatch], found: dict[BatchName, LoggedBatch]
    ) -> None:
        await find(self, stretch, found)
        read_at_once.append(sum(found.keys() >= set(batch.names) for batch in stretch))

    monkeypatch.setattr(Redelivery, "_find", noting)
    async with world.running() as life:
        await life.log(*(world.batch([entry(n, routing_key=b"full")]) for n in range(6)))
        await life.until(lambda: max(read_at_once, default=0) >= 5)  # the log's tail has the last
        broker.is_full = False
        await life.settled(await life.log(world.batch([entry("last")])))
    assert sorted(world.delivered()) == [*(f"body {n}" for n in range(6)), "body last"]


async def test_what_is_not_behind_the_place_of_another_batch_is_read_from_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read a stretch whose order is not the log's."""
    monkeypatch.setattr(redelivery, "_stretches", lambda due: [due[::-1]] if due else [])
    monkeypatch.setattr(redelivery, "READ_BYTES", 1)
    world, broker = world_with()
    world.log_settings = LogSettings(hot_bytes=1)
    async with world.running() as life:
        await life.log(*(world.batch([entry(n, routing_key=b"full")]) for n in range(3)))
        await life.until(lambda: life.counters.deferred == 3)
        broker.is_full = False
        await life.settled(await life.log(world.batch([entry("last")])))
    assert len(world.delivered()) == len(set(world.delivered())) == 4


@pytest.mark.parametrize("twin", [0, 2])
async def test_a_twin_beside_a_refused_message_is_judged_before_it_is_sent(twin: int) -> None:
    world, broker = world_with()
    made = [entry(0, routing_key=b"full"), entry(1), entry(2)]
    async with world.running() as life:
        await life.log(world.batch([*made, made[twin], entry(3, routing_key=b"full")]))
        await life.until(lambda: life.counters.deferred == 3 - bool(twin))
        broker.is_full = False
        name = await life.log(world.batch([entry("last")]))
        await life.settled(name)
    assert sorted(world.delivered()) == sorted([*(f"body {n}" for n in range(4)), "body last"])
    assert sum(world.flags()) == 2
    assert life.counters.duplicates == 1


async def test_beyond_the_bound_the_flow_stands_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deferred_batches, "DEFERRED_AT_MOST", 2)
    world, broker = world_with()
    async with world.running() as life:
        await life.log(world.batch(mixed(9)))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.log(world.batch([entry("later")]), world.batch([entry("p")], exchange="prices"))
        await life.until(lambda: bool(world.delivered("prices")))
        assert "body later" not in world.delivered()
        broker.is_full = False
        name = await life.log(world.batch([entry("last")]))
        await life.settled(name)
    assert len(world.delivered()) == len(set(world.delivered())) == 11


async def test_strict_flows_stand_as_ever() -> None:
    world, broker = world_with(best_effort(order=OrderRule.STRICT))
    async with world.running() as life:
        await life.log(world.batch(mixed(9)))
        await life.until(lambda: bool(life.deliverer.standing))
        name = await life.log(world.batch([entry("later")]))
        broker.is_full = False
        await life.settled(name)
    assert world.delivered()[-1] == "body later"
    assert life.counters.deferred == 0


@pytest.mark.parametrize("is_copy_deferred", [False, True])
async def test_after_a_restart_a_copy_before_a_deferred_message_is_not_judged_first(
    monkeypatch: pytest.MonkeyPatch, *, is_copy_deferred: bool
) -> None:
    """Refuse a message that a queue has taken; a copy before it in the log is judged after it."""
    monkeypatch.setattr(deferred_batches, "DEFERRED_AT_MOST", 1)
    monkeypatch.setattr(deliverer, "READ_BYTES", 1)
    world, broker = world_with()
    refused = entry(1, routing_key=b"both")
    async with world.running() as life:
        await life.log(world.batch([entry("a", routing_key=b"full")], **SYDNEY))
        await life.log(world.batch([entry("b", routing_key=b"full")], **SYDNEY))
        await life.until(lambda: bool(life.deliverer.standing))
        await life.log(world.batch([refused], **SYDNEY))
        await life.log(world.batch([refused]))
        await life.until(lambda: life.counters.deferred == 2)
        if is_copy_deferred:
            monkeypatch.setattr(deferred_batches, "DEFERRED_AT_MOST", 1000)
            await life.until(lambda: life.counters.deferred == 4)
        await life.kill()
    broker.is_full = False
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
        await life.until(lambda: life.counters.duplicates == 1)
        assert not life.context.barrier.claims
    sent = zip(world.delivered(), world.flags(), strict=True)
    flags = [is_flagged for body, is_flagged in sent if body == "body 1"]
    assert flags == [False] + [True] * (len(flags) - 1)


async def test_a_deferred_message_that_the_log_has_lost_holds_nobody_up() -> None:
    world, _ = world_with()
    async with world.running() as life:
        await life.log(world.batch([entry(1, routing_key=b"full")]))
        await life.until(lambda: life.counters.deferred == 1)
        await life.kill()
    world.stream.lose_tail(1)
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("last")])))
    assert world.delivered() == ["body last"]
