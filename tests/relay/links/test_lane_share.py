"""Which strand carries which lane, and what that means for a link's position."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from federation.mesh import Link, Mesh
from federation.partitions import lane_numbers, partition_lane
from relay.batches.batch import EVERY_SITE, BatchHeader, BatchKind, BatchName, Series
from relay.links.forwarding import (
    WHOLE,
    ForwardingDecision,
    LaneShare,
    forwarding_for,
    seen_with,
    share_of,
)
from relay.links.position import LinkPosition, Sample, begin
from tests.federation.meshes import TRIANGLE, mesh_of

PLAIN = mesh_of(TRIANGLE)
LANED = mesh_of("lanes: [urgent, normal, bulk]\nmax_rate: 1MB/s\n" + TRIANGLE)
CUT = mesh_of(
    "lanes: [urgent, normal, bulk]\nmax_rate: 1MB/s\n"
    + TRIANGLE.replace('keys: ["order.#"]', "lane: urgent, partitions: 4")
)
FEWER = mesh_of("lanes: [urgent, normal]\nmax_rate: 1MB/s\n" + TRIANGLE)


def strands(mesh: Mesh) -> dict[str, Link]:
    """Of the link from paris to tokyo, by lane; the normal one is the link itself."""
    link = next(link for link in mesh.links if link.name == "paris-tokyo")
    return {one.lane: one for one in mesh.strands(link)}


def header(lane: int, kind: BatchKind = BatchKind.MESSAGES) -> BatchHeader:
    exchange = "orders" if kind is not BatchKind.CANARY and kind is not BatchKind.MARK else ""
    series = Series("paris", bytes(8), exchange, lane, EVERY_SITE)
    name = BatchName(series, 0)
    return BatchHeader(kind, name, 1, (), "r1", 1, 1, 1, 1, 0, 0, ("paris",))


def carried_by(mesh: Mesh, header: BatchHeader) -> set[str]:
    return {
        lane
        for lane, strand in strands(mesh).items()
        if forwarding_for(mesh, strand).decide(header) is ForwardingDecision.SEND
    }


def test_a_link_without_lanes_carries_all() -> None:
    assert share_of(PLAIN, strands(PLAIN)[""]) is WHOLE
    assert all(carried_by(PLAIN, header(lane)) == {""} for lane in (0, 1, 2, 99))


def test_each_lane_goes_over_its_own_strand_alone_and_none_goes_nowhere() -> None:
    assert [carried_by(LANED, header(lane)) for lane in (0, 1, 2)] == [{""}, {"urgent"}, {"bulk"}]
    for lane in range(256):
        assert len(carried_by(LANED, header(lane))) == 1
        assert len(carried_by(FEWER, header(lane))) == 1


def test_what_is_of_a_lane_that_the_file_has_not_goes_with_the_normal_one() -> None:
    assert carried_by(LANED, header(99)) == {""}
    assert carried_by(FEWER, header(2)) == {""}


def test_partitions_go_with_their_lane() -> None:
    numbers = {lane: partition_lane(lane, 3) for lane in (0, 1, 2)}
    assert [carried_by(CUT, header(numbers[lane])) for lane in (0, 1)] == [{""}, {"urgent"}]
    # No exchange of the file has partitions in lane bulk: as of a lane that the file has not.
    assert carried_by(CUT, header(numbers[2])) == {""}
    for lane in range(256):
        assert len(carried_by(CUT, header(lane))) == 1


def test_a_mesh_without_partitions_has_the_shares_of_former_versions() -> None:
    assert share_of(LANED, strands(LANED)["urgent"]) == LaneShare(frozenset({1}))
    assert share_of(LANED, strands(LANED)[""]) == LaneShare(None, frozenset({1, 2}))
    kept = kept_of(LANED, "urgent")
    assert kept["lane"] == 1
    assert LinkPosition.decode(json.dumps(kept).encode(), 5.0).seen.lanes == LaneShare(
        frozenset({1})
    )


def test_a_link_that_gets_partitions_goes_through_its_log_again() -> None:
    """Before, they have gone with the normal lane."""
    kept = kept_of(CUT, "urgent")
    assert kept["lane"] == sorted(lane_numbers("urgent"))
    seen = LinkPosition.decode(json.dumps(kept).encode(), 5.0).seen
    assert not seen.stranded_by(forwarding_for(CUT, strands(CUT)["urgent"]))
    former = LinkPosition.decode(json.dumps(kept_of(LANED, "urgent")).encode(), 5.0).seen
    assert former.stranded_by(forwarding_for(CUT, strands(CUT)["urgent"]))


def kept_of(mesh: Mesh, lane: str) -> dict[str, Any]:
    """A link's position as its state has it."""
    seen = seen_with(forwarding_for(mesh, strands(mesh)[lane]))
    encoded = LinkPosition(b"log", b"run", seen, None, (Sample(5.0, None),)).encode()
    kept: dict[str, Any] = json.loads(encoded)
    return kept


def test_marks_go_with_the_normal_lane_and_canaries_over_every_strand() -> None:
    assert carried_by(LANED, header(0, BatchKind.MARK)) == {""}
    assert carried_by(LANED, header(1, BatchKind.CANARY)) == {"", "urgent", "bulk"}


def test_a_share_exceeds_one_that_lacked_a_lane_of_it() -> None:
    normal, fewer = LaneShare(None, frozenset((1, 2))), LaneShare(None, frozenset((1,)))
    assert fewer.exceeds(normal)
    assert not normal.exceeds(fewer)
    assert WHOLE.exceeds(fewer)
    assert not fewer.exceeds(WHOLE)
    assert not LaneShare(frozenset({1})).exceeds(WHOLE)
    assert LaneShare(frozenset({1})).exceeds(LaneShare(frozenset({2})))
    assert not LaneShare(frozenset({1})).exceeds(LaneShare(frozenset({1})))


@pytest.mark.parametrize(
    ("former", "now", "stranded"),
    [
        (PLAIN, LANED, False),
        (LANED, PLAIN, True),
        (LANED, FEWER, True),
        (FEWER, LANED, False),
        (LANED, LANED, False),
    ],
)
def test_a_link_looks_again_only_when_it_gets_a_lane_that_it_had_passed_over(
    former: Mesh, now: Mesh, stranded: bool
) -> None:
    seen = seen_with(forwarding_for(former, strands(former)[""]))
    assert seen.stranded_by(forwarding_for(now, strands(now)[""])) == stranded


def test_lanes_that_came_and_went_between_two_sessions_are_not_taken_for_none() -> None:
    seen = seen_with(forwarding_for(PLAIN, strands(PLAIN)[""]))
    seen = seen.after(forwarding_for(LANED, strands(LANED)[""]))
    assert seen.stranded_by(forwarding_for(PLAIN, strands(PLAIN)[""]))


@pytest.mark.parametrize("lane", ["", "urgent", "bulk"])
def test_a_position_keeps_its_lanes(lane: str) -> None:
    seen = seen_with(forwarding_for(LANED, strands(LANED)[lane]))
    position = LinkPosition(b"log", b"run", seen, None, (Sample(5.0, None),))
    assert LinkPosition.decode(position.encode(), 5.0) == position
    assert b'"version":3' in position.encode()


def test_the_position_of_a_link_without_lanes_is_as_earlier_versions_write_and_read_it() -> None:
    forwarding = forwarding_for(PLAIN, strands(PLAIN)[""])
    position = LinkPosition(b"log", b"run", seen_with(forwarding), None, (Sample(5.0, None),))
    assert b'"version":1' in position.encode()
    assert b"lane" not in position.encode()
    # It goes on where it was when the mesh gets lanes.
    laned = forwarding_for(LANED, strands(LANED)[""])
    assert begin(position, b"log", b"run", laned, 9.0).goes_on


def test_strands_that_are_drawn_at_random_share_all_lanes() -> None:
    chance = random.Random(1)
    for _ in range(50):
        names = chance.sample(["urgent", "bulk", "a", "b", "c", "d"], chance.randint(1, 4))
        text = f"lanes: [{', '.join([*names, 'normal'])}]\nmax_rate: 1MB/s\n" + TRIANGLE
        mesh = mesh_of(text)
        for lane in range(256):
            assert len(carried_by(mesh, replace(header(lane)))) == 1
