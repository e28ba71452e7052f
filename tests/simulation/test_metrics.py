"""Metrics of whole meshes: each number that a node reports has one, or a reason for none."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from federation.mesh import Mesh
from federation.slots import SlotMap
from relay.admin.metrics.catalogue import CATALOGUE, LEFT_OUT
from relay.admin.metrics.definition import ReportSection
from relay.admin.metrics.sections import rows
from relay.delay_histogram import DelaySnapshot
from relay.node.process import RelayProcess
from simulation.load import Load
from simulation.topologies import drawn_slots, simulated_mesh
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World

SECTIONS_OF_A_ROW = {"sites", "links", "links_in", "lanes", "log", "slots", "slot", "copy", "group"}
SECTIONS_OF_A_ROW |= {"content"}
HELD = {(metric.section, metric.key) for metric in CATALOGUE} | set(LEFT_OUT)


def reports(mesh: Mesh, folder: Path, nodes: int) -> list[Mapping[str, Any]]:
    """Return the measurements of each process of a mesh that has carried some messages."""
    found: list[Mapping[str, Any]] = []

    async def run() -> None:
        world = World(mesh, folder, random.Random(1), nodes=nodes, has_contents=True)
        world.start()
        try:
            await world.publish(Load(20, 5.0))
            await world.until(world.is_drained, world.left, 120.0)
            for site in world.sites:
                for node in world.nodes_of(site):
                    own = [slot.node for slot in node.slots if slot.node is not None]
                    found.append(RelayProcess(own).measurements())
        finally:
            await world.kill()

    run_in_virtual_time(run())
    return found


def numbers(figures: Mapping[str, Any]) -> Iterator[str]:
    """Names of the figures that are a number, or numbers by name."""
    for key, figure in figures.items():
        values = figure.values() if isinstance(figure, Mapping) else [figure]
        if key not in SECTIONS_OF_A_ROW | {"heard"} and any(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        ):
            yield key


MESHES: dict[str, tuple[Mesh, int, set[ReportSection]]] = {
    "lanes": (
        simulated_mesh("ring", 3, 3, max_rate="4Mbit/s"),
        1,
        {
            ReportSection.LINK,
            ReportSection.LANE,
            ReportSection.LINK_RECEIVER,
            ReportSection.LANE_RECEIVER,
            ReportSection.LOG,
        },
    ),
    "group": (simulated_mesh("multicast", 3, 1), 1, {ReportSection.GROUP, ReportSection.HEARD}),
    "nodes": (
        simulated_mesh("complete", 2, 3, slots=[SlotMap(), *drawn_slots(2, 1, 3, 1)]),
        2,
        {
            *(ReportSection.SLOT, ReportSection.COPY, ReportSection.CONTENT),
            *(ReportSection.SITE, ReportSection.PROCESS),
        },
    ),
}


@pytest.mark.parametrize("kind", MESHES)
def test_each_number_of_a_report_has_a_metric_or_a_reason_for_none(
    kind: str, tmp_path: Path
) -> None:
    mesh, nodes, sections = MESHES[kind]
    seen, lacking = set(), set()
    for report in reports(mesh, tmp_path, nodes):
        for section in ReportSection:
            for _, figures in rows(section, report):
                seen.add(section)
                lacking |= {(section, key) for key in numbers(figures)} - HELD
    assert seen >= sections
    assert lacking == set()


def test_delays_count_each_message_delivered_or_packed_and_each_batch_acknowledged(
    tmp_path: Path,
) -> None:
    found = reports(simulated_mesh("ring", 3, 2), tmp_path, 1)
    for report in found:
        for _, figures in rows(ReportSection.SITE, report):
            delivered = DelaySnapshot.total(figures["end_to_end"].values())
            assert delivered.sum_s > 0
            assert sum(delivered.counts) == figures["delivered"] > 0
            assert sum(figures["delivery_delay"].counts) == figures["delivered"]
            assert sum(figures["packing_delay"].counts) == figures["packed"] > 0
        for link in report["links"]:
            assert sum(link["acknowledgement_delay"].counts) == link["acked"] > 0
    origins = {
        labels["origin"] for report in found for labels, _ in rows(ReportSection.FLOW, report)
    }
    assert origins == {"site01", "site02", "site03"}


def test_a_site_shows_the_disk_of_its_folder_and_the_memory_of_its_barrier(tmp_path: Path) -> None:
    mesh = simulated_mesh("complete", 2, 1)
    for report in reports(mesh, tmp_path, 1):
        assert report["outage_window_s"] == mesh.outage_window_s
        for _, figures in rows(ReportSection.SITE, report):
            assert figures["state_disk_bytes"] > figures["state_disk_free_bytes"] > 0
            assert figures["barrier_memory_s"] == mesh.retention_s
