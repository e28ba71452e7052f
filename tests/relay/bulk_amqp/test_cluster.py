"""Connecting to whichever node of a cluster answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from pamqp import commands

from federation.brokers import address_ring
from federation.brokers.address_ring import AddressRing
from federation.brokers.endpoint import Endpoint
from relay.bulk_amqp import (
    Address,
    AuthenticationFailed,
    Cluster,
    Connection,
    ConnectionFailed,
    connect,
)
from tests.live_brokers import Vhost
from tests.relay.bulk_amqp.fake_broker import Client, Script, fake_broker, forever
from tests.waiting import until

DEAD = Endpoint("127.0.0.1", 1)
URI = "amqp://user:secret@nowhere.invalid/vhost"


async def welcoming(client: Client) -> None:
    await client.log_in()
    while True:
        _, frame = await client.next_frame()
        if isinstance(frame, commands.Connection.Close):
            client.send(0, commands.Connection.CloseOk())


async def refusing(client: Client) -> None:
    await client.greet()
    await client.expect(commands.Connection.StartOk)
    client.send(0, commands.Connection.Close(403, "no such user", 0, 0))
    await forever()


async def mute(client: Client) -> None:
    await forever()


@contextlib.asynccontextmanager
async def nodes(*scripts: Script) -> AsyncIterator[list[Endpoint]]:
    async with contextlib.AsyncExitStack() as stack:
        uris = [await stack.enter_async_context(fake_broker(one)) for one in scripts]
        yield [Endpoint(uri.host, uri.port) for uri in map(Address.parse, uris)]


async def test_a_dead_first_address_is_passed_over() -> None:
    async with nodes(welcoming) as [alive]:
        connection = await connect(Cluster.of(URI, [DEAD, alive]))
        assert (connection.address.host, connection.address.port) == (alive.host, alive.port)
        assert connection.address.vhost == "vhost"
        connection.abort("the test is over")


async def test_a_node_that_takes_connections_and_says_nothing_is_passed_over() -> None:
    async with nodes(mute, welcoming) as [hanging, alive]:
        connection = await connect(Cluster.of(URI, [hanging, alive]))
        assert connection.address.port == alive.port
        connection.abort("the test is over")


async def test_the_next_connection_begins_at_the_node_that_worked() -> None:
    ring = AddressRing[Endpoint]()
    async with nodes(welcoming, welcoming) as places:
        ring.worked(places[1])
        cluster = Cluster.of(URI, places, ring)
        connection = await connect(cluster)
        assert connection.address.port == places[1].port
        assert ring.in_use_of_several == places[1]
        connection.abort("the test is over")
        assert ring.in_use is None
        again = await connect(cluster)  # it was a short one
        assert again.address.port == places[0].port
        again.abort("the test is over")


async def test_a_node_that_was_lost_is_tried_last_and_one_that_was_left_in_order_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address_ring, "SHORT_S", 1e-9)
    async with nodes(welcoming, welcoming) as places:
        cluster = Cluster.of(URI, places)
        for port, end in ((places[0].port, Connection.close), (places[0].port, lose)):
            connection = await connect(cluster)
            assert connection.address.port == port
            await end(connection)
        connection = await connect(cluster)
        assert connection.address.port == places[1].port
        await connection.close()


async def lose(connection: Connection) -> None:
    connection.abort("the node is lost")


async def test_what_every_node_has_said_is_told_when_none_lets_us_in() -> None:
    async with nodes(refusing) as [refuser]:
        with pytest.raises(AuthenticationFailed, match=r":1 vhost .* reached: .*; .* no such user"):
            await connect(Cluster.of(URI, [DEAD, refuser]))
    with pytest.raises(ConnectionFailed) as failed:
        await connect(Cluster.of(URI, [DEAD, Endpoint("127.0.0.1", 2)]))
    assert not isinstance(failed.value, AuthenticationFailed)
    assert "secret" not in str(failed.value)


async def test_the_error_of_a_single_address_is_what_it_is_without_a_list() -> None:
    uri = "amqp://user:secret@127.0.0.1:1/vhost"
    said = []
    for target in (uri, Cluster.of(uri, [DEAD])):
        with pytest.raises(ConnectionFailed) as failed:
            await connect(target)
        said.append(str(failed.value))
    assert said[0] == said[1]


async def test_a_name_with_several_addresses_counts_as_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with nodes(welcoming) as [alive]:

        async def getaddrinfo(_: object, host: str, port: int, **__: object) -> object:
            ips = ("127.0.0.9", alive.host) if host == "rabbits.example" else (host,)
            return [(2, 1, 6, "", (ip, port)) for ip in ips]

        monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)
        connection = await connect(Cluster.of(URI, [Endpoint("rabbits.example", alive.port)]))
        assert connection.address.host == "rabbits.example"
        connection.abort("the test is over")


async def test_nothing_is_left_of_nodes_that_were_slower() -> None:
    made: list[Connection] = []
    async with nodes(mute, welcoming) as places:
        made.append(await connect(Cluster.of(URI, places)))
        await until(lambda: len(asyncio.all_tasks()) < 6, "the end of the slower attempt", 10)
    made[0].abort("the test is over")


@pytest.mark.live
async def test_a_real_broker_behind_a_dead_address_is_reached(vhost: Vhost) -> None:
    places = [DEAD, Endpoint(vhost.host, vhost.amqp_port)]
    connection = await connect(Cluster.of(vhost.amqp_uri, places))
    assert connection.server_properties["cluster_name"]
    await connection.close()
