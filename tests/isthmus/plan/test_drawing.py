"""Drawings of meshes: what is in them, where it stands, and that they can be read."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from federation.mesh_file import load_mesh
from isthmus.cli import app
from isthmus.plan.drawing import as_dot, as_svg
from isthmus.plan.layout import laid_out
from isthmus.plan.picture import Picture, Spot, Stroke, picture_of
from tests.federation.meshes import mesh_of

TOPOLOGIES = sorted((Path(__file__).parents[3] / "topology_configs").glob("*.yaml"))
SVG = "{http://www.w3.org/2000/svg}"
HUB = """\
mesh: acme
topology: {hub: head}
exchanges: [{name: sales, from: [shops], to: [head]}]
sites: {head: {}}
branches: {names: [NAMES], template: {tags: [shops]}}
"""


def hub_of(shops: int) -> str:
    return HUB.replace("NAMES", ", ".join(f"s{n:03}" for n in range(shops)))


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def crossings(spots: dict[str, tuple[float, float]], lines: list[tuple[str, str]]) -> int:
    def turn(a: str, b: str, c: str) -> float:
        (ax, ay), (bx, by), (cx, cy) = spots[a], spots[b], spots[c]
        return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)

    return sum(
        turn(a, b, c) * turn(a, b, d) < 0 and turn(c, d, a) * turn(c, d, b) < 0
        for (a, b), (c, d) in itertools.combinations(lines, 2)
        if len({a, b, c, d}) == 4
    )


def test_500_branches_of_one_hub_are_one_crowd() -> None:
    picture = picture_of(mesh_of(hub_of(500)))
    assert [(spot.label, spot.sites) for spot in picture.spots] == [
        ("head", 1),
        ("shops (500)", 500),
    ]
    (stroke,) = picture.strokes
    assert (stroke.both_ways, stroke.meeting, stroke.is_single_point) == (True, "head", True)
    assert {"head", "shops (500)"} < set(texts(as_svg(picture)))


def test_with_all_500_each_has_a_place_where_its_name_can_be_read() -> None:
    picture = picture_of(mesh_of(hub_of(500)), each=True)
    names = [spot.name for spot in picture.spots]
    assert len(names) == 501
    places = laid_out(names, [(one.sender, one.receiver) for one in picture.strokes])
    around = [places[name] for name in names[1:]]
    assert places["head"].x == places["head"].y == 0
    gaps = [math.hypot(a.x - b.x, a.y - b.y) for a, b in itertools.pairwise(around)]
    assert min(gaps) > 15
    assert set(names) < set(texts(as_svg(picture)))


def test_sites_that_are_linked_to_each_other_are_no_crowd() -> None:
    names = ", ".join(f"s{n}: {{}}" for n in range(9))
    mesh = mesh_of(
        f"mesh: acme\ntopology: complete\nexchanges: [{{name: x}}]\nsites: {{{names}}}\n"
    )
    assert len(picture_of(mesh).spots) == 9


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_every_mesh_to_start_from_can_be_drawn(path: Path) -> None:
    picture = picture_of(load_mesh(path))
    svg = as_svg(picture)
    assert {spot.label for spot in picture.spots} < set(texts(svg))
    left, top, width, height = map(float, ElementTree.fromstring(svg).attrib["viewBox"].split())
    places = laid_out(
        [spot.name for spot in picture.spots],
        [(one.sender, one.receiver) for one in picture.strokes],
    )
    for place in places.values():
        assert left < place.x < left + width
        assert top < place.y < top + height
    for a, b in itertools.combinations(places.values(), 2):
        assert math.hypot(a.x - b.x, a.y - b.y) > 40
    assert as_dot(picture).count("{") == as_dot(picture).count("}")


def test_lines_of_a_tree_never_cross() -> None:
    lines = [("r", f"a{n}") for n in range(5)]
    lines += [(f"a{n}", f"b{n}{m}") for n in range(5) for m in range(n)]
    lines += [("b43", f"c{n}") for n in range(7)]
    names = list(dict.fromkeys(name for pair in lines for name in pair))
    places = laid_out(names, lines)
    assert crossings({name: (one.x, one.y) for name, one in places.items()}, lines) == 0


def test_a_ring_is_a_circle_in_the_order_of_the_file() -> None:
    names = [f"s{n}" for n in range(6)]
    places = laid_out(names, [*itertools.pairwise(names), (names[-1], names[0])])
    angles = [places[name].angle for name in names]
    assert angles == sorted(angles)
    assert {round(math.hypot(one.x, one.y)) for one in places.values()} == {124}


def test_a_spot_of_two_hubs_stands_between_them() -> None:
    hubs = ["h0", "h1", "h2", "h3"]
    lines = list(itertools.combinations(hubs, 2))
    lines += [(hub, f"s{n}") for hub in ("h0", "h1") for n in range(3)]
    places = laid_out([*hubs, "s0", "s1", "s2"], lines)
    assert places["h0"].angle < places["s0"].angle < places["s2"].angle < places["h1"].angle


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_sites_without_links_have_places_too(names: list[str]) -> None:
    places = laid_out(names, [])
    assert len({(one.x, one.y) for one in places.values()}) == len(names)


def test_names_are_escaped() -> None:
    spots = (Spot('<a>"', '<a>"', 1, False, "a & b"), Spot("b", "b", 1, True, ""))
    picture = Picture("t < u", spots, (Stroke('<a>"', "b", False, "b", True, "x < y"),))
    assert '<a>"' in texts(as_svg(picture))
    assert r'"<a>\"" -> "b"' in as_dot(picture)


def test_the_command_prints_either_drawing(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(hub_of(3))
    svg = CliRunner().invoke(app, ["plan", str(path), "--svg"])
    assert svg.exit_code == 0
    assert texts(svg.stdout)
    dot = CliRunner().invoke(app, ["plan", str(path), "--dot"])
    assert dot.stdout.startswith("digraph")
    assert CliRunner().invoke(app, ["plan", str(path), "--svg", "--site", "head"]).exit_code == 2
