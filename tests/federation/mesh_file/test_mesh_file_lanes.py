"""Lanes and rates in a mesh file: what they come to, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from federation.lanes import Lane, RateHours, RateSchedule
from federation.mesh_diff import mesh_diff
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.marked import the_error, the_warning
from tests.federation.meshes import TRIANGLE, mesh_of, problems_of

LANES = "lanes: [urgent, normal, bulk]\nmax_rate: 20Mbit/s\n"
ALARMS = "{name: alarms, lane: urgent}"
HEAD = "mesh: acme\ntopology: {hub: head}\n"
WHOLE = (
    HEAD
    + f"""\
lanes: {{urgent: 10, normal: 3, bulk: 1}}
max_rate: {{default: 20Mbit/s, "22:00-06:00": unlimited}}
exchanges: [{ALARMS}, {{name: files, lane: bulk}}, {{name: orders}}]
links: [{{from: oslo, to: head, max_rate: 2MB/s}}]
sites: {{head: {{max_rate: 100Mbit/s}}, oslo: {{}}, rome: {{}}}}
"""
)


def with_exchange(exchange: str, lanes: str = LANES) -> str:
    return lanes + TRIANGLE.replace('{name: orders, keys: ["order.#"]}', exchange)


def test_lanes_and_rates_come_to_what_the_file_says() -> None:
    mesh = mesh_of(WHOLE)
    assert mesh.lanes == (Lane("urgent", 1, 10), Lane("normal", 0, 3), Lane("bulk", 2, 1))
    assert {one.name: one.lane for one in mesh.exchanges.values()} == {
        "alarms": 1,
        "files": 2,
        "orders": 0,
    }
    by_hours = RateSchedule(2_500_000, (RateHours(22 * 60, 6 * 60, None),))
    assert {link.name: link.max_rate for link in mesh.links} == {
        "head-oslo": by_hours,
        "oslo-head": RateSchedule(2_000_000),
        "head-rome": by_hours,
        "rome-head": by_hours,
    }
    assert mesh.sites["head"].max_rate == RateSchedule(12_500_000)
    assert mesh.sites["oslo"].max_rate is None
    assert problems_of(WHOLE) == []


def test_a_mesh_with_lanes_is_the_same_from_its_json() -> None:
    mesh = mesh_of(WHOLE)
    assert mesh_from_json(json.loads(json.dumps(mesh_as_json(mesh)))) == mesh


def test_lanes_and_rates_are_part_of_the_revision_and_their_lack_is_not() -> None:
    revisions = {
        mesh_of(text).revision
        for text in (
            TRIANGLE,
            LANES + TRIANGLE,
            "max_rate: 20Mbit/s\n" + TRIANGLE,
            "max_rate: 2MB/s\n" + TRIANGLE,
            TRIANGLE.replace("paris: {}", "paris: {max_rate: 2MB/s}"),
            with_exchange(ALARMS),
        )
    }
    assert len(revisions) == 6
    unlimited = "max_rate: 20000kbit/s\n" + TRIANGLE
    assert mesh_of(unlimited).revision == mesh_of("max_rate: 20Mbit/s\n" + TRIANGLE).revision


def test_a_change_of_them_is_told_in_words() -> None:
    former = mesh_of(TRIANGLE)
    new = mesh_of(LANES + TRIANGLE.replace('"order.#"]', '"order.#"], lane: bulk'))
    assert mesh_diff(former, replace(new, links=former.links)) == [
        "~ exchange orders: lane normal -> bulk",
        "~ lanes none -> urgent (16), normal (4), bulk (1)",
    ]
    assert "~ link paris-tokyo: max_rate none -> 20Mbit/s" in mesh_diff(former, new)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ("lanes: ^[urgent, bulk]\n", "there is no lane `normal`, which an exchange has that names"),
        ("lanes: ^[normal]\n", "a mesh has 2 to 5 lanes, or none: each takes a connection"),
        ("lanes: ^[a, b, c, d, e, normal]\n", "a mesh has 2 to 5 lanes"),
        ("lanes: ^[normal, normal]\n", "the lane `normal` is here twice; keep one of them"),
        ("lanes: ^[normal, a.b]\n", "`a.b` cannot name a lane"),
        ("lanes: ^{normal: 0, bulk: 1}\n", "the weight of lane `normal` is a whole number"),
        ("lanes: ^urgent\n", "this is no list of lanes; write lanes: [urgent, normal, bulk]"),
        ("max_rate: ^20mbit/s\n", "`20mbit/s` is no rate; did you mean `20Mbit/s`?"),
        ('max_rate: ^{"22-6": unlimited}\n', "`22-6` is no time of the day; write default"),
        ("^bandwidth: 1\n", "unknown key `bandwidth`; did you mean `max_rate`?"),
    ],
)
def test_a_mistake_in_lanes_or_rates_is_told_at_its_place(marked: str, said: str) -> None:
    assert said in the_error(marked + TRIANGLE)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (with_exchange("{name: o, lane: ^urgnt}"), "there is no lane `urgnt`; did you mean `urg"),
        (with_exchange("{name: o, lane: ^x}"), "no lane `x`; the lanes are urgent, normal, bulk"),
        (with_exchange("{name: o, lane: ^bulk}", ""), "the mesh has no lanes; add lanes: [urgent"),
        (with_exchange("{name: o, ^priority: 1}"), "unknown key `priority`; did you mean `lane`?"),
    ],
)
def test_an_exchange_names_a_lane_that_there_is(marked: str, said: str) -> None:
    assert said in the_error(marked)


def test_lanes_without_a_rate_are_warned_of() -> None:
    said = the_warning("lanes: ^[urgent, normal, bulk]\n" + TRIANGLE)
    assert "lanes share a link by weight only where it has a `max_rate`" in said
