"""Sites of two nodes: the running node ends, dies or freezes, and the other one takes over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from relay.state.flow_state import ANNOUNCED_AT_MOST
from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.waiting import until

TOP = Path(__file__).resolve().parents[2]
NODES = ["tokyo-a", "tokyo-b"]
pytestmark = pytest.mark.long


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """The `cluster` of a site, on servers of its own."""
    # The clients of both stand apart: nodes that need none do without them.
    monkeypatch.setenv("PYTHONPATH", str(TOP / ".tools" / "cluster"))
    async with AsyncExitStack() as servers:
        zookeeper, cassandra = await asyncio.gather(
            servers.enter_async_context(ZookeeperNodes(tmp_path / "zookeeper", 3)),
            servers.enter_async_context(CassandraNodes(tmp_path / "cassandra", 1)),
        )
        yield {
            "zookeeper": zookeeper.hosts,
            "cassandra": {
                "hosts": [f"{address}:{cassandra.port}" for address in cassandra.addresses],
                "replication": 1,
            },
        }


@pytest.fixture
async def two_nodes(
    cluster: dict[str, Any], live_mesh: MeshFactory, load: LoadFactory
) -> tuple[LiveMesh, Load]:
    """A hub whose site in the middle has two nodes, with load at every site."""
    mesh = await live_mesh(
        *("paris", "tokyo", "sydney"),
        topology={"hub": "tokyo"},
        sites={"paris": {}, "tokyo": {"nodes": NODES, "cluster": cluster}, "sydney": {}},
    )
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh)
    await traffic.start()
    return mesh, traffic


@pytest.mark.parametrize("rounds", [3, 10])
async def test_a_killed_node_is_replaced(two_nodes: tuple[LiveMesh, Load], rounds: int) -> None:
    mesh, traffic = two_nodes
    for _ in range(rounds):
        await mesh.running()
        await traffic.more(500)
        runs = await mesh.node_that_runs("tokyo")
        mesh.kill(f"tokyo/{runs}")
        await _the_other_runs(mesh, runs)
        await traffic.more(500)
        mesh.start_node("tokyo", runs)
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * rounds)


@pytest.mark.parametrize("rounds", [3, 10])
async def test_a_node_that_ends_in_order_hands_over(
    two_nodes: tuple[LiveMesh, Load], rounds: int
) -> None:
    mesh, traffic = two_nodes
    for _ in range(rounds):
        await mesh.running()
        await traffic.more(500)
        runs = await mesh.node_that_runs("tokyo")
        assert mesh.stop(f"tokyo/{runs}") == 0
        await _the_other_runs(mesh, runs)
        await traffic.more(500)
        mesh.start_node("tokyo", runs)
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: 0)


@pytest.mark.parametrize("rounds", [2, 10])
async def test_a_frozen_node_is_replaced_and_does_no_harm_when_it_wakes(
    two_nodes: tuple[LiveMesh, Load], rounds: int
) -> None:
    mesh, traffic = two_nodes
    for _ in range(rounds):
        await mesh.running()
        await traffic.more(500)
        runs = await mesh.node_that_runs("tokyo")
        with _frozen(mesh, f"tokyo/{runs}"):
            await _the_other_runs(mesh, runs)
            await traffic.more(1000)
        await traffic.more(500)
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * rounds)


@contextmanager
def _frozen(mesh: LiveMesh, node: str) -> Iterator[None]:
    mesh.kill(node, signal.SIGSTOP)
    try:
        yield
    finally:
        mesh.kill(node, signal.SIGCONT)


async def _the_other_runs(mesh: LiveMesh, former: str) -> None:
    (other,) = set(NODES) - {former}
    states: dict[str, Any] = {}

    async def runs() -> bool:
        nonlocal states
        states = (await mesh.status())["sites"]["tokyo"]["nodes"]
        return bool(states[other]["state"] == "running")

    await until(runs, lambda: f"{other} runs: {states}\n{mesh.logs()}", 60, every_s=0.1)
