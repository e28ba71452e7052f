"""What a changed file comes to, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.mesh import Mesh
from federation.mesh_diff import mesh_diff
from federation.mesh_file import parse_mesh
from federation.mesh_json import BadMeshJson, mesh_as_json, mesh_from_json

BASE = """\
mesh: m
outage_window: 72h
topology: custom
links: [{from: a, to: b, both: true}, {from: b, to: c, both: true}, {from: c, to: a, both: true}]
exchanges: [{name: orders}, {name: stock, type: direct, keys: [low, out], from: [a]}]
sites: {a: {}, b: {}, c: {broker: "amqp://u:hidden@h/v", availability: 0.9}}
"""


def mesh(text: str = BASE) -> Mesh:
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("former", "new", "said"),
    [
        ("72h", "24h", ["~ outage_window 3d -> 1d"]),
        ("72h", "72h\nbatch_format: 2", ["~ batch_format 1 -> 2"]),
        (", {from: b, to: c, both: true}", ", {from: b, to: c}", ["- link c-b"]),
        ("to: c, both", "to: c, dial: b, both", ["~ link b-c: meeting c -> b"]),
        ("{name: orders}, ", "", ["- exchange orders"]),
        ("low, out", "low", ["~ exchange stock: keys low, out -> low"]),
        ("from: [a]", "from: [a, b]", ["~ exchange stock: from a -> a, b"]),
        ("from: [a]", "from: [a], deadline: 90s", ["~ exchange stock: deadline none -> 90s"]),
        (", from: [a]", "", ["~ exchange stock: from a -> all"]),
        ("hidden", "other", ["~ site c: broker (password changed)"]),
    ],
)
def test_each_change_is_one_line(former: str, new: str, said: list[str]) -> None:
    assert former in BASE
    assert mesh_diff(mesh(), mesh(BASE.replace(former, new, 1))) == said


def test_a_site_comes_with_its_links() -> None:
    grown = BASE.replace(
        "{from: a, to: b, both", "{from: d, to: b, both: true}, {from: a, to: b, both"
    )
    said = mesh_diff(mesh(), mesh(grown.replace("sites: {", "sites: {d: {}, ")))
    now = "+ site d, from now: what is published from now on comes to it"
    assert said == [now, "+ link d-b", "+ link b-d"]
    said = mesh_diff(mesh(), mesh(grown.replace("sites: {", "sites: {d: {from: start}, ")))
    assert said[0] == "+ site d, from start: what the logs still hold comes to it too"


def test_another_rule_is_said_with_the_links_that_it_brings() -> None:
    ring = BASE.replace("custom", "ring").replace(BASE.splitlines()[3], "both: true")
    complete = ring.replace("ring", "complete").replace("both: true", "")
    assert mesh_diff(mesh(ring), mesh(complete)) == ["~ forwarding rule ring -> complete"]


def test_a_mesh_comes_back_from_json_without_its_passwords() -> None:
    kept = mesh_from_json(mesh_as_json(mesh()))
    site = mesh().sites["c"]
    assert site.broker is not None
    bare = replace(site, broker=replace(site.broker, password=""))
    assert kept == replace(mesh(), sites={**mesh().sites, "c": bare})
    assert "hidden" not in str(mesh_as_json(mesh()))


@pytest.mark.parametrize(
    "said", [None, [], {}, {"name": 1}, mesh_as_json(mesh()) | {"links": [{"sender": "a"}]}]
)
def test_what_is_no_mesh_is_refused(said: object) -> None:
    with pytest.raises(BadMeshJson):
        mesh_from_json(said)
