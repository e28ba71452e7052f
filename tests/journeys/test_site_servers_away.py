"""A site of two nodes whose ZooKeeper or Cassandra is away."""

from __future__ import annotations

from typing import Any

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from tests.journeys.several_nodes import TwoNodes
from tests.processes import frozen

pytestmark = pytest.mark.long
MANY = 20_000
"""Messages of some ten seconds or more: several sessions of ZooKeeper."""


def _epochs(nodes: dict[str, Any]) -> set[int]:
    return {slot["epoch"] for node in nodes.values() for slot in node["held"]}


@pytest.mark.parametrize("members", [2, 3])
async def test_no_slot_moves_and_nothing_stops_while_zookeeper_is_frozen(
    two_nodes: TwoNodes, members: int
) -> None:
    runs, other = await two_nodes.running()
    with frozen(*two_nodes.servers.zookeeper[:members]):
        await two_nodes.more_arrives(MANY)
        await two_nodes.until_nodes(
            lambda nodes: "standing by; " in nodes[other]["reason"], f"{other} knows"
        )
    # All sessions of a frozen ensemble may be over, and those of both nodes at once.
    await two_nodes.until_nodes(
        lambda nodes: nodes[other]["reason"] == f"standing by: {runs} runs the site", "it is back"
    )
    await two_nodes.more_arrives(MANY // 2)
    assert _epochs(await two_nodes.nodes()) == {1}
    await two_nodes.check(0)


async def test_one_frozen_node_of_cassandra_stops_nothing(two_nodes: TwoNodes) -> None:
    await two_nodes.running()
    for pid in two_nodes.servers.cassandra:
        with frozen(pid):
            await two_nodes.more_arrives(MANY // 2)
    assert _epochs(await two_nodes.nodes()) == {1}
    await two_nodes.check(0)


async def test_without_a_quorum_of_cassandra_nothing_is_announced_and_all_comes_later(
    two_nodes: TwoNodes,
) -> None:
    runs, _ = await two_nodes.running()
    with frozen(*two_nodes.servers.cassandra[1:]):
        await two_nodes.until_nodes(
            lambda nodes: nodes[runs]["held"][0]["journal_away_s"] is not None,
            "Cassandra is missed",
        )
        before = two_nodes.arrived
        await two_nodes.traffic.more(MANY)
        # What was announced before, of each of the flows of both neighbours.
        assert two_nodes.arrived <= before + 2 * ANNOUNCED_AT_MOST
        (slot,) = (await two_nodes.nodes())[runs]["held"]
        assert slot["waiting_bytes"] < 64 * 2**20
    await two_nodes.until_nodes(
        lambda nodes: any(
            slot["journal_away_s"] is None for node in nodes.values() for slot in node["held"]
        ),
        "Cassandra is back",
    )
    await two_nodes.check(0)
