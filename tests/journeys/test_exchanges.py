"""What of an exchange leaves a site, and where it goes: types, keys, `from`, `to`, `mode`."""

from __future__ import annotations

import uuid
from dataclasses import replace

from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, PRIORITY, rewrite
from relay.bulk_amqp.field_table import entry, long_string
from tests.journeys.application import Letter, at, counters_say, letter
from tests.journeys.conftest import MeshFactory

FOUR = ("paris", "tokyo", "sydney", "lima")


def letters(*bodies: str, key: bytes = b"order.new", **headers: bytes) -> list[Letter]:
    return [letter(body.encode(), str(uuid.uuid4()), key=key, **headers) for body in bodies]


async def test_a_split_exchange_goes_from_its_origins_to_its_destinations_and_to_no_other(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(
        *FOUR,
        topology="ring",
        exchanges=[
            {"name": "prices", "from": ["paris"], "to": ["tokyo", "lima"], "mode": "split"},
        ],
    )
    mesh.start()
    await mesh.running()
    async with at(mesh, "paris", "tokyo", "lima") as (paris, tokyo, lima):
        at_tokyo = await tokyo.listen("prices.in", "gold.#")
        # Beyond a site that is no destination, which only passes it on.
        at_lima = await lima.listen("prices.in")
        numbers = [f"{n}" for n in range(200)]
        await paris.post("prices", *letters(*numbers, key=b"gold.spot"))
        await paris.post("prices", *letters("nobody's", key=b"silver.spot"))
        await at_tokyo.has(200)
        await at_lima.has(201)
        assert at_tokyo.bodies == [n.encode() for n in numbers]
        assert at_lima.bodies == [*at_tokyo.bodies, b"nobody's"]
        # Nobody's message at tokyo: counted, as the exchange is the mesh's own there.
        await counters_say(mesh, "tokyo", delivered=200, unrouted=1)
        await counters_say(mesh, "lima", delivered=201, unrouted=0)

        # A site that only passes them on has no such exchange, and nothing delivered.
        await counters_say(mesh, "sydney", delivered=0, unrouted=0)


async def test_each_type_of_exchange_leaves_by_its_own_rule(live_mesh: MeshFactory) -> None:
    mesh = await live_mesh(
        "paris",
        "tokyo",
        topology="complete",
        exchanges=[
            {"name": "topic", "keys": ["order.#", "*.urgent"]},
            {"name": "direct", "type": "direct", "keys": ["red", "blue"]},
            {"name": "fanout", "type": "fanout"},
            {"name": "headers", "type": "headers"},
        ],
    )
    mesh.start()
    await mesh.running()
    async with at(mesh, "paris", "tokyo") as (paris, tokyo):
        topic = await tokyo.listen("topic")
        red = await tokyo.listen("direct", "red", queue="red")
        blue = await tokyo.listen("direct", "blue", queue="blue")
        fanout = await tokyo.listen("fanout", "")
        headers = await tokyo.listen("headers", "")

        async def send(exchange: str, *keys: str) -> None:
            for key in keys:
                await paris.post(exchange, *letters(key, key=key.encode()))

        await send("topic", "order", "quote.new", "order.a.b", "quote.urgent", "x.y.urgent")
        await send("direct", "red", "green", "blue", "red")
        await send("fanout", "anything", "")
        marked = letter(b"marked", str(uuid.uuid4()), headers=entry(b"x", long_string(b"1")))
        await paris.post("headers", marked, *letters("bare"))
        # The last of each exchange is one that leaves: what does not would have come before it.
        await send("topic", "order.last")
        assert [m.body for m in await topic.has(4)] == [
            b"order",
            b"order.a.b",
            b"quote.urgent",
            b"order.last",
        ]
        assert [m.body for m in await red.has(2)] == [b"red", b"red"]
        assert [m.body for m in await blue.has(1)] == [b"blue"]
        assert [m.body for m in await fanout.has(2)] == [b"anything", b""]
        assert [m.body for m in await headers.has(2)] == [b"marked", b"bare"]
        assert headers.got[0].own_headers == {b"x": long_string(b"1")}
        assert all(m.path == ("paris", "tokyo") for m in topic.got)


async def test_an_exchange_that_is_deleted_is_said_and_taken_up_after_apply(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "tokyo", topology="complete")
    mesh.start()
    await mesh.running()
    async with at(mesh, "paris", "tokyo") as (paris, tokyo):
        await paris.post("orders", *letters("before"))
        await counters_say(mesh, "tokyo", delivered=1)
        await mesh.vhosts["tokyo"].api("DELETE", "/exchanges/{vhost}/orders")
        await paris.post("orders", *letters("meanwhile", "and more"))
        # First what was under way is in doubt, then it is seen that there is no exchange.
        await mesh.until_told(
            lambda told: (
                "apply" in told["sites"]["tokyo"]["standing_flows"].get("paris/orders", "")
            ),
            "the flow stands until the next apply",
        )
        await mesh.apply()
        await counters_say(mesh, "tokyo", delivered=3, dead_lettered=0)
        assert not (await mesh.status())["sites"]["tokyo"]["standing_flows"]
        inbox = await tokyo.listen("orders")
        await paris.post("orders", *letters("after"))
        assert [m.body for m in await inbox.has(1)] == [b"after"]
        assert not inbox.got[0].flagged


async def test_an_exchange_that_is_not_declared_yet_waits_alone_and_is_taken_up_after_apply(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "tokyo", topology="complete")
    mesh.document["exchanges"].append({"name": "late"})
    mesh.write()
    mesh.start()
    await mesh.running()
    async with at(mesh, "paris", "tokyo") as (paris, tokyo):
        orders = await tokyo.listen("orders")
        await mesh.until_told(
            lambda told: "late" in told["sites"]["paris"]["waiting_exchanges"],
            "paris says that its egress queue is not there",
        )
        await paris.post("orders", *letters("others go on"))
        await orders.has(1)
        await mesh.apply()
        late = await tokyo.listen("late")
        await paris.post("late", *letters("declared"))
        await late.has(1)
        await mesh.until_told(
            lambda told: not told["sites"]["paris"]["waiting_exchanges"], "it is taken up"
        )
        told = await mesh.status()
        assert told["sites"]["paris"]["incarnations"] == 1, "nothing else was disturbed"


async def test_publishers_priorities_change_the_order_only_where_the_exchange_lets_them(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(
        "paris",
        "tokyo",
        topology="complete",
        exchanges=[{"name": "orders", "priorities": "order"}, {"name": "prices"}],
    )
    mesh.start_each()
    await mesh.running()
    mesh.stop("paris")
    numbers = range(300)
    async with at(mesh, "paris", "tokyo") as (paris, tokyo):
        inboxes = {name: await tokyo.listen(name) for name in ("orders", "prices")}
        for name in inboxes:
            await paris.post(
                name,
                *(
                    replace(
                        letter(b"%d" % number, str(uuid.uuid4())),
                        properties=rewrite(NONE_PRESENT, {DELIVERY_MODE: 2, PRIORITY: number % 10}),
                    )
                    for number in numbers
                ),
            )
        mesh.start(["paris"])
        orders = {}
        for name, inbox in inboxes.items():
            await inbox.has(len(numbers))
            orders[name] = [int(body) for body in inbox.bodies]
    assert orders["orders"] == list(numbers)
    by_priority = sorted(numbers, key=lambda number: -(number % 10))
    release = mesh.vhosts["paris"].broker.installation.release
    if release < (4, 0):
        assert orders["prices"] == list(numbers)
    elif release >= (4, 3):
        assert orders["prices"] == by_priority
    assert sorted(orders["prices"]) == list(numbers)
