"""`isthmus plan`, as an operator meets it."""

from __future__ import annotations

import io
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from federation.brokers.applied import Applied, write_applied, write_applied_mesh
from federation.mesh import Mesh
from federation.mesh_file import Reading, load_mesh
from federation.planning.disk_need import PublishRates
from isthmus.cli import app
from isthmus.plan.changes import changes_of
from isthmus.plan.expected_load import BadLoad, ExpectedLoad, parse_rates
from isthmus.plan.report import plan_of
from isthmus.plan.tables import tables
from tests.federation.meshes import mesh_of

TOPOLOGIES = Path(__file__).parents[3] / "topology_configs"
HUB = """\
mesh: acme
topology: {hub: head}
exchanges:
  - {name: sales, from: [shops], to: [head]}
  - {name: prices, from: [head], to: [shops]}
sites:
  head: {}
branches:
  names: [NAMES]
  template: {tags: [shops], availability: 0.98}
"""
SQUARE = """\
mesh: acme
topology: ring
both: true
exchanges: [{name: orders}]
sites: {paris: {}, tokyo: {}, sydney: {}, lagos: {}}
"""


def hub_of(shops: int) -> str:
    return HUB.replace("NAMES", ", ".join(f"s{n:03}" for n in range(1, shops + 1)))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def text_of(mesh: Mesh, state: Path = Path("nowhere"), **more: Any) -> str:
    told = plan_of(mesh, **more)
    told |= {"apply": changes_of(Reading(mesh, ()), mesh, state), "brokers": None}
    console = Console(file=io.StringIO(), width=160)
    console.print(tables(told))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(text: str, first: str) -> list[str]:
    """Of the first row of any table that begins so."""
    row = next(line for line in text.splitlines() if line.startswith(f"│ {first} "))
    return [cell.strip() for cell in row.strip("│").split("│")]


@pytest.fixture
def square(tmp_path: Path) -> Path:
    path = tmp_path / "mesh.yaml"
    path.write_text(SQUARE)
    return path


def test_a_ring_both_ways_has_two_disjoint_ways_for_each_pair() -> None:
    told = plan_of(mesh_of(SQUARE))
    (routes,) = told["routes"]
    assert {(row["link_disjoint"], row["site_disjoint"]) for row in routes["pairs"]} == {(2, 2)}
    assert routes["single_points"] == []
    parts = {(*row["worst"],): row["availability"]["part"] for row in routes["pairs"]}
    assert parts["paris", "sydney"] == pytest.approx(1 - (1 - 0.99**2) ** 2)
    assert sum(row["pairs"] for row in routes["pairs"]) == 12


def test_500_branches_are_one_line_of_each_table() -> None:
    mesh = mesh_of(hub_of(500))
    text = text_of(mesh, load=ExpectedLoad(PublishRates(1.0), 1024))
    assert len(text.splitlines()) < 50
    assert cells(text, "head ↔ shops (500)") == [
        "head ↔ shops (500)",
        "500",
        "head",
        "shops (500)",
        "99 %",
    ]
    assert cells(text, "line head – shops (500)") == [
        "line head – shops (500)",
        "500",
        "each 2 pairs",
        "head from shops (500)",
    ]
    assert cells(text, "shops (500)")[1] == "2"
    assert "…" not in text


def test_with_all_every_site_has_a_line_of_its_own() -> None:
    told = plan_of(mesh_of(hub_of(12)), each=True)
    assert [group["label"] for group in told["groups"]] == list(mesh_of(hub_of(12)).sites)
    (routes,) = told["routes"]
    assert len(routes["pairs"]) == 12
    assert all(row["pairs"] == 2 for row in routes["pairs"])


def test_only_pairs_that_an_exchange_joins_are_told() -> None:
    mesh = mesh_of(hub_of(3))
    (routes,) = plan_of(mesh)["routes"]
    assert {(*row["worst"],) for row in routes["pairs"]} == {
        ("head", "s001"),
        ("head", "s002"),
        ("head", "s003"),
    }
    assert not any(point["kind"] == "site" for point in routes["single_points"])


def test_in_a_mesh_without_exchanges_every_pair_is_told() -> None:
    mesh = mesh_of("mesh: m\ntopology: custom\nlinks: [{from: a, to: b}]\nsites: {a: , b: , c: }\n")
    (routes,) = plan_of(mesh)["routes"]
    assert sum(row["pairs"] for row in routes["pairs"]) == 6
    text = text_of(mesh, load=ExpectedLoad(PublishRates(1.0), 1000))
    assert "exchanges: none in the file" in text
    assert cells(text, "a ↔ c")[-2:] == ["no way leads there", "always"]


def test_losing_the_hub_cuts_each_shop_from_all_others() -> None:
    mesh = mesh_of(hub_of(100).replace("from: [shops], to: [head]", "from: [shops], to: [shops]"))
    (routes,) = plan_of(mesh)["routes"]
    first = routes["single_points"][0]
    assert (first["kind"], first["groups"], first["pairs_each"]) == ("site", ["head"], 100 * 99)
    line = next(one for one in routes["single_points"] if one["kind"] == "link")
    assert line["count"] == 100
    # Its own shop to 99 others and from 99 others, and from head.
    assert line["pairs_each"] == 2 * 99 + 1


def test_one_site_narrows_the_pairs_to_its_own(square: Path) -> None:
    told = json.loads(run(square, "--site", "tokyo", "--json").stdout)
    (routes,) = told["routes"]
    assert sum(row["pairs"] for row in routes["pairs"]) == 6
    assert all("tokyo" in (row["from"], row["to"]) for row in routes["pairs"])


def test_two_sites_are_told_in_full_with_their_ways(square: Path) -> None:
    result = run(square, "--site", "paris", "--site", "sydney")
    assert result.exit_code == 0
    assert "paris → sydney (exchanges orders)" in result.stdout
    assert "paris → tokyo → sydney" in result.stdout
    assert "paris → lagos → sydney" in result.stdout
    assert "no single site or line separates them" in result.stdout


def test_a_pair_that_no_exchange_joins_is_told_when_it_is_asked_for() -> None:
    text = text_of(mesh_of(hub_of(3)), sites=["s001", "s002"])
    assert "s001 → s002 (no exchange is sent that way)" in text
    assert "separated by the loss of head or of line head – s002 or of line head – s001" in text


def test_an_exchange_with_never_via_has_ways_of_its_own() -> None:
    mesh = mesh_of(
        SQUARE.replace(
            "[{name: orders}]",
            "[{name: orders}, {name: secrets, from: [paris], to: [sydney], never_via: [tokyo]}]",
        )
    )
    orders, secrets = plan_of(mesh)["routes"]
    assert (orders["exchanges"], secrets["exchanges"]) == (["orders"], ["secrets"])
    (row,) = secrets["pairs"]
    assert (row["worst"], row["site_disjoint"]) == (["paris", "sydney"], 1)
    points = [(one["kind"], one["example"]) for one in secrets["single_points"]]
    assert ("site", ["lagos"]) in points
    assert "never via tokyo" in text_of(mesh)


def test_in_a_complete_graph_every_line_is_the_only_way_of_its_pair() -> None:
    mesh = mesh_of(SQUARE.replace("topology: ring\nboth: true", "topology: complete"))
    (routes,) = plan_of(mesh)["routes"]
    assert len(routes["single_points"]) == 6
    assert all(row["availability"]["part"] == 0.99 for row in routes["pairs"])
    assert "only the direct link counts" in text_of(mesh)


def test_a_log_that_cannot_hold_the_window_is_warned_of() -> None:
    limited = SQUARE.replace("sites:", "log: {max_bytes: 1GB}\nsites:")
    text = text_of(mesh_of(limited), load=ExpectedLoad(PublishRates(200.0), 2048))
    assert "warning: the log may not hold the outage window at paris, tokyo, sydney" in text
    assert "then it takes nothing more" in text
    gaps = limited.replace("1GB", "1GB, on_full: gap")
    assert "then it leaves gaps" in text_of(
        mesh_of(gaps), load=ExpectedLoad(PublishRates(200.0), 2048)
    )
    assert "warning" not in text_of(mesh_of(limited), load=ExpectedLoad(PublishRates(0.01), 2048))


def test_without_a_rate_it_says_what_the_disk_would_take_to_know(square: Path) -> None:
    assert "say --rate 200/s --size 2KiB" in run(square).stdout


def test_rates_are_those_of_all_of_an_exchange_or_of_a_flow() -> None:
    mesh = mesh_of(SQUARE)
    rates = parse_rates(["200/s", "orders=1.5k/m", "orders@paris=36/h"], mesh)
    assert rates == PublishRates(200.0, {"orders": 25.0}, {("orders", "paris"): 0.01})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("200", "write messages and a unit of time"),
        ("ordres=5/s", "did you mean 'orders'?"),
        ("orders@pari=5/s", "did you mean 'paris'?"),
        ("orders=fast", "'fast' is no rate"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(BadLoad) as raised:
        parse_rates([text], mesh_of(SQUARE))
    assert said in str(raised.value)


def test_a_call_that_is_wrong_ends_with_2(square: Path) -> None:
    assert run(square, "--rate", "5").exit_code == 2
    assert run(square, "--rate", "5/s", "--size", "big").exit_code == 2
    assert run(square, "--json", "--svg").exit_code == 2
    assert run(square, "--site", "rome").exit_code == 2
    assert run(square.with_name("none.yaml")).exit_code == 2


def applied(mesh: Mesh, state: Path, *sites: str) -> None:
    write_applied_mesh(state, mesh)
    for site in sites or mesh.sites:
        write_applied(state, mesh.name, site, mesh.revision, Applied())


def test_changes_of_apply_are_unknown_where_nothing_was_applied(tmp_path: Path) -> None:
    assert "what apply would change: unknown" in text_of(mesh_of(SQUARE), tmp_path)


def test_changes_of_apply_are_in_the_words_of_the_file(tmp_path: Path) -> None:
    former = mesh_of(SQUARE)
    applied(former, tmp_path)
    assert "apply would change nothing" in text_of(former, tmp_path)
    new = mesh_of(
        SQUARE.replace("lagos: {}", "lagos: {}, lima: {}").replace(
            "[{name: o", "[{name: n}, {name: o"
        )
    )
    text = text_of(new, tmp_path)
    assert f"since {former.revision}" in text
    assert "+ site lima" in text
    assert "+ exchange n" in text
    assert "- link lagos-paris" in text
    assert "nothing was applied" in text


def test_a_plan_leaves_no_trace(square: Path) -> None:
    state = square.parent / "state"
    assert run(square, "--state", state).exit_code == 0
    assert not state.exists()


def test_brokers_that_cannot_be_asked_are_unknown_and_why(square: Path) -> None:
    square.write_text(
        SQUARE.replace(
            "paris: {}", "paris: {broker: 'amqp://r@localhost', password: 'env:NOWHERE_SAID'}"
        )
    )
    state = square.parent / "state"
    result = run(square, "--ask", "--state", state)
    assert result.exit_code == 0
    assert "at paris:\n    unknown: the mesh file has no `management:`" in result.stdout
    assert "at tokyo:\n    unknown: " in result.stdout
    assert "isthmus up" in result.stdout
    assert not state.exists()


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_mesh_to_start_from_can_be_planned(path: Path) -> None:
    text = text_of(load_mesh(path), load=ExpectedLoad(PublishRates(1.0), 1000))
    assert len(text.splitlines()) < 120


def test_the_json_has_every_link_and_who_dials(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(
        textwrap.dedent("""\
            mesh: acme
            topology: custom
            links: [{from: a, to: b, both: true, dial: from}, {from: b, to: c, via: "tunnel:5671"}]
            exchanges: [{name: x, from: [a], to: [b, c]}]
            sites: {a: {}, b: {}, c: {}}
            """)
    )
    told = json.loads(run(path, "--json").stdout)
    assert [(one["from"], one["to"], one["meets_at"], one["dials"]) for one in told["links"]] == [
        ("a", "b", "a", ["b"]),
        ("b", "a", "a", ["b"]),
        ("b", "c", "c", ["b"]),
    ]
    assert told["links"][2]["via"] == "tunnel:5671"
    rows = [(row["from"], row["to"], row["both_ways"]) for row in told["link_groups"]]
    assert rows == [("a", "b", True), ("b", "c", False)]
    assert told["link_groups"][0]["dials"] == "b"
