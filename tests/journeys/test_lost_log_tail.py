"""A site's broker comes back without the end of the site's log: what that held comes again, once,
at that site and at those behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from federation.names import Names
from tests.journeys.conftest import MeshFactory
from tests.journeys.stream_file import chunks, last_segment, lose_tail

TREE = ("paris", "tokyo", "sydney", "lima")
LINKS = [
    {"from": "paris", "to": "tokyo", "both": True},
    {"from": "tokyo", "to": "sydney", "both": True},
    {"from": "tokyo", "to": "lima", "both": True},
]


@pytest.mark.parametrize(
    ("into", "node_lives"),
    [
        pytest.param(100, True, id="in a chunk", marks=pytest.mark.slow),
        pytest.param(0, True, id="at a chunk", marks=pytest.mark.long),
        pytest.param(0, False, id="at a chunk, node killed", marks=pytest.mark.long),
        pytest.param(20, False, id="in a chunk's head, node killed", marks=pytest.mark.long),
    ],
)
async def test_what_a_log_lost_comes_again_there_and_behind_it(
    live_mesh: MeshFactory, into: int, node_lives: bool
) -> None:
    mesh = await live_mesh(*TREE, own=("tokyo",), topology="custom", links=LINKS)
    await mesh.listen(["paris", "sydney", "lima"])
    # Nobody consumes at tokyo yet: a broker's restart would bring some of it twice by itself.
    await mesh.listen(["tokyo"], at_once=False)
    mesh.start_each()
    await mesh.running()
    await mesh.publish_everywhere(200)
    await mesh.until_told(delivered(dict.fromkeys(TREE, 3 * 200)), "all there")

    mesh.stop("sydney")
    segment = last_segment(mesh.vhosts["tokyo"], Names(mesh.mesh.name))
    kept = len(chunks(segment))
    for _ in range(20):
        await mesh.source("paris").publish(50, size=1024)
    await mesh.until_told(delivered({"tokyo": 1600, "lima": 1600}), "there")

    if not node_lives:
        mesh.kill("tokyo")
    broker = mesh.vhosts["tokyo"].broker
    broker.kill()
    lost = [chunk for chunk in chunks(segment)[kept:] if chunk.records]
    assert len(lost) >= 4
    lose_tail(segment, lost[len(lost) // 2], into=into)
    await broker.start()
    if not node_lives:
        mesh.start(["tokyo"])
    mesh.start(["sydney"])
    await mesh.running()
    if node_lives:
        told = (await mesh.status())["sites"]["tokyo"]
        assert told["log"]["tails_lost"] == 1, told
    # A node killed within a second of its last append may not know that the log had it: it never
    # read it back. Then nothing is missed, and neighbours bring it again all the same.

    await mesh.publish_everywhere(200)
    mesh.sinks["tokyo"].resume()
    await mesh.arrived()
    mesh.check(most_flags=0)


@pytest.mark.long
async def test_a_log_that_is_deleted_and_made_anew_fills_again_from_its_neighbours(
    listening_mesh: MeshFactory,
) -> None:
    mesh = await listening_mesh(*TREE, topology="custom", links=LINKS)
    await mesh.publish_everywhere(200)
    await mesh.until_told(delivered(dict.fromkeys(TREE, 3 * 200)), "all there")
    mesh.stop("sydney")
    await mesh.source("paris").publish(1000, size=1024)
    await mesh.until_told(delivered({"tokyo": 1600, "lima": 1600}), "there")

    log = Names(mesh.mesh.name).log
    await mesh.vhosts["tokyo"].api("DELETE", f"/queues/{{vhost}}/{log}")
    await mesh.until_told(lambda told: told["sites"]["tokyo"]["state"] == "down", "missed")
    await mesh.apply()
    mesh.start(["sydney"])
    await mesh.running()
    told = (await mesh.status())["sites"]["tokyo"]
    assert told["log"]["rebuilds"] == 1, told
    await mesh.publish_everywhere(200)
    await mesh.arrived()
    mesh.check(most_flags=0)


def delivered(counts: dict[str, int]) -> Callable[[dict[str, Any]], bool]:
    """Whether these sites have delivered so many."""
    return lambda told: all(told["sites"][site]["delivered"] == counts[site] for site in counts)
