"""Worlds whose sites are cut into several slots, each with a log, a barrier and a state."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from federation.mesh import NEWEST_BATCH_FORMAT
from federation.slots import ONE_SLOT, SlotMap
from isthmus.cli import app
from isthmus.commands.simulate_worlds import command_of
from relay.node.start import NodeStopped
from relay.packing.memory_egress import Returns
from simulation.faults import OF_NODES, TOGETHER, Trouble, without_losses
from simulation.load import Load
from simulation.scenario import Scenario, run
from simulation.search import random_scenario
from simulation.simulated_node import SimulatedNode
from simulation.topologies import drawn_slots, simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World, silence

LOAD = Load(messages=15, for_s=15.0)
ALL = Trouble(TOGETHER, every_s=1.0)
CHANGES = Trouble((*without_losses(TOGETHER), "change"), every_s=1.0)
ASKED = ("simulate", "--messages", "12", "--seconds", "5")


@pytest.mark.parametrize(
    ("seed", "topology", "sites", "trouble", "returns"),
    [
        (1, "ring", 3, ALL, Returns.FIFO),
        (2, "complete", 3, ALL, Returns.FIFO),
        (3, "tree", 3, ALL, Returns.SHUFFLED),
        (4, "ring", 3, CHANGES, Returns.FIFO),
    ],
)
def test_faults_break_no_promise_where_sites_have_slots(
    seed: int, topology: str, sites: int, trouble: Trouble, returns: Returns
) -> None:
    scenario = Scenario(seed, topology, sites, LOAD, trouble, 5, returns=returns, slots=3)
    assert len({one.count for one in drawn_slots(3, sites, 5, seed)}) > 1
    assert run(scenario).broken == ""


@pytest.mark.parametrize("kind", ["log", "disk", "tail", "anew", "retention", "late"])
def test_a_fault_of_a_log_strikes_that_of_one_slot(kind: str) -> None:
    trouble = Trouble((kind,), every_s=0.7)
    outcome = run(Scenario(5, "line", 2, Load(100, 15.0), trouble, 5, slots=3))
    assert outcome.broken == ""
    struck = {line.split()[2] for line in outcome.trace.lines() if line.split()[1] == kind}
    assert any(".s" in log for log in struck)
    assert any(".s" not in log for log in struck)


def test_seeds_draw_the_slots_of_each_site_and_place_some_exchanges() -> None:
    drawn = [one for seed in range(1, 51) for one in drawn_slots(3, 4, 5, seed)]
    assert {one.count for one in drawn} == {1, 2, 3}
    placed = [one for one in drawn if one.place]
    assert 20 < len(placed) < 100
    assert all(slot < one.count for one in placed for slot in one.place.values())
    assert drawn_slots(1, 4, 5, 1) == []


def test_a_mesh_without_slots_is_the_same_mesh_as_ever() -> None:
    assert simulated_mesh("ring", 3, 2, slots=[ONE_SLOT] * 3) == simulated_mesh("ring", 3, 2)


def test_a_mesh_that_is_linked_otherwise_keeps_its_slots() -> None:
    slots = [SlotMap(2), SlotMap(3, {"exchange1": 2}), ONE_SLOT]
    mesh = simulated_mesh("ring", 3, 2, slots=slots)
    assert [site.slots for site in mesh.sites.values()] == slots


def test_drawn_worlds_with_slots_have_one_node_a_site_and_more_exchanges() -> None:
    for seed in range(1, 101):
        cut, whole = random_scenario(seed, 3), random_scenario(seed)
        assert (cut.nodes, cut.slots, cut.exchanges) == (1, 3, whole.exchanges + 3)
        assert set(OF_NODES).isdisjoint(cut.trouble.kinds)
        assert "--slots 3" in command_of(cut)
        assert "--slots" not in command_of(whole)


def test_a_drawn_world_with_slots_is_the_same_with_its_options_written_out() -> None:
    asked = [*ASKED, "--seed", "8", "--topology", "any", "--slots", "3", "--json"]
    (drawn,) = json.loads(CliRunner().invoke(app, asked).stdout)["runs"]
    words = drawn["again"].split()[1:]
    assert "any" not in words
    (again,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["runs"]
    assert drawn["good"]
    assert again["digest"] == drawn["digest"]


def live(folder: Path, then: Callable[[World], Awaitable[None]]) -> None:
    """Run two sites of two and of three slots until `then` is over."""
    slots = [SlotMap(2), SlotMap(3)]

    async def run() -> None:
        mesh = simulated_mesh("line", 2, 6, slots=slots)
        world = World(mesh, folder, random.Random(1))
        world.start()
        try:
            await world.until(lambda: all_run(world), lambda: "some slot does not run", 60.0)
            await then(world)
        finally:
            await world.kill()

    with silence():
        run_in_virtual_time(run())


def all_run(world: World) -> bool:
    return all(
        slot.node is not None and slot.node.is_up.is_set()
        for node in world.nodes.values()
        for slot in node.slots
    )


@pytest.mark.parametrize("end", [SimulatedNode.kill, SimulatedNode.lose_power])
def test_all_slots_of_a_node_end_at_once_and_begin_on_their_own_stores(
    end: Callable[[SimulatedNode], None], tmp_path: Path
) -> None:
    async def kill(world: World) -> None:
        node = world.nodes["site02"]
        await world.publish(Load(60, 1.0))
        former = [slot.store for slot in node.slots]
        end(node)
        assert not any(slot.node for slot in node.slots)
        assert not any(slot.store in former for slot in node.slots)
        await node.died()
        node.start()
        await world.until(world.is_drained, world.left, 120.0)
        world.applications.check(doubt=True)
        packed = {slot.name: len(slot.stream.records) for slot in world.logs.values()}
        assert packed.keys() == {"site01", "site01.s1", "site02", "site02.s1", "site02.s2"}
        assert all(packed.values())

    live(tmp_path, kill)


def test_a_frozen_node_runs_none_of_its_slots(tmp_path: Path) -> None:
    async def freeze(world: World) -> None:
        node, arrived = world.nodes["site02"], world.applications.arrived
        thaw = node.freeze()
        await world.publish(Load(30, 5.0))
        assert all(len(arrived[exchange]["site01"]) for exchange in arrived)
        assert not any(one.path for exchange in arrived for one in arrived[exchange]["site02"])
        node.lose_connections()
        thaw()
        await world.until(world.is_drained, world.left, 120.0)
        world.applications.check(doubt=True)

    live(tmp_path, freeze)


def test_a_slot_that_stops_for_a_person_ends_its_process(tmp_path: Path) -> None:
    async def stop(world: World) -> None:
        node, log = world.nodes["site02"], world.logs["site02.s2"].stream
        magic, rest = log.records[0].data[:3], log.records[0].data[4:]
        log.append_alien(magic + bytes([NEWEST_BATCH_FORMAT + 1]) + rest)
        await world.until(lambda: node.stopped_with is not None, lambda: "it goes on", 60.0)
        assert isinstance(node.stopped_with, NodeStopped)
        assert [one.node.stage for one in node.slots if one.node] == ["stopped"] * 3
        node.bury()

    live(tmp_path, stop)
