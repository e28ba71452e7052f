"""A site of two nodes whose ZooKeeper or Cassandra is away."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.server_group import Server
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from relay.state.flow_state import ANNOUNCED_BY_NODES
from tests.journeys.conftest import LoadFactory, MeshFactory, hub_of_two_nodes
from tests.journeys.several_nodes import SiteServers, TwoNodes
from tests.processes import frozen

pytestmark = pytest.mark.long
MANY = 20_000
"""Messages of some ten seconds or more: several sessions of ZooKeeper."""
MOST_PAUSE_S = 3.0
"""Longest pause of deliveries, beyond that of the same machine without a fault: a takeover, or a
wait for a frozen server, is longer, and another second is common where the machine is busy."""


def _epochs(nodes: dict[str, Any]) -> set[int]:
    return {slot["epoch"] for node in nodes.values() for slot in node["held"]}


@pytest.mark.parametrize("members", [2, 3])
async def test_no_slot_moves_and_nothing_stops_while_zookeeper_is_frozen(
    two_nodes: TwoNodes, members: int
) -> None:
    runs, other = await two_nodes.running()
    usual_s = await two_nodes.more_arrives(MANY // 4)
    with frozen(*two_nodes.servers.zookeeper[:members]):
        pause_s = await two_nodes.more_arrives(MANY)
        assert pause_s < usual_s + MOST_PAUSE_S
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
    usual_s = await two_nodes.more_arrives(MANY // 4)
    for pid in two_nodes.servers.cassandra:
        with frozen(pid):
            pause_s = await two_nodes.more_arrives(MANY // 2)
            assert pause_s < usual_s + MOST_PAUSE_S
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
        assert two_nodes.arrived <= before + 2 * ANNOUNCED_BY_NODES
        (slot,) = (await two_nodes.nodes())[runs]["held"]
        assert slot["waiting_bytes"] < 64 * 2**20
    await two_nodes.until_nodes(
        lambda nodes: any(
            slot["journal_away_s"] is None for node in nodes.values() for slot in node["held"]
        ),
        "Cassandra is back",
    )
    await two_nodes.check(0)


class WrongClock:
    """A server whose clock is so many seconds ahead."""

    def __init__(self, server: Server, ahead_s: int) -> None:
        self._server = server
        self._ahead_s = ahead_s
        self.folder = server.folder
        self.prepare, self.serves = server.prepare, server.serves

    @property
    def command(self) -> Sequence[str]:
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        settings = {
            "LD_PRELOAD": str(library),
            "FAKETIME": f"{self._ahead_s:+}",
            # Java waits by the monotonic clock, which stays as it is. With the library's own mend
            # of such waits each of them would return at once.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        return (
            "env",
            *(f"{name}={value}" for name, value in settings.items()),
            *self._server.command,
        )


class OneWrongClock(CassandraNodes):
    """Cassandra of three nodes, one of which has a clock that is so many seconds ahead."""

    def __init__(self, folder: Path, ahead_s: int) -> None:
        super().__init__(folder, 3)
        self.wrong = self.addresses[1]
        self._servers[self.wrong] = WrongClock(self._servers[self.wrong], ahead_s)


@pytest.mark.parametrize("ahead_s", [3600, -3600])
async def test_a_clock_of_cassandra_that_is_an_hour_wrong_changes_nothing(
    ahead_s: int, tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    from dedup.journal.cassandra_session import CassandraAccess, ReadingSession

    cassandra = OneWrongClock(tmp_path / "cassandra", ahead_s)
    async with ZookeeperNodes(tmp_path / "zookeeper", 3) as zookeeper, cassandra:
        access = CassandraAccess(
            hosts=[(cassandra.wrong, cassandra.port)], datacenter="datacenter1", keyspace="none"
        )
        session = await asyncio.to_thread(ReadingSession, access, 10.0)
        (row,) = session.begin("SELECT toTimestamp(now()) AS now FROM system.local")()
        session.close()
        found_s = row.now.replace(tzinfo=UTC).timestamp() - time.time()
        assert found_s == pytest.approx(ahead_s, abs=60)
        two_nodes = await hub_of_two_nodes(SiteServers(zookeeper, cassandra), live_mesh, load)
        for _ in range(3):
            runs, other = await two_nodes.running()
            two_nodes.signal(runs, signal.SIGKILL)
            await two_nodes.reaches(other, "running")
            two_nodes.start(runs)
        await two_nodes.more_arrives(MANY // 2)
        await two_nodes.check(3 * ANNOUNCED_BY_NODES)
        await two_nodes.mesh.close()
