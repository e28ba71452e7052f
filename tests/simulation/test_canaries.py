"""Canaries in whole meshes where nothing is published: who gets them, and what they show."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.format import read_header
from relay.links.canaries import QUIET_S
from relay.links.link_state import ReportedState
from relay.node.report import link_reports
from simulation.load import Load
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

PROMISED_S = 60.0
BACK_WITHIN_S = 30.0
ROUNDS = 5


def live(topology: str, sites: int, folder: Path, then: Callable[[World], Awaitable[None]]) -> None:
    """A mesh that runs and has nothing to do, until `then` is over."""

    async def run() -> None:
        world = World(simulated_mesh(topology, sites, 1), folder, random.Random(1))
        world.start()
        try:
            await world.publish(Load(2, 1.0))
            await world.until(world.is_drained, world.left, 60.0)
            await then(world)
            world.raise_if_broken()
        finally:
            await world.kill()

    run_in_virtual_time(run())


def canaries(world: World, site: str) -> Iterator[BatchHeader]:
    for record in world.brokers[site].stream.records:
        header = read_header(record.data)
        if header.kind is BatchKind.CANARY:
            yield header


def state_of(world: World, sender: str, receiver: str) -> tuple[str, str]:
    node = world.nodes[sender].node
    assert node is not None
    (link,) = [one for one in link_reports(node) if one["to"] == receiver]
    return link["state"], link["reason"]


@pytest.mark.parametrize(("topology", "sites"), [("line", 4), ("ring", 4), ("complete", 3)])
def test_they_go_into_the_neighbours_logs_and_no_further_and_leave_no_rows(
    topology: str, sites: int, tmp_path: Path
) -> None:
    async def look(world: World) -> None:
        ids = {name: site.cluster_id for name, site in world.mesh.sites.items()}
        due = {
            name: {ids[name], *(ids[link.sender] for link in world.mesh.links_to(name))}
            for name in world.sites
        }

        def came(name: str) -> Counter[str]:
            return Counter(header.name.series.origin for header in canaries(world, name))

        def are_there() -> bool:
            return all(came(name)[one] >= ROUNDS for name in due for one in due[name])

        within_s = ROUNDS * PROMISED_S
        await world.until(are_there, lambda: str({name: came(name) for name in due}), within_s)
        most = asyncio.get_running_loop().time() / QUIET_S
        for name in world.sites:
            assert set(came(name)) == due[name]
            assert max(came(name).values()) <= most
            for link in world.mesh.links_from(name):
                assert state_of(world, name, link.receiver) == (ReportedState.RUNNING, "")
        await world.stop()
        for site in world.sites.values():
            assert BatchKind.CANARY not in {row.kind for row in site.ledger_rows()}

    live(topology, sites, tmp_path, look)


def test_a_link_without_messages_whose_other_log_takes_nothing_is_not_green_for_long(
    tmp_path: Path,
) -> None:
    async def look(world: World) -> None:
        first, second, *_ = world.sites

        async def becomes(within_s: float, *states: ReportedState) -> None:
            await world.until(
                lambda: state_of(world, first, second)[0] in states,
                lambda: str(state_of(world, first, second)),
                within_s,
            )

        await becomes(BACK_WITHIN_S, ReportedState.RUNNING)
        world.brokers[second].stream.hold_next_appends()
        await becomes(PROMISED_S, ReportedState.STALLED, ReportedState.DOWN)
        assert state_of(world, first, second)[1]
        world.brokers[second].stream.release_held()
        world.brokers[second].stream.break_connections()
        await becomes(BACK_WITHIN_S, ReportedState.RUNNING)

    live("line", 2, tmp_path, look)
