"""Worlds with lanes and rates: what is promised holds, and what is urgent goes first."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federation.lanes import RateSchedule, lane_number
from federation.mesh import Mesh
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.delivery.local_exchange import Outgoing
from relay.node.report import link_reports
from simulation.faults import TOGETHER, Trouble, without_losses
from simulation.load import Load
from simulation.memory_brokers import application_queue
from simulation.scenario import Scenario, run
from simulation.search import random_scenario
from simulation.topologies import simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

FEW = Load(messages=20, for_s=20.0, big_one_in=40)
ALL = Trouble(TOGETHER, every_s=1.0)
CHANGES = Trouble((*without_losses(TOGETHER), "change"), every_s=1.0)
URGENT, BULK = "exchange3", "exchange2"


@pytest.mark.parametrize(
    ("seed", "topology", "sites", "trouble", "max_rate"),
    [
        (1, "ring", 3, ALL, "512kbit/s"),
        (2, "complete", 3, ALL, "4Mbit/s"),
        (3, "tree", 4, ALL, "512kbit/s"),
        (4, "hub", 4, ALL, "1Gbit/s"),
        (5, "random", 4, ALL, "512kbit/s"),
        (6, "ring", 3, CHANGES, "1Gbit/s"),
        (7, "tree", 4, CHANGES, "4Mbit/s"),
        (8, "complete", 4, CHANGES, "512kbit/s"),
        (9, "line", 3, Trouble(("change", "kill"), every_s=1.0), "512kbit/s"),
    ],
)
def test_what_is_promised_holds_over_lanes_that_come_and_go_and_slow_links(
    seed: int, topology: str, sites: int, trouble: Trouble, max_rate: str
) -> None:
    outcome = run(Scenario(seed, topology, sites, FEW, trouble, 3, max_rate))
    assert outcome.broken == ""
    assert outcome.arrived


def test_some_of_the_worlds_that_are_drawn_have_lanes() -> None:
    rates = [random_scenario(seed).max_rate for seed in range(1, 301)]
    assert 20 < sum(map(bool, rates)) < 80


def _message(number: int, size: int) -> Outgoing:
    return Outgoing(b"key", NONE_PRESENT, f"site01/{number} ".encode() + random.randbytes(size))


class _Pair:
    """Two sites, without faults; what site01 publishes is counted at site02."""

    def __init__(self, mesh: Mesh, folder: Path) -> None:
        self.world = World(mesh, folder, random.Random(1))
        self.number = 0

    def publish(self, exchange: str, size: int) -> None:
        self.number += 1
        assert self.world.brokers["site01"].publish(exchange, _message(self.number, size))

    def arrived(self, exchange: str) -> int:
        return len(self.world.brokers["site02"].exchanges.messages[application_queue(exchange)])

    def bytes_sent(self) -> int:
        crossings = self.world.network.crossings.values()
        return sum(one.meeting.bytes_published for one in crossings if one.link.sender == "site01")

    def links(self) -> list[dict[str, Any]]:
        """What site01 says of those that begin there."""
        node = self.world.nodes["site01"].node
        assert node is not None
        return link_reports(node)

    async def until(self, what: str, condition: object, within_s: float = 600.0) -> None:
        assert callable(condition)
        await self.world.until(condition, lambda: what, within_s)


def _mesh(max_rate: str) -> Mesh:
    return simulated_mesh("line", 2, 3, max_rate=max_rate)


def test_on_a_thin_line_what_is_urgent_passes_a_backlog_that_goes_on(tmp_path: Path) -> None:
    mesh = _mesh("64kbit/s")
    assert mesh.exchanges[URGENT].lane == lane_number("urgent")
    assert mesh.exchanges[BULK].lane == lane_number("bulk")

    async def live() -> None:
        pair = _Pair(mesh, tmp_path)
        world = pair.world
        world.start()
        # 2 MB, in batches of up to 256 KiB: each of them takes this line half a minute.
        for _ in range(2000):
            pair.publish(BULK, 1000)
        await pair.until("the first batch of bulk", lambda: pair.arrived(BULK) > 0)
        loop_time, times = world.nodes["site01"].clock.now, []
        for number in range(1, 6):
            began, moved = loop_time(), pair.arrived(BULK)
            pair.publish(URGENT, 500)
            await pair.until("urgent", lambda number=number: pair.arrived(URGENT) == number)
            times.append(loop_time() - began)
            await pair.until("more of bulk", lambda moved=moved: pair.arrived(BULK) > moved)
        assert max(times) < 1.5  # this world looks every half second
        begun, sent = loop_time(), pair.bytes_sent()
        await pair.until("all of bulk", lambda: pair.arrived(BULK) == 2000)
        assert (pair.bytes_sent() - sent) / (loop_time() - begun) == pytest.approx(8000, rel=0.1)
        (link,) = pair.links()
        assert (link["sessions"], link["ends"]) == (3, {})  # nobody lost patience
        world.raise_if_broken()
        await world.kill()

    run_in_virtual_time(live())


def test_another_rate_in_the_mesh_file_holds_within_the_session(tmp_path: Path) -> None:
    mesh = _mesh("64kbit/s")

    async def live() -> None:
        pair = _Pair(mesh, tmp_path)
        world = pair.world
        world.start()
        for _ in range(4000):
            pair.publish(BULK, 1000)
        await pair.until("the first batch of bulk", lambda: pair.arrived(BULK) > 0)
        fast = RateSchedule(1_000_000)
        world.change(
            replace(
                mesh,
                revision="fast",
                links=tuple(replace(link, max_rate=fast) for link in mesh.links),
            )
        )
        for site in world.nodes.values():
            site.take_up(world.book)
        await pair.until("all of it, soon", lambda: pair.arrived(BULK) == 4000, 10.0)
        (link,) = pair.links()
        assert {one["sessions"] for one in link["lanes"].values()} == {1}
        await world.kill()

    run_in_virtual_time(live())
