"""A mesh file that takes a link out which has something before it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simulation.load import Load
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

WITHIN_S = 120.0
MESSAGES = 20
GONE = ("site01-site03", "site03-site01")
"""What a ring of three has, and a line not."""


async def _linked_otherwise(folder: Path) -> None:
    ring, line = simulated_mesh("ring", 3, 1), simulated_mesh("line", 3, 1)
    world = World(ring, folder, random.Random(1))
    world.start()
    try:
        for crossing in world.network.crossings.values():
            if "site03" in (crossing.link.sender, crossing.link.receiver):
                crossing.cut()
        await world.publish(Load(MESSAGES, 5.0))
        world.change(line)
        for site in world.nodes.values():
            site.take_up(world.book)
        for crossing in world.network.crossings.values():
            if crossing.link.name not in GONE:
                crossing.mend()
        await world.until(world.is_drained, world.left, WITHIN_S)
        world.raise_if_broken()
    finally:
        await world.kill()


def test_a_link_that_ends_with_something_before_it_is_told_and_all_comes_another_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_in_virtual_time(_linked_otherwise(tmp_path))
    told = [one.getMessage() for one in caplog.records if one.name == "relay.node.links"]
    for link in GONE:
        (of_it,) = [one for one in told if link in one]
        assert "they come by other ways" in of_it
