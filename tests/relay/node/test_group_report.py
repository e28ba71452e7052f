"""Report of a node on its membership in the mesh's multicast group, and its metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from relay.admin.metrics.exposition import metrics_text
from relay.group.brought import BroughtBatches
from relay.group.datagram import (
    FramePiece,
    GroupMessage,
    GroupPulse,
    GroupStream,
    Received,
    site_id,
)
from relay.group.group_task import GroupTask
from relay.group.hearing import HeardSites
from relay.group.member import GroupMember
from relay.node.group_report import group_report
from tests.federation.mesh_file.test_mesh_file_multicast import GROUP, with_keys
from tests.federation.meshes import mesh_of
from tests.log_batches import batch_name
from tests.relay.group.group_world import GroupWorld

MESH = mesh_of(with_keys(GROUP, "oslo", "multicast: none"))
TOKYO = GroupStream(site_id("tokyo"), bytes(16))
PAGE = Path(__file__).parents[3] / "docs" / "multicast.md"


@dataclass
class Membership:
    """Part of a `GroupTask` that is reported."""

    reason: str = ""
    member: GroupMember | None = None
    counters: Counter[str] = field(default_factory=Counter)
    heard: HeardSites = field(default_factory=lambda: HeardSites(0.0))


def report_of(
    membership: Membership, brought: BroughtBatches | None = None, now: float = 100.0
) -> dict[str, Any]:
    task = cast(GroupTask, membership)
    return group_report(task, brought or BroughtBatches(), MESH, "paris", now)


def member() -> GroupMember:
    return GroupWorld("paris").hosts["paris"].member


def test_a_site_that_is_away_says_why_and_hears_nobody() -> None:
    found = report_of(Membership("no route to 239.192.7.1"))
    assert found["away"] == "no route to 239.192.7.1"
    assert found["joined_s"] is None
    assert found["rate"] is None
    assert found["full_rate"] == 2_000_000
    assert found["heard"].keys() == {"lima", "tokyo"}, "the others of the group"
    assert found["heard"]["tokyo"]["s_ago"] is None


def test_of_each_other_site_it_is_known_what_came_and_by_what() -> None:
    heard, brought = HeardSites(10.0), BroughtBatches()
    for counter in (0, 1, 3):
        heard.note(Received(TOKYO, GroupPulse(counter, 0, "x"), counter), 97.5)
    brought.by_group("tokyo")
    brought.by_link(batch_name(1, origin="tokyo"), 99.0)
    brought.by_link(batch_name(1, origin="oslo"), 99.0)
    found = report_of(Membership(member=member(), heard=heard), brought)
    assert found["joined_s"] == 90.0
    assert found["heard"]["tokyo"] == {
        "s_ago": 2.5,
        "sent": 4,
        "missing": 1,
        "pulses_alone": 2,
        "appended": 1,
        "by_links": 1,
        "linked_s_ago": 1.0,
    }
    assert found["by_links"] == 1, "those of a site that is no member can come by links alone"


def test_frames_that_parity_has_mended_and_batches_that_are_too_big_are_counted() -> None:
    def of(world: GroupWorld, name: str) -> dict[str, Any]:
        host = world.hosts[name]
        return report_of(Membership(member=host.member, counters=host.counters))

    world = GroupWorld("paris", "tokyo")
    world.run(0.5)
    world.publish("paris", "paris/0")
    world.run(1.0)
    assert of(world, "tokyo")["receiving_repaired"] == 0

    def loses(sender: str, receiver: str, message: GroupMessage) -> bool:
        return isinstance(message, FramePiece) and message.piece == 3

    world.is_lost = loses
    world.publish("paris", "paris/1")
    world.publish("paris", "paris/2", size=600_000)
    world.run(1.0)
    assert of(world, "tokyo")["receiving_repaired"] == 1
    assert of(world, "tokyo")["receiving_frames"] == 2
    assert of(world, "paris")["too_big"] == 1


def test_each_figure_of_the_group_stands_on_its_page() -> None:
    found = report_of(Membership(member=member()))
    page = PAGE.read_text()
    figures = found.keys() | found["heard"]["tokyo"].keys()
    assert {name for name in figures if f"`{name}`" not in page} == set()


def test_a_site_that_is_away_from_the_group_is_not_up() -> None:
    sites = {"paris": {"group": {"away": "no key"}}, "tokyo": {"delivered": 1}}
    lines = metrics_text({"sites": sites, "links": []}, with_old_names=False).decode().splitlines()
    assert 'isthmus_group_up{site="paris"} 0.0' in lines
    assert not any("isthmus_group" in line and "tokyo" in line for line in lines)
