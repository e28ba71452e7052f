"""`isthmus pause` and `resume` where nothing runs: the order is kept, mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isthmus.cli import app
from isthmus.hold_orders import HoldTarget
from isthmus.status import StatusReport
from relay.operator.holds import Holds, read_holds

FILE = "mesh: m\ntopology: complete\nexchanges: [{name: orders}]\nsites: {a: {}, b: {}}\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "mesh.yaml").write_text(FILE)
    (tmp_path / "state" / "sites" / "a").mkdir(parents=True)
    return tmp_path / "state"


def run(command: str, state: Path, *words: str) -> Result:
    file = str(state.parent / "mesh.yaml")
    return CliRunner().invoke(app, [command, file, *words, "--state", str(state)])


def held(state: Path) -> Holds:
    return read_holds(state / "sites" / "a")


def test_an_order_for_a_node_that_does_not_run_is_kept_for_when_it_does(state: Path) -> None:
    result = run("pause", state, "--site", "a", "--link", "a-b")
    assert result.exit_code == 0, result.output
    assert "a: paused as soon as its node runs" in result.output
    assert held(state) == Holds(paused=True, links=frozenset({"a-b"}))
    assert run("resume", state, "--link", "a-b").exit_code == 0
    assert held(state) == Holds(paused=True)
    assert run("resume", state, "--site", "a").exit_code == 0
    assert held(state) == Holds()


def test_a_drain_waits_for_the_node_and_resume_takes_it_back(state: Path) -> None:
    result = run("drain", state, "a")
    assert result.exit_code == 1
    assert "its node does not run" in result.output
    assert held(state) == Holds(draining=True)
    assert run("resume", state, "--site", "a").exit_code == 0
    assert held(state) == Holds()


def test_a_drain_without_waiting_only_gives_the_order(state: Path) -> None:
    result = run("drain", state, "a", "--no-wait")
    assert result.exit_code == 0
    assert "a is to drain" in result.output
    assert held(state) == Holds(draining=True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--site SITE or --link FROM-TO"),
        (("--link", "a-c"), 2, "there is no link 'a-c'; the mesh has a-b, b-a"),
        (("--site", "c"), 2, "there is no site 'c'"),
        (("--site", "b"), 1, "no node of b has run with this state folder"),
        (("--link", "b-a"), 1, "no node of b has run with this state folder"),
    ],
)
def test_a_target_that_cannot_be_held_is_refused(
    state: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    result = run("pause", state, *words)
    assert result.exit_code == code
    assert said in result.output
    assert held(state) == Holds()


@pytest.mark.parametrize(
    ("slots", "state"),
    [
        (["paused", "running"], "running"),
        (["paused", "standby", "paused"], "paused"),
        (["drained", "standby", "draining"], "draining"),
        (["standby", "standby"], "standby"),
    ],
)
def test_an_order_is_obeyed_once_all_slots_that_run_here_obey(slots: list[str], state: str) -> None:
    parts = [{"state": one} for one in slots]
    content = {"sites": {"a": {"state": "standby", "slots": parts}, "b": {"state": "unknown"}}}
    assert HoldTarget("a").state_in(content) == state
    assert HoldTarget("b").state_in(content) == "unknown"


def test_a_mesh_is_up_when_only_what_somebody_holds_back_does_not_run(tmp_path: Path) -> None:
    def report(tokyo: str, to_tokyo: str, from_paris: str = "paused") -> StatusReport:
        sites = {"paris": {"state": "running"}, "tokyo": {"state": tokyo}}
        links = [("paris", "tokyo", to_tokyo), ("paris", "lima", from_paris)]
        return StatusReport(
            {
                "sites": {name: {"reason": "", **site} for name, site in sites.items()},
                "links": [{"from": a, "to": b, "state": state} for a, b, state in links],
            }
        )

    drained = report("drained", "down")
    assert drained.is_settled
    assert not drained.all_running
    assert drained.summary == "everything runs"
    assert drained.held_lines(Path("mesh.yaml")) == [
        "tokyo is drained: `isthmus resume mesh.yaml --site tokyo` lets it go on",
        "link paris-lima is paused: `isthmus resume mesh.yaml --link paris-lima` lets it go on",
    ]
    assert report("paused", "running").is_settled
    assert report("running", "down").summary == "waiting for paris->tokyo down"
    assert not report("down", "down").is_settled
    assert not report("drained", "down", "starting").is_settled
