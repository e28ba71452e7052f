"""A node that dies at any of its named moments, under load, on any graph: nothing is lost, nothing
is repeated unflagged, little is flagged, and the ledger tells of everything once.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay import crash_points
from relay.batches.fragments import PIECE_BYTES
from relay.packing.egress_acks import HOLD_TAGS
from relay.state.flow_state import ANNOUNCED_AT_MOST
from tests.journeys.books import check_rows
from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load

THREE = ("paris", "tokyo", "sydney")
GRAPHS: dict[str, dict[str, Any]] = {
    "ring": {"topology": "ring"},
    "complete": {"topology": "complete"},
    "tree": {
        "topology": "custom",
        "links": [{"from": "paris", "to": to, "both": True} for to in THREE[1:]],
    },
}
VICTIM = "paris"
BIG = 2 * PIECE_BYTES + 1000
ONCE = {"packer.marked", "export.written", "export.removed", "file.begun"}
"""What may come by only once in a run that is as short as a test's."""


def stage_of(point: str) -> str:
    return "pieces" if point.endswith(".piece") else point.split(".")[0]


ELSEWHERE = {"turn", "journal", "snapshot", "move", "recover", "reslot", "content"}
"""Beginnings of points that other tests reach: those of a node that shares its site in
`test_takeover`, `test_moving`, `test_shared_recovery` and `test_content`, those of a change of
slots in `test_reslotting`.
"""
LEAVES_DOUBT = "packer.recorded"
"""Point at which messages may count as acknowledged that come again: of the last batch, where no
other followed within HOLD_S, on a machine that stalls. Only a later batch shows which came again.
"""
POINTS = [point for point in crash_points.POINTS if point.split(".")[0] not in ELSEWHERE]
STAGES = sorted({stage_of(point) for point in POINTS})


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("graph", GRAPHS)
async def test_a_node_that_dies_there_loses_nothing_and_repeats_nothing_unflagged(
    tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory, graph: str, stage: str
) -> None:
    mesh = await live_mesh(*THREE, **GRAPHS[graph])
    chance = random.Random(f"{graph} {stage}")
    points = [point for point in POINTS if stage_of(point) == stage]
    big = {"per_second": 1.0, "size": BIG} if stage == "pieces" else {}
    traffic = load(mesh, **big)
    mesh.start(*([site] for site in THREE if site != VICTIM))
    await traffic.start()
    some = 4 if big else 200
    for point in points:
        count = 1 if point in ONCE else chance.randint(1, 4)
        await dies_at(mesh, traffic, point, count, tmp_path / point, some)
        mesh.start([VICTIM])
        await traffic.more(some)
        await mesh.running()
        assert mesh.stop(VICTIM) == 0
    mesh.start([VICTIM])
    await mesh.running()  # or SIGTERM comes before it can be obeyed
    await traffic.end()
    await traffic.arrived(within_s=240)

    def most_flags(site: str, origin: str) -> int:
        if site == VICTIM:
            return ANNOUNCED_AT_MOST * len(points)
        return HOLD_TAGS if origin == VICTIM and LEAVES_DOUBT in points else 0

    traffic.check(most_flags)
    # A site's own messages are in its queues before its deliverer has come to them in the log.
    await mesh.until_told(
        lambda told: not any(one["undelivered_messages"] for one in told["sites"].values()),
        "all logs are delivered to their ends",
        within_s=240,
    )
    for site in THREE:
        assert mesh.stop(site) == 0
        check_rows(mesh, traffic, site)


async def dies_at(
    mesh: LiveMesh, traffic: Load, point: str, count: int, once: Path, some: int
) -> None:
    """Start the victim so that it dies there, and see it die."""
    mesh.environment = {crash_points.VARIABLE: f"{point}:{count}:{once}"}
    mesh.start([VICTIM])
    mesh.environment = {}
    if stage_of(point) in ("export", "file"):  # which is what a node ends with
        await mesh.running()
        await traffic.more(some)
        mesh.kill(VICTIM, signal.SIGTERM)
    ended = await mesh.dies(VICTIM)
    assert once.exists(), f"{point} was not reached; exit {ended}\n{mesh.logs()}"
    if stage_of(point) == "file":
        # Another process: its node says that it could not write, and ends with the rows kept.
        assert ended == 0
        assert "could not write" in mesh.logs()
    else:
        assert ended == -signal.SIGKILL


def test_every_moment_is_one_of_the_nodes() -> None:
    named = set[str](reached())
    assert named == set(crash_points.POINTS)


def reached() -> Iterator[str]:
    """The moments that the product's sources name."""
    import ast

    for file in Path(crash_points.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "crash_points.reach":
                for one in ast.walk(node.args[0]):
                    if isinstance(one, ast.Constant):
                        yield one.value
