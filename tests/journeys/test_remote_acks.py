"""`acks: remote`: egress keeps a message until a neighbour's log has it, over a kill between."""

from __future__ import annotations

import pytest

from federation.names import Names
from relay.packing.egress_acks import WAITING
from tests.journeys.conftest import MeshFactory
from tests.live_brokers import rabbitmqctl
from tests.waiting import until

COUNT = 600


@pytest.mark.slow
async def test_what_one_log_has_stays_in_egress_and_is_packed_once_whatever_is_killed(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(
        "paris",
        "tokyo",
        topology="complete",
        exchanges=[{"name": "orders", "acks": "remote"}],
    )
    egress = f"/queues/{{vhost}}/{Names(mesh.mesh.name).egress('orders')}"

    async def kept() -> int:
        """Messages in egress, as far as the broker's statistics tell by now."""
        told = await mesh.vhosts["paris"].api("GET", egress)
        return int(told.get("messages", -1))

    await mesh.listen()
    mesh.start(["paris"])
    await mesh.source("paris").publish(COUNT, with_id=False)

    async def kept_all() -> bool:
        return await kept() == COUNT

    async def waits_for_a_neighbour() -> None:
        await mesh.until_told(
            lambda told: told["sites"]["paris"].get("waiting_exchanges") == {"orders": WAITING},
            "paris waits for a neighbour's log",
        )
        await until(kept_all, "egress has all", 30)

    await waits_for_a_neighbour()
    assert (await mesh.status())["sites"]["paris"]["packed"] == COUNT
    mesh.kill("paris")
    mesh.start(["paris"])
    await waits_for_a_neighbour()
    assert (await mesh.status())["sites"]["paris"]["packed"] == 0, "recognised"
    mesh.start(["tokyo"])
    await mesh.running()
    await mesh.arrived()
    mesh.check(most_flags=0)

    async def forgotten() -> bool:
        return await kept() == 0

    await until(forgotten, "egress has forgotten all", 30)
    await mesh.until_told(
        lambda told: not told["sites"]["paris"]["waiting_exchanges"], "nothing waits"
    )
    await mesh.source("paris").publish(COUNT, with_id=False)
    await mesh.arrived()
    mesh.check(most_flags=0)
    await until(forgotten, "egress has forgotten these", 30)


@pytest.mark.long
async def test_messages_held_beyond_the_brokers_patience_come_again_and_are_packed_once(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(
        "paris",
        "tokyo",
        own=("paris",),
        topology="complete",
        exchanges=[{"name": "orders", "acks": "remote"}],
    )
    # The broker closes a channel that holds messages for so long: half an hour, unless told.
    await rabbitmqctl(
        mesh.vhosts["paris"].broker,
        "eval",
        "application:set_env(rabbit, consumer_timeout, 3000),"
        " application:set_env(rabbit, channel_tick_interval, 1000).",
    )
    await mesh.listen()
    mesh.start(["paris"])
    await mesh.source("paris").publish(COUNT, with_id=False)
    told = await mesh.until_told(
        lambda told: told if told["sites"]["paris"].get("incarnations", 0) >= 3 else None,
        "the broker lost its patience twice",
    )
    assert told["sites"]["paris"]["packed"] == COUNT
    mesh.start(["tokyo"])
    await mesh.running()
    await mesh.source("paris").publish(COUNT, with_id=False)
    await mesh.arrived()
    mesh.check(most_flags=0)
