"""`isthmus accept-gap` where nothing runs: what it shows, asks and leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isthmus.cli import app
from isthmus.commands import accept_gap
from relay.ledger.rows import Stage
from relay.log.open_gap import GoneRange, OpenGap
from relay.operator.gaps import ORDERS, SiteGaps

FILE = "mesh: m\ntopology: complete\nexchanges: [{name: orders}]\nsites: {a: {}, b: {}}\n"
LINK = OpenGap(
    Stage.LINKED_OUT,
    "m.a/00/orders.0>*/4",
    10,
    20,
    1_800_000_000_000,
    link="a-b",
    neighbour="b",
    gone=(GoneRange("a", "ab12", "orders", 5, 9, 5, 1234),),
    is_all_named=True,
)
FLOW = OpenGap(Stage.DELIVERED, "x", 1, 20, 1, origin="b", exchange="orders")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(accept_gap, "OBEYED_WITHIN_S", 0.0)
    (tmp_path / "mesh.yaml").write_text(FILE)
    (tmp_path / "state" / "sites" / "a").mkdir(parents=True)
    return tmp_path / "state"


def stand(state: Path, *found: OpenGap) -> None:
    gaps = SiteGaps(state / "sites" / "a")
    for gap in found:
        gaps.found(gap)


def run(state: Path, *words: str, answer: str | None = None) -> Result:
    words = (str(state.parent / "mesh.yaml"), "a", *words, "--state", str(state))
    return CliRunner().invoke(app, ["accept-gap", *words], input=answer)


def orders(state: Path) -> set[str]:
    folder = state / "sites" / "a" / ORDERS
    return {file.name for file in folder.iterdir()} if folder.exists() else set()


def test_accept_gap_shows_missing_batches_and_orders_only_when_confirmed(state: Path) -> None:
    stand(state, LINK, FLOW)
    result = run(state, answer="n\n")
    assert result.exit_code == 1
    assert (
        "a: link a-b stands since 2027-01-15T08:00:00+00:00; missing (at most 1,234 messages)"
        in (result.output)
    )
    assert "offsets 11 to 19 of the log, after m.a/00/orders.0>*/4" in result.output
    assert "a, run ab12, orders, sequences 5-9: 5 batches, 1234 messages" in result.output
    assert "a: flow b/orders stands since" in result.output
    assert orders(state) == set()

    result = run(state, answer="y\n")
    assert orders(state) == {LINK.id, FLOW.id}
    assert result.exit_code == 1  # nothing runs here that could obey
    assert "goes on as soon as its node runs" in result.output


def test_only_the_stage_that_is_named(state: Path) -> None:
    stand(state, LINK, FLOW)
    run(state, "--flow", "b/orders", "--yes")
    assert orders(state) == {FLOW.id}
    run(state, "--link", "a-b", "--yes")
    assert orders(state) == {FLOW.id, LINK.id}
    result = run(state, "--link", "a-c", "--yes")
    assert result.exit_code == 2
    assert "a-c stands at no gap; link a-b, flow b/orders does" in result.output


def test_a_gap_is_accepted_by_its_id_and_not_once_it_has_grown(state: Path) -> None:
    stand(state, LINK, FLOW)
    grown = replace(LINK, first=21)
    result = run(state, "--gap", grown.id, "--yes")
    assert result.exit_code == 2
    assert "the gap has grown; look again" in result.output
    assert orders(state) == set()
    run(state, "--gap", LINK.id, "--yes")
    assert orders(state) == {LINK.id}


def test_json_asks_nothing_and_accepts_only_with_yes(state: Path) -> None:
    stand(state, LINK)
    result = run(state, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    (gap,) = told["gaps"]
    assert (told["site"], gap["link"], gap["messages"], gap["goes_on"]) == ("a", "a-b", 1234, False)
    assert orders(state) == set()
    run(state, "--json", "--yes")
    assert orders(state) == {LINK.id}


def test_where_nothing_stands_there_is_nothing_to_accept(state: Path) -> None:
    result = run(state)
    assert result.exit_code == 0
    assert "nothing stands at a gap" in result.output


def test_recover_is_not_for_a_node_that_stopped_at_a_gap(state: Path) -> None:
    folder = state / "sites" / "a"
    (folder / "state").mkdir()
    (folder / "node.json").write_text('{"pid": 1, "admin_port": 1, "stopped": "gap: the log ..."}')
    file = str(state.parent / "mesh.yaml")
    result = CliRunner().invoke(app, ["recover", file, "--site", "a", "--state", str(state)])
    assert result.exit_code == 1
    assert "accept-gap" in result.output
    assert (folder / "state").exists()
