"""Sites of two nodes: the running node ends, dies or freezes, and the other one takes over."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from relay import crash_points
from relay.state.flow_state import ANNOUNCED_BY_NODES
from tests.journeys.several_nodes import NODES, SITE, TwoNodes
from tests.waiting import until

ROUNDS = 10
OF_HALF_A_MINUTE = 45_000
"""Messages of all sites: the time after which links notice a freeze, too."""
DIES_AT = ("turn.claimed", "turn.raised", "turn.begun", "journal.writing", "journal.written")
FREEZES_AT = (
    *("turn.raised", "journal.writing", "journal.written"),
    *("packer.appending", "delivery.announced", "delivery.sent"),
)
pytestmark = pytest.mark.long


async def test_a_killed_node_is_replaced(two_nodes: TwoNodes) -> None:
    for _ in range(ROUNDS):
        runs, other = await two_nodes.running()
        two_nodes.signal(runs, signal.SIGKILL)
        await two_nodes.reaches(other, "running")
        two_nodes.start(runs)
    await two_nodes.check(ANNOUNCED_BY_NODES * ROUNDS)


async def test_a_node_that_ends_in_order_hands_over(two_nodes: TwoNodes) -> None:
    for _ in range(ROUNDS):
        runs, other = await two_nodes.running()
        two_nodes.stop(runs)
        await two_nodes.reaches(other, "running")
        two_nodes.start(runs)
    await two_nodes.check(0)


async def test_a_frozen_node_is_replaced_and_does_no_harm_when_it_wakes(
    two_nodes: TwoNodes,
) -> None:
    for count in (OF_HALF_A_MINUTE, *[10_000] * (ROUNDS - 1)):
        runs, other = await two_nodes.running()
        two_nodes.signal(runs, signal.SIGSTOP)
        await two_nodes.reaches(other, "running")
        await two_nodes.traffic.more(count, within_s=180)
        two_nodes.signal(runs, signal.SIGCONT)
        await two_nodes.reaches(runs, "standby")
    await two_nodes.check(ANNOUNCED_BY_NODES * ROUNDS)


async def test_a_node_that_dies_as_it_takes_over_is_replaced_too(
    two_nodes: TwoNodes, tmp_path: Path
) -> None:
    for point in DIES_AT:
        runs, other = await two_nodes.running()
        two_nodes.stop(other)
        two_nodes.start(other, **{crash_points.VARIABLE: f"{point}:1:{tmp_path / point}"})
        await two_nodes.reaches(other, "standby")
        two_nodes.signal(runs, signal.SIGKILL)
        assert await two_nodes.mesh.dies(f"{SITE}/{other}") == -signal.SIGKILL
        assert (tmp_path / point).exists()
        for node in NODES:
            two_nodes.start(node)
    await two_nodes.running()
    await two_nodes.check(ANNOUNCED_BY_NODES * 2 * len(DIES_AT))


async def test_a_node_that_freezes_there_is_refused_when_it_wakes(
    two_nodes: TwoNodes, tmp_path: Path
) -> None:
    refused = dict.fromkeys(NODES, 0)
    for point in FREEZES_AT:
        runs, other = await two_nodes.running()
        two_nodes.stop(other)
        count = 1 if point.startswith("turn") else 5
        frozen = tmp_path / point
        two_nodes.start(other, **{crash_points.FREEZE: f"{point}:{count}:{frozen}"})
        await two_nodes.reaches(other, "standby")
        two_nodes.signal(runs, signal.SIGKILL)
        await until(frozen.exists, two_nodes.mesh.logs, 60)
        two_nodes.start(runs)
        await two_nodes.reaches(runs, "running")
        two_nodes.signal(other, signal.SIGCONT)
        await two_nodes.reaches(other, "standby")
        refused[other] += 1
        await two_nodes.is_refused(other, refused[other])
    await two_nodes.check(ANNOUNCED_BY_NODES * 2 * len(FREEZES_AT))
