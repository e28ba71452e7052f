"""The log's connection goes to the stream's leader, whichever node was asked for it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from federation.brokers.address_ring import AddressRing
from federation.brokers.addresses import StreamAddress
from federation.brokers.endpoint import Endpoint
from relay.log.rabbit.leader_connection import open_connection
from relay.log.rabbit.stream_connection import StreamConnection
from relay.log.site_log import LogClosed
from tests.relay.log.fake_stream_cluster import FakeCluster, FakeNode
from tests.waiting import until

NOWHERE = Endpoint("127.0.0.1", 1)
"""Refuses every connection: what a node behind a port forward advertises."""


async def opened(
    *places: Endpoint, ring: AddressRing[Endpoint] | None = None, deadline_s: float = 20.0
) -> StreamConnection:
    first, *others = places
    address = StreamAddress(first.host, first.port, "/", "u", "p", others=tuple(others))
    return await open_connection(
        address, "log", heartbeat_s=10, name="test", deadline_s=deadline_s, ring=ring
    )


async def ended(connection: StreamConnection) -> None:
    connection.abort("the test is over")
    await connection.ended()


async def two_nodes(
    stack: contextlib.AsyncExitStack, cluster: FakeCluster
) -> tuple[list[FakeNode], list[Endpoint]]:
    """Nodes that advertise where they listen."""
    nodes = [FakeNode(NOWHERE), FakeNode(NOWHERE)]
    places = [await stack.enter_async_context(cluster.listening(node)) for node in nodes]
    for node, place in zip(nodes, places, strict=True):
        node.advertised = place
    return nodes, places


async def test_a_node_that_is_not_the_leader_tells_where_it_is() -> None:
    cluster = FakeCluster()
    async with contextlib.AsyncExitStack() as stack:
        nodes, places = await two_nodes(stack, cluster)
        cluster.leader = nodes[1]
        connection = await opened(places[0])  # the other one is not in the list
        assert cluster.publishers_at == [nodes[1]]
        assert connection.endpoint == places[1]
        await ended(connection)


async def test_the_next_connection_begins_at_the_leader_and_follows_it_when_it_moves() -> None:
    cluster, ring = FakeCluster(), AddressRing[Endpoint]()
    async with contextlib.AsyncExitStack() as stack:
        nodes, places = await two_nodes(stack, cluster)
        cluster.leader = nodes[1]
        first = await opened(*places, ring=ring)
        assert ring.in_use_of_several == places[1]
        cluster.leader = nodes[0]
        await ended(first)
        assert ring.in_use is None
        second = await opened(*places, ring=ring)
        assert cluster.publishers_at == [nodes[1], nodes[0]]
        assert ring.in_use == places[0]
        await ended(second)


async def test_behind_port_forwards_the_leader_is_met_by_trying_all_addresses() -> None:
    cluster = FakeCluster()
    nodes = [FakeNode(Endpoint(f"rabbit-{n}.invalid", 5552)) for n in range(3)]
    cluster.leader = nodes[2]
    async with contextlib.AsyncExitStack() as stack:
        places = [await stack.enter_async_context(cluster.listening(node)) for node in nodes]
        connection = await opened(*places)
        assert connection.endpoint == places[2]
        await ended(connection)


async def test_behind_a_load_balancer_it_is_asked_again_until_it_leads_to_the_leader() -> None:
    cluster = FakeCluster()
    nodes = [FakeNode(Endpoint(f"rabbit-{n}.invalid", 5552)) for n in range(3)]
    cluster.leader = nodes[2]
    async with cluster.listening(*nodes) as balancer:
        connection = await opened(balancer)
        assert cluster.publishers_at == [nodes[2]]
        await ended(connection)


async def test_a_leader_that_cannot_be_reached_is_told_with_what_it_advertises() -> None:
    cluster = FakeCluster()
    follower, leader = FakeNode(Endpoint("a.invalid", 5552)), FakeNode(NOWHERE)
    cluster.leader = leader
    async with cluster.listening(follower) as place:
        with pytest.raises(LogClosed, match=r"advertises 127\.0\.0\.1:1, was not met: no conn"):
            await opened(place)
    assert not cluster.publishers_at


async def test_a_node_that_hangs_does_not_keep_the_log_from_the_others() -> None:
    cluster = FakeCluster()
    async with contextlib.AsyncExitStack() as stack:
        nodes, places = await two_nodes(stack, cluster)
        nodes[0].hangs, cluster.leader = True, nodes[1]
        connection = await opened(*places)
        assert connection.endpoint == places[1]
        await ended(connection)


async def test_a_node_of_a_minority_that_knows_no_leader_is_passed_over() -> None:
    cluster = FakeCluster()
    async with contextlib.AsyncExitStack() as stack:
        nodes, places = await two_nodes(stack, cluster)
        nodes[0].has_quorum, cluster.leader = False, nodes[1]
        connection = await opened(*places)
        assert (nodes[0].logins, connection.endpoint) == (1, places[1])
        await ended(connection)


async def test_a_dead_first_address_costs_nothing() -> None:
    cluster = FakeCluster()
    async with contextlib.AsyncExitStack() as stack:
        nodes, places = await two_nodes(stack, cluster)
        cluster.leader = nodes[1]
        connection = await opened(NOWHERE, places[1])
        await ended(connection)


async def test_while_nobody_leads_every_node_is_asked_and_the_log_is_away() -> None:
    cluster = FakeCluster()
    async with contextlib.AsyncExitStack() as stack:
        nodes, places = await two_nodes(stack, cluster)
        with pytest.raises(LogClosed, match="Leader not yet elected"):
            await opened(*places)
        assert [node.logins for node in nodes] == [1, 1]
        await until(lambda: len(asyncio.all_tasks()) < 10, "the end of what was given up", 10)


@pytest.mark.parametrize("leaderless", [1, 2])
async def test_a_node_that_leads_alone_is_left_while_most_nodes_know_no_leader(
    leaderless: int,
) -> None:
    cluster = FakeCluster()
    async with contextlib.AsyncExitStack() as stack:
        nodes = [FakeNode(NOWHERE) for _ in range(3)]
        places = [await stack.enter_async_context(cluster.listening(node)) for node in nodes]
        for node, place in zip(nodes, places, strict=True):
            node.advertised = place
        for node in nodes[:leaderless]:
            node.has_quorum = False
        cluster.leader = nodes[2]
        if leaderless == 1:
            connection = await opened(*places)
            assert connection.endpoint == places[2]
            await ended(connection)
        else:
            with pytest.raises(LogClosed, match="says that it leads stream 'log', and most"):
                await opened(*places)
            assert not cluster.publishers_at
