"""Worlds with a multicast group: the group brings, and whatever becomes of it no promise breaks."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from federation.multicast import group_exchanges, group_sites
from federation.slots import SlotMap
from isthmus.cli import app
from relay.batches.signature import Authenticity
from relay.group import group_task
from relay.group.group_task import GroupParts, GroupTask
from relay.operator.holds import read_holds, write_holds
from simulation.faults import OF_GROUPS, TOGETHER, Trouble
from simulation.load import Load
from simulation.scenario import Returns, Scenario, run
from simulation.search import random_scenario
from simulation.topologies import GROUPED, simulated_mesh
from simulation.world import World
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

LOAD = Load(messages=15, for_s=20.0)
CALM = Trouble(())


@pytest.mark.parametrize("sites", [3, 4, 9])
def test_a_seed_draws_a_group(sites: int) -> None:
    meshes = [simulated_mesh(GROUPED, sites, 2, seed) for seed in range(1, 30)]
    groups = [mesh.group for mesh in meshes if mesh.group is not None]
    assert len(groups) == len(meshes)
    assert {len(group.replayers) for group in groups} == set(range(1, min(sites, 4) + 1))
    assert all(group_exchanges(mesh) == {"exchange1", "exchange2"} for mesh in meshes)
    outside = {sites - len(group_sites(mesh)) for mesh in meshes}
    assert outside == ({0} if sites == 3 else {0, 1})


def test_three_sites_of_a_group_have_one_slot() -> None:
    mesh = simulated_mesh(GROUPED, 5, 4, slots=[SlotMap(2)] * 5)
    assert group_sites(mesh) == {"site01", "site02", "site03"}
    assert [site.slots.count for site in mesh.sites.values()] == [1, 1, 1, 2, 2]


def _brought(monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> Counter[str]:
    """Return the counts of all members together, in all their lives."""
    tasks: list[GroupTask] = []
    begin = GroupTask.__init__

    def noting(self: GroupTask, parts: GroupParts) -> None:
        begin(self, parts)
        tasks.append(self)

    monkeypatch.setattr(GroupTask, "__init__", noting)
    outcome = run(scenario)
    assert (outcome.broken, outcome.flagged) == ("", 0)
    return sum((task.counters for task in tasks), Counter[str]())


def test_the_group_brings_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    brought = _brought(monkeypatch, Scenario(2, GROUPED, 4, LOAD, CALM))
    assert brought["published"] >= 30
    assert brought["appended"] > 0.8 * 3 * brought["published"]
    assert not brought["refused"]


def test_what_a_member_forges_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(3, GROUPED, 4, LOAD, Trouble(("forger",), 3.0))
    assert _brought(monkeypatch, scenario)["refused"]


@pytest.mark.parametrize("kind", OF_GROUPS)
def test_no_fault_of_a_group_breaks_a_promise(kind: str) -> None:
    outcome = run(Scenario(12, GROUPED, 4, LOAD, Trouble((kind,), 3.0)))
    assert (outcome.broken, outcome.flagged) == ("", 0)
    assert outcome.trace.counts[kind]


@in_virtual_time
async def test_a_site_that_quiesces_gets_nothing_more_by_the_group(tmp_path: Path) -> None:
    mesh = simulated_mesh(GROUPED, 4, 1, 1)
    assert mesh.group is not None
    site = next(name for name in sorted(group_sites(mesh)) if name not in mesh.group.replayers)
    world = World(mesh, tmp_path, random.Random(1), Returns.FIFO, 1)
    world.start()
    await let_pass(10)
    load = asyncio.create_task(world.publish(Load(messages=240, for_s=120, big_one_in=10**9)))
    node = world.nodes[site]
    folder = node.slots[0].folder
    await until(lambda: len(stored(world, site)) > 20, "traffic", 60)
    write_holds(folder, replace(read_holds(folder), quiescing=True))
    await until(lambda: node.node is not None and node.node.watch.leave.is_quiesced, "quiet", 60)
    had = len(stored(world, site))
    await let_pass(30)
    assert len(stored(world, site)) == had
    assert node.node is not None
    assert node.node.stages is not None
    assert node.node.stages.undelivered.messages == 0
    load.cancel()
    await world.kill()


def stored(world: World, site: str) -> Sequence[object]:
    """Return what a site's log has."""
    return world.brokers[site].slots[0].stream.records


def test_faults_of_groups_spare_a_world_without_one() -> None:
    outcome = run(Scenario(1, "ring", 3, LOAD, Trouble(OF_GROUPS, 1.0)))
    assert outcome.broken == ""
    assert outcome.faults
    assert not any(outcome.trace.counts[kind] for kind in OF_GROUPS)


@pytest.mark.parametrize(("seed", "nodes"), [(1, 1), (2, 2)])
def test_all_of_them_together_do_not_either(seed: int, nodes: int) -> None:
    kinds = (*TOGETHER, *(kind for kind in OF_GROUPS if kind != "forger"))
    scenario = Scenario(seed, GROUPED, 4, LOAD, Trouble(kinds, 2.0), nodes=nodes)
    assert run(scenario).broken == ""


def test_a_group_that_comes_and_goes_with_the_mesh_file_does_not() -> None:
    outcome = run(Scenario(3, GROUPED, 4, LOAD, Trouble(("change", "kill"), 2.0)))
    assert outcome.broken == ""
    assert outcome.trace.counts["change"]


def test_nobody_forges_in_a_group_that_a_change_has_ended() -> None:
    outcome = run(Scenario(1, GROUPED, 4, LOAD, Trouble(("change", "forger"), 2.0)))
    assert outcome.broken == ""
    assert outcome.trace.counts["change"]


def test_no_two_datagrams_are_sealed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_task, "new_epoch", lambda wall_ms, random: bytes(16))
    outcome = run(Scenario(1, GROUPED, 3, LOAD, Trouble(("no-group",), 3.0)))
    assert outcome.broken.startswith("I9: two datagrams")


def test_a_message_that_nobody_published_ends_a_world_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Authenticity, "check", lambda self, header, batch: None)
    outcome = run(Scenario(3, GROUPED, 4, LOAD, Trouble(("forger",), 3.0)))
    assert outcome.broken.startswith("I3 at ")
    assert "was never published" in outcome.broken
    assert outcome.virtual_s < 100


def test_a_seed_gives_the_same_run_again() -> None:
    scenario = Scenario(4, GROUPED, 3, LOAD, Trouble((*TOGETHER, *OF_GROUPS), 2.0))
    assert run(scenario).trace.digest == run(scenario).trace.digest


def test_seeds_draw_groups_now_and_then_and_leave_other_worlds_alone() -> None:
    drawn = [random_scenario(seed) for seed in range(1, 301)]
    groups = [one for one in drawn if one.topology == GROUPED]
    assert 10 <= len(groups) <= 40
    assert all(set(one.trouble.kinds) & set(OF_GROUPS) for one in groups)
    others = [one for one in drawn if one.topology != GROUPED]
    assert not any(set(one.trouble.kinds) & set(OF_GROUPS) for one in others)
    assert not any(random_scenario(seed, 3).topology == GROUPED for seed in range(1, 100))


def test_all_faults_of_a_world_with_a_group_are_asked_for_by_one_word() -> None:
    asked = ["simulate", "--topology", GROUPED, "--messages", "3", "--seconds", "2", "--json"]
    (told,) = json.loads(CliRunner().invoke(app, asked).stdout)["runs"]
    assert f"--topology {GROUPED}" in told["again"]
    assert "--faults all" in told["again"]


def test_a_fault_of_groups_is_refused_where_no_world_has_one() -> None:
    refused = CliRunner().invoke(app, ["simulate", "--faults", "deaf"])
    assert refused.exit_code == 2
    assert "--topology multicast" in refused.stderr
