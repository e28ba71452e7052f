"""A dead letter that a repair brought is sent again as the repair would have delivered it."""

from __future__ import annotations

from collections.abc import Collection

from relay.batches.batch import BatchName, Series
from relay.batches.mesh_headers import as_repaired
from relay.bulk_amqp import Connection
from relay.delivery.put_aside import AsideOrigin, PutAside
from relay.ledger_proof import LedgerUnreadable, Sought
from relay.operator.mending import Mended, Mending
from tests.relay.deliverer_world import World, entry


async def nothing(sought: Collection[Sought], since_ms: int) -> set[Sought]:
    return set()


async def everything(sought: Collection[Sought], since_ms: int) -> set[Sought]:
    return set(sought)


async def no_ledger(sought: Collection[Sought], since_ms: int) -> set[Sought]:
    raise LedgerUnreadable("the disk is gone")


async def unasked() -> Connection:
    raise AssertionError("nobody connects")


def letter() -> PutAside:
    brought = as_repaired(entry(1), "paris")
    name = BatchName(Series("sydney", b"incarn_s", "orders", 0, ("tokyo",)), 0)
    origin = AsideOrigin(name, 0, ("sydney", "tokyo"), brought.identity, brought.published_ms)
    return PutAside(
        1, "refused", 5, "orders", brought.routing_key, origin, brought.properties, brought.body
    )


async def test_what_is_remembered_without_a_delivery_is_sent_once() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1)])))
        mending = Mending(life.context, unasked)
        life.context.delivered_before = no_ledger
        assert (await mending._send_again(letter())).outcome is Mended.KEPT
        life.context.delivered_before = nothing
        assert (await mending._send_again(letter())).outcome is Mended.DELIVERED
        assert (await mending._send_again(letter())).outcome is Mended.DUPLICATE
        assert not life.context.barrier.claims
    assert world.delivered() == ["body 1", "body 1"]


async def test_what_has_been_delivered_by_another_way_is_not_sent() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1)])))
        life.context.delivered_before = everything
        result = await Mending(life.context, unasked)._send_again(letter())
        assert result.outcome is Mended.DUPLICATE
    assert world.delivered() == ["body 1"]
